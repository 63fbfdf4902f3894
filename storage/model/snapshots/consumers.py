"""Consumers: readers whose position is stored in the table, so that expiry keeps what they have not read yet.

Source: Java `consumer/Consumer.java`, `consumer/ConsumerManager.java`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.base.arguments import check_file_name
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.paths import CONSUMER_PREFIX, TablePaths, parse_consumer_name

NEXT_SNAPSHOT: Final = "nextSnapshot"


@dataclass(frozen=True, slots=True)
class Consumer:
    """The stored position of a reader: expiry keeps the snapshots from it on. The file has Paimon's format."""

    io: FileIO
    paths: TablePaths
    name: str

    def __post_init__(self) -> None:
        if not self.name.strip() or "/" in self.name:
            raise BadInput(
                f"consumer {self.name!r}: its name is part of a file name, so it can't be blank or contain a slash"
            )
        check_file_name("consumer", self.name, affix=CONSUMER_PREFIX)

    def next_snapshot_id(self) -> int | None:
        """Return None if this consumer never wrote a position."""
        members = self.read()
        return None if members is None else members[NEXT_SNAPSHOT]

    def read(self) -> dict[str, Any] | None:
        """Return all members of its file, with a number in `nextSnapshot`; None without a file. Raises CorruptFile."""
        path = self.paths.consumer(self.name)
        try:
            data = self.io.read(path)
        except FileNotFoundError:
            return None
        try:
            members = json.loads(data)
            return {**members, NEXT_SNAPSHOT: int(members[NEXT_SNAPSHOT])}
        except (ValueError, KeyError, TypeError) as e:
            raise CorruptFile(path, 'JSON such as {"nextSnapshot": 17}', f"{data[:60]!r} ({e})") from None

    def write(self, next_snapshot_id: int, more: Mapping[str, Any] | None = None) -> None:
        """Write the position.

        more: additional members, which other readers ignore.
        """
        text = json.dumps({NEXT_SNAPSHOT: next_snapshot_id, **(more or {})}, indent=2)
        self.io.write(self.paths.consumer(self.name), text.encode())

    def forget(self) -> None:
        """Delete the position: expiry no longer keeps anything for this consumer."""
        self.io.delete(self.paths.consumer(self.name))


def consumer_names(io: FileIO, paths: TablePaths) -> list[str]:
    return sorted(name for name, _ in _files(io, paths))


def min_next_snapshot(io: FileIO, paths: TablePaths) -> int | None:
    """Return the earliest snapshot that a consumer has not read; None without consumers. Raises CorruptFile."""
    positions = [Consumer(io, paths, name).next_snapshot_id() for name in consumer_names(io, paths)]
    return min((position for position in positions if position is not None), default=None)


def remove_stale_consumers(io: FileIO, paths: TablePaths, written_before_ms: int) -> list[str]:
    """Delete consumers that were not written since this time. Returns their names."""
    stale = [name for name, modified_ms in _files(io, paths) if modified_ms < written_before_ms]
    io.delete_all([paths.consumer(name) for name in stale])
    return stale


def _files(io: FileIO, paths: TablePaths) -> list[tuple[str, int]]:
    entries = io.list_directory(paths.consumer_directory)
    return [(name, e.modified_ms) for e in entries if (name := parse_consumer_name(e.name)) and not e.is_directory]
