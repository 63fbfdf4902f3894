"""The position of a reader of changes, exact to the row. A reader stores it to continue from there later.

Source: Java `table/source/DataTableStreamScan.java` (checkpoint, restore). Here the position also counts the rows of a
snapshot, which Java's does not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tidelake.errors import BadInput
from tidelake.storage.base.arguments import check_whole_number, shown
from tidelake.storage.model.snapshots.consumers import NEXT_SNAPSHOT
from tidelake.storage.model.snapshots.snapshot import Snapshot

_ROWS = "rows"
_FULL = "full"
_FILES_SINCE = "filesSince"
_AFTER = "after"


@dataclass(frozen=True, slots=True)
class ChangePosition:
    """The position of the next row to read. `str(position)` returns a text; `ChangePosition.parse(text)` reads it.

    next_snapshot_id: the snapshot that is read next, or whose reading continues.
    rows: how many of its rows were read already. The order of a snapshot's rows never changes.
    is_full: all rows of the table at this snapshot are read. Otherwise only the snapshot's changes are read.
    files_since_ms: in a full read, only files created at this time or later are read (epoch milliseconds). None: all.
    after: the name of the previous snapshot's delta manifest list, which is unique; None if it is not known.
    """

    next_snapshot_id: int
    rows: int = 0
    is_full: bool = False
    files_since_ms: int | None = None
    after: str | None = None

    @classmethod
    def behind(cls, snapshot: Snapshot) -> ChangePosition:
        """Return the position after all rows of the snapshot."""
        return cls(snapshot.id + 1, after=snapshot.delta_manifest_list)

    @classmethod
    def of_members(cls, members: object) -> ChangePosition:
        """Build a position from JSON members. Ignores unknown members. Raises ValueError."""
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
            raise BadInput(f"{shown(text)} is not a position: {error}; store the text of str(position)") from None

    def to_members(self) -> dict[str, Any]:
        """Return the position as JSON members, without default values."""
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
