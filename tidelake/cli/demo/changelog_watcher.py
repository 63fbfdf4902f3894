"""Follows the changelogs of the demo's tables while they grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelake.checkpoint.offsets import POSITION_PROPERTY, TopicPartition, position_from_text
from tidelake.storage.base import env
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.types.json_values import json_rows
from tidelake.storage.read.changes.change_reader import ChangeBatch
from tidelake.storage.read.follow import Follower
from tidelake.table import Table

_CHANGES_KEPT: Final = 8
_WAIT_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class ShownChange:
    snapshot_id: int
    kind: RowKind
    row: dict[str, Any]


@dataclass(slots=True)
class TableProgress:
    """What the changelog of a table has contained so far.

    kinds: the number of changes of each kind
    latest_changes: a few of the newest snapshot
    ends: the next offsets in the position of the newest snapshot
    """

    snapshots: int = 0
    kinds: Counter[RowKind] = field(default_factory=Counter)
    latest_changes: tuple[ShownChange, ...] = ()
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows after applying the changelog so far."""
        return sum(-count if kind.is_retract else count for kind, count in self.kinds.items())


class ChangelogWatcher:
    """A thread that follows some tables.

    `progress` may be read at any time; `check` raises the thread's error.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self.progress = {table.name: TableProgress() for table in tables}
        self._tables = tables
        self._stop = env.Event()
        self._error: Exception | None = None
        self._thread = env.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            followers = [(table, table.follower(start="earliest")) for table in self._tables]
            while not self._stop.is_set():
                steps = [self._step(table, follower) for table, follower in followers]
                if not any(steps):
                    self._stop.wait(_WAIT_SECONDS)
        except Exception as error:
            self._error = error

    def _step(self, table: Table, follower: Follower) -> bool:
        """Return whether there was a new snapshot."""
        snapshot_id = follower.next_snapshot_id
        changes = follower.step()
        if changes is None:
            return False
        progress = self.progress[table.name]
        for change in changes:
            _note(progress, change)
        snapshot = table.context.snapshots.get(snapshot_id)
        if (text := snapshot.properties.get(POSITION_PROPERTY)) is not None:
            progress.ends = position_from_text(text, f"snapshot {snapshot_id}").ends
        progress.snapshots += 1
        return True


def _note(progress: TableProgress, change: ChangeBatch) -> None:
    kinds = change.rows.column(KIND_COLUMN)
    progress.kinds.update({RowKind(entry["values"]): entry["counts"] for entry in kinds.value_counts().to_pylist()})
    # Changes are in key order, so the end has only new keys: show some from the middle.
    recent = change.rows.slice(len(kinds) // 2, _CHANGES_KEPT)
    rows = json_rows(recent.drop_columns([KIND_COLUMN]))
    shown = zip(recent.column(KIND_COLUMN).to_pylist(), rows, strict=True)
    progress.latest_changes = tuple(ShownChange(change.snapshot_id, RowKind(kind), row) for kind, row in shown)
