"""The progress file of a pipeline: how far the source was read for tables without new rows.

A table without rows gets no snapshot. From its snapshots alone, a starting pipeline would read again from the table's
last row. The file holds an entry for each idle table, and how far the whole source was read:

    {"version": 1, "identifier": 41, "epoch": 3, "reached": <a position>,
     "tables": {"shop.orders": {"created": 1795196040376, "snapshot": 17, "list": "manifest-list-…", "routing": {…}}},
     "struck": {"shop.users": {"created": 1795196040376, "snapshot": 9, "list": "manifest-list-…", "routing": {…}}}}

An entry in `tables` means: "since the table's snapshot 17 the source was read up to `reached`, and no row was for the
table". The entry is marked active before the table gets its next snapshot. So an older file can't say this of a later
snapshot. Active entries are in `struck`. An active entry only means that the pipeline committed to the table, and that
its snapshot there was 9. Without it, a table whose snapshots by the pipeline have all expired would look like a table
that was never written, and would be read from the start again.

The file is an optimization. If it is missing, torn or outdated, records are read again and then dropped. It never
overrides the tables' own snapshots. It matters when these are gone: what it says of them can make recovery refuse.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelake.checkpoint.offsets import SourcePosition, position_from_text, position_to_text
from tidelake.checkpoint.routing import Routing
from tidelake.checkpoint.table_state import SnapshotSummary, TableState
from tidelake.errors import CorruptFile, UnsupportedFeature

PROGRESS_VERSION: Final = 1
_NEVER: Final = sys.maxsize  # a pipeline has one such file, so its size matters less than that of each snapshot


@dataclass(frozen=True, slots=True)
class ProgressEntry:
    """The entry of an idle or active table in the progress file. It identifies the table and a state of it.

    All fields but `routing` are None for a table that didn't exist. Such an entry also holds for the table that is
    created afterwards, because no record was read for it yet.

    created_ms: see TableState.
    snapshot_id: id of its newest own snapshot.
    manifest_list: delta manifest list of that snapshot.
    routing: the routing by which records were found not to belong to the table.
    """

    created_ms: int | None = None
    snapshot_id: int | None = None
    manifest_list: str | None = None
    routing: Routing | None = None

    @classmethod
    def of(cls, created_ms: int | None, newest: SnapshotSummary | None, routing: Routing | None) -> ProgressEntry:
        """Return the entry for the table's current state.

        newest: its newest own snapshot.
        """
        if newest is None:
            return cls(created_ms, routing=routing)
        return cls(created_ms, newest.id, newest.manifest_list, routing)

    def is_current_for(self, newest_id: int, manifest_list: str) -> bool:
        """Return whether the entry's snapshot is still the table's newest own one.

        manifest_list: the delta manifest list of that snapshot.
        """
        return (self.snapshot_id, self.manifest_list) == (newest_id, manifest_list)

    def to_members(self) -> dict[str, Any]:
        """Return the entry as JSON members."""
        return {
            "created": self.created_ms,
            "snapshot": self.snapshot_id,
            "list": self.manifest_list,
            "routing": None if self.routing is None else self.routing.to_members(),
        }

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> ProgressEntry:
        """Return the entry. Raises KeyError or TypeError for members that are none."""
        routing = members["routing"]
        return cls(
            _number(members["created"]),
            _number(members["snapshot"]),
            members["list"],
            None if routing is None else Routing.from_members(routing),
        )


@dataclass(frozen=True, slots=True)
class IdleProgress:
    """The contents of the progress file.

    reached: next offset of each partition; ranges are empty.
    tables: idle tables. No record below `reached` is missing in them.
    identifier: the newest commit identifier of the pipeline.
    epoch: the newest epoch of the pipeline.
    active: the other tables that the pipeline committed to, or was about to commit to, in their state at that time.
        `reached` doesn't apply to them.
    """

    reached: SourcePosition = field(default_factory=SourcePosition)
    tables: Mapping[str, ProgressEntry] = field(default_factory=dict)
    identifier: int = 0
    epoch: int = 0
    active: Mapping[str, ProgressEntry] = field(default_factory=dict)

    def entry(self, table: str, table_state: TableState) -> ProgressEntry | None:
        """Return the table's entry; None if the entry is that of an earlier table of the same name, dropped since."""
        entry = self.tables.get(table)
        return entry if entry is not None and entry.created_ms in (None, table_state.created_ms) else None

    def active_entry(self, table: str, table_state: TableState) -> ProgressEntry | None:
        """Return the same as `entry`, for active entries."""
        entry = self.active.get(table)
        return entry if entry is not None and entry.created_ms == table_state.created_ms else None

    def removed_tables(self, configured: Collection[str]) -> list[str]:
        """Return the tables, sorted, that the pipeline committed to and that are not configured any more."""
        committed = {name for entries in (self.tables, self.active) for name, of in entries.items() if of.snapshot_id}
        return sorted(committed - set(configured))

    def to_text(self) -> str:
        members = {
            "version": PROGRESS_VERSION,
            "identifier": self.identifier,
            "epoch": self.epoch,
            "reached": json.loads(position_to_text(self.reached, packed_from=_NEVER)),
            "tables": _entries_to_members(self.tables),
            "struck": _entries_to_members(self.active),
        }
        return json.dumps(members, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_text(cls, data: bytes, where: str) -> IdleProgress:
        """Return the progress that `to_text` wrote.

        Raises CorruptFile for other text, UnsupportedFeature for a version that this release doesn't know.
        """
        try:
            members = json.loads(data)
            if (version := members["version"]) != PROGRESS_VERSION:
                raise UnsupportedFeature(
                    f"progress version {version} in {where}",
                    f"this release reads only version {PROGRESS_VERSION}",
                    "Delete the file; idle tables are then read again from their last row.",
                )
            tables = _entries_from_members(members["tables"])
            active = _entries_from_members(members.get("struck", {}))  # older releases did not write it
            reached = position_from_text(json.dumps(members["reached"]), where)
            return cls(reached, tables, int(members["identifier"]), int(members["epoch"]), active)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFile(where, "the progress of a pipeline", f"{data[:200]!r} ({error})") from error


def _entries_to_members(entries: Mapping[str, ProgressEntry]) -> dict[str, Any]:
    return {name: entry.to_members() for name, entry in sorted(entries.items())}


def _entries_from_members(members: Mapping[str, Any]) -> dict[str, ProgressEntry]:
    return {str(name): ProgressEntry.from_members(entry) for name, entry in members.items()}


def _number(value: object) -> int | None:
    if value is not None and not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value
