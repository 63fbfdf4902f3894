"""Builds the indexes of one data file while its rows are written.

Source: Java `io/DataFileIndexWriter.java`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.files.file_index.column_index import IndexWriter
from tidelake.storage.files.file_index.container import container_bytes
from tidelake.storage.files.file_index.index_settings import FileIndexSettings, IndexedColumn
from tidelake.storage.model.types import DataField


class FileIndexer:
    """Builds the indexes of one data file. Not thread-safe.

    settings: the indexes of each column.
    fields: the columns of the table, by name.
    only: the columns of the table to index; None means all columns in the settings.
    """

    def __init__(
        self, settings: FileIndexSettings, fields: Mapping[str, DataField], only: frozenset[str] | None = None
    ) -> None:
        self._writers: dict[IndexedColumn, dict[str, IndexWriter]] = {}
        for indexed, kind in settings.indexed_columns():
            if only is None or indexed.column in only:
                self._writers.setdefault(indexed, {})[kind] = settings.writer(indexed, kind, fields)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows of the file. The batch may also contain columns without an index."""
        for indexed, writers in self._writers.items():
            column = values_of(indexed, batch.column(indexed.column))
            for writer in writers.values():
                writer.add(column)

    def indexes(self) -> dict[str, dict[str, bytes | None]]:
        """Return column -> kind -> index. No rows may be added afterwards."""
        found: dict[str, dict[str, bytes | None]] = {}
        for indexed, writers in self._writers.items():
            for kind, writer in writers.items():
                if (data := writer.finish()) is not None:
                    found.setdefault(str(indexed), {})[kind] = data
        return found

    def container(self) -> bytes:
        return container_bytes(self.indexes())


def values_of(indexed: IndexedColumn, column: pa.Array) -> pa.Array:
    """Return the indexed values. For the key of a map, a value is null if the map does not contain the key."""
    if indexed.key is None:
        return column
    return pc.map_lookup(column, pa.scalar(indexed.key, column.type.key_type), "first")
