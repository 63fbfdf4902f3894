"""How far a reader of changes is, to the row: what it keeps, to go on there later.

Source: Java `table/source/DataTableStreamScan.java` (checkpoint, restore); the rows of a snapshot are counted here too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from storage.arguments import check_whole_number, shown
from storage.errors import BadInput
from storage.snapshots.consumers import NEXT_SNAPSHOT
from storage.snapshots.snapshot import Snapshot

_ROWS = "rows"
_FULL = "full"
_FILES_SINCE = "filesSince"
_AFTER = "after"


@dataclass(frozen=True, slots=True)
class ChangePosition:
    """The next row to read. `str(position)` is a text to keep, `ChangePosition.parse(text)` reads it.

    next_snapshot_id: the snapshot that is read next, or further.
    rows: how many of its rows were taken already. The order of a snapshot's rows never changes.
    is_full: it is read as a whole, all rows that it has; else what it changed.
    files_since_ms: then only from files that were made at this time or later, epoch milliseconds; None is all.
    after: the delta manifest list of the snapshot before, whose name no other has; None when it is not known.
    """

    next_snapshot_id: int
    rows: int = 0
    is_full: bool = False
    files_since_ms: int | None = None
    after: str | None = None

    @classmethod
    def behind(cls, snapshot: Snapshot) -> ChangePosition:
        """The position after all rows of the snapshot."""
        return cls(snapshot.id + 1, after=snapshot.delta_manifest_list)

    @classmethod
    def of_members(cls, members: object) -> ChangePosition:
        """Unknown members are passed over. Raises ValueError."""
        if not isinstance(members, dict) or NEXT_SNAPSHOT not in members:
            raise ValueError("no nextSnapshot in it")
        try:
            return cls(
                check_whole_number(NEXT_SNAPSHOT, members[NEXT_SNAPSHOT]),
                check_whole_number(_ROWS, members.get(_ROWS, 0)),
                members.get(_FULL, False) is True,
                None if (since := members.get(_FILES_SINCE)) is None else check_whole_number(_FILES_SINCE, since),
                None if (after := members.get(_AFTER)) is None else str(after),
            )
        except BadInput as error:
            raise ValueError(str(error)) from None

    @classmethod
    def parse(cls, text: str) -> ChangePosition:
        try:
            return cls.of_members(json.loads(text))
        except ValueError as error:
            raise BadInput(f"{shown(text)} is no position: {error}; keep what str(position) gives") from None

    def to_members(self) -> dict[str, Any]:
        """The position as JSON members; default values are left out."""
        members: dict[str, Any] = {NEXT_SNAPSHOT: self.next_snapshot_id}
        if self.rows:
            members[_ROWS] = self.rows
        if self.is_full:
            members[_FULL] = True
        if self.files_since_ms is not None:
            members[_FILES_SINCE] = self.files_since_ms
        if self.after is not None:
            members[_AFTER] = self.after
        return members

    def __str__(self) -> str:
        return json.dumps(self.to_members(), separators=(",", ":"))
