"""Whether a table is still the one that was opened: not dropped, and none other made under its name.

A version of a schema never changes, and says when it was made. So the table is the same as long as the file of the
version that was opened holds what it held: gone, the table was dropped or renamed; different, it was created again.

Java distinguishes tables by when their first schema was made (`table/FileStoreTable.uuid`).
"""

from __future__ import annotations

from storage.errors import BadInput, CommitConflict
from storage.fileio.base import FileIO
from storage.paths import TablePaths
from storage.schema.table_schema import TableSchema


class TableIdentity:
    """schema, name: of the table as it was opened. Each question costs a read of a small file. Thread-safe."""

    def __init__(self, io: FileIO, paths: TablePaths, schema: TableSchema, name: str) -> None:
        self._io = io
        self._path = paths.schema(schema.id)
        self._schema = schema
        self._name = name
        self._same: bytes | None = None  # a content of the file that was found to be the schema

    def loss(self) -> str | None:
        """What became of the table, as a part of a sentence; None while it is the same."""
        try:
            data = self._io.read(self._path)
        except FileNotFoundError:
            return "was dropped or renamed since it was opened"
        if data != self._same:
            if TableSchema.from_json(data, self._path) != self._schema:
                return "was dropped since it was opened, and another one was made under its name"
            self._same = data
        return None

    def check_before_change(self) -> None:
        """Raises CommitConflict for another table than was opened."""
        if (loss := self.loss()) is not None:
            raise CommitConflict(f"{self._name} {loss}. Nothing was changed. Open the table and write again")

    def check_before_read(self) -> None:
        """Raises BadInput for another table than was opened."""
        if (loss := self.loss()) is not None:
            raise BadInput(f"{self._name} {loss}. Open the table again and read it from its beginning")
