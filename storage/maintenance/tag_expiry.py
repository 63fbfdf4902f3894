"""Deletes tags whose retention has ended, after commits of their table.

Source: Java `tag/TagTimeExpire.java`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.errors import BadInput
from tidelake.storage.maintenance.tag_changes import delete_tag
from tidelake.storage.model.paths import parse_tag_name
from tidelake.storage.model.table import TableContext

_PAUSE_MS: Final = 60_000  # between two listings of the tags


class TagExpiry:
    """Tag expiry of one branch. Reads each tag once. Not thread-safe.

    now_ms: wall clock.
    """

    name: Final = "tag_expiry"

    def __init__(self, context: TableContext, *, now_ms: Callable[[], int] = epoch_ms) -> None:
        self._context = context
        self._now_ms = now_ms
        self._next_check_ms = now_ms() + _PAUSE_MS
        self._ends: dict[tuple[str, int], datetime | None] = {}  # by tag name and modification time of its file

    def is_due(self, *, respect_interval: bool = True) -> bool:
        return not respect_interval or self._now_ms() >= self._next_check_ms

    def run(self) -> None:
        now_ms = self._now_ms()
        self._next_check_ms = now_ms + _PAUSE_MS
        now = datetime.fromtimestamp(now_ms / 1000)
        found: dict[tuple[str, int], datetime | None] = {}
        for entry in self._context.io.list_directory(self._context.paths.tag_directory):
            name = None if entry.is_directory else parse_tag_name(entry.name)
            if name is None:
                continue
            key = name, entry.modified_ms
            try:
                end = found[key] = self._ends[key] if key in self._ends else self._end(name)
                if end is not None and end < now:
                    delete_tag(self._context, name)
            except BadInput:  # another process deleted it
                continue
        self._ends = found

    def _end(self, name: str) -> datetime | None:
        """Return the end of the tag's retention in local wall-clock time. None for a tag without a retention."""
        tag = self._context.tags.tag(name)
        return None if tag.created_at is None or tag.retained is None else tag.created_at + tag.retained
