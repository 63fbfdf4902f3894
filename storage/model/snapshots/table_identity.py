"""Checks that a table is still the one that was opened: not dropped, and not replaced by another one with its name.

A version of a schema never changes, and contains its creation time. So the table is the same as long as the file of the
opened version has the same content. If the file is gone, the table was dropped or renamed. If it differs, the table was
created again.

Java distinguishes tables by the creation time of their first schema (`table/FileStoreTable.uuid`).
"""

from __future__ import annotations

from tidelake.errors import BadInput, CommitConflict
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.paths import TablePaths
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.snapshots.snapshot import Snapshot


class TableIdentity:
    """The identity of a table when it was opened. Each check reads a small file. Thread-safe.

    schema: its schema at that time.
    name: its name at that time.
    """

    def __init__(self, io: FileIO, paths: TablePaths, schema: TableSchema, name: str) -> None:
        self._io = io
        self._path = paths.schema(schema.id)
        self._schema = schema
        self._name = name
        self._same: bytes | None = None  # a content of the file that is known to be this schema
        self._read: Snapshot | None = None  # the last snapshot that is known to be of this table

    def change_since_open(self) -> str | None:
        """Return what happened to the table, as a part of a sentence; None if it is the same."""
        try:
            data = self._io.read(self._path)
        except FileNotFoundError:
            return "was dropped or renamed since it was opened"
        if data != self._same:
            if TableSchema.from_json(data, self._path) != self._schema:
                return "was dropped since it was opened, and another table was created with its name"
            self._same = data
        return None

    def check_before_change(self) -> None:
        """Raise CommitConflict if the table is not the one that was opened."""
        if (loss := self.change_since_open()) is not None:
            raise CommitConflict(f"{self._name} {loss}. Nothing was changed. Open the table and write again")

    def check_before_read(self, snapshot: Snapshot | None = None) -> None:
        """Raise BadInput if the table is not the one that was opened. Call it after the snapshot was read.

        snapshot: what is to be read. If it is the one of the last call, it is of the same table, and nothing is asked:
            no other table has a snapshot with its manifest lists.
        """
        if snapshot is not None and snapshot == self._read:
            return
        if (loss := self.change_since_open()) is not None:
            raise BadInput(f"{self._name} {loss}. Open the table again and read it from its beginning")
        self._read = snapshot
