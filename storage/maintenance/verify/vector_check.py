"""Checks deletion vectors: they must be readable, have the row count in the manifest, and mark only existing rows.

Each index file is read once, even if several snapshots name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelake.storage.base.errors import TidelakeError
from tidelake.storage.files.index_file import IndexFileMeta
from tidelake.storage.maintenance.verify.finding import REPORT, RESTORE, Finding
from tidelake.storage.model.deletion_vectors.index_file import DeletionFile, read_vector
from tidelake.storage.model.table import TableContext


class VectorCheck:
    def __init__(self) -> None:
        self._checked: set[str] = set()

    def check(
        self, context: TableContext, file: IndexFileMeta, path: str, rows: Mapping[str, int], where: str
    ) -> Iterator[Finding]:
        """Checks the vectors of an index file that exists.

        rows: rows of each known data file, by its name.
        """
        if path in self._checked:
            return
        self._checked.add(path)
        for vector in file.vectors:
            of = f"the deletion vector of data file {vector.data_file} in {path}"
            try:
                positions = read_vector(context.io, DeletionFile(path, vector))
            except (TidelakeError, OSError, ValueError) as error:
                yield Finding("deletion-vector", where, f"{of} can't be read: {error}", RESTORE)
                continue
            count = rows.get(vector.data_file)
            if count is not None and len(positions) and int(positions[-1]) >= count:
                what = f"{of} marks row {positions[-1]}, and the file has {count} rows"
                yield Finding("deletion-vector", where, what, REPORT)
