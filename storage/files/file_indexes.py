"""Opens the indexes of a data file, which are in its metadata or in a file next to it.

Source: Java `io/FileIndexEvaluator.java`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from tidelake.errors import CorruptFile
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.file_index.column_index import ColumnIndex
from tidelake.storage.files.file_index.container import Container
from tidelake.storage.files.file_index.index_settings import IndexedColumn, value_type
from tidelake.storage.files.file_index.kinds import open_index
from tidelake.storage.model.paths import format_of, is_file_index_name
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, DataType, MapType, Root, same_ignoring_nullability

_REMEDY = "file-index.read.enabled = false reads without"


def index_file_name(file: DataFileMeta) -> str | None:
    """Return the name of the index file; None if no index file exists. Raises CorruptFile for more than one."""
    names = [name for name in file.extra_files if is_file_index_name(name)]
    if len(names) > 1:
        raise CorruptFile(file.file_name, "one file index", f"{' and '.join(names)} ({_REMEDY})")
    return names[0] if names else None


def may_have_indexes(file: DataFileMeta, *, embedded_only: bool = False) -> bool:
    """Return whether the data file may have indexes.

    embedded_only: whether to ignore indexes in a separate file.
    """
    return file.embedded_index is not None or (bool(file.extra_files) and not embedded_only)


@contextmanager
def file_indexes(context: TableContext, file: DataFileMeta, path: str) -> Iterator[FileIndexes | None]:
    """Open the indexes of a data file for the `with` block; None if it has no indexes.

    context: the table with the schema to read with.
    path: the path of the data file.
    """
    if file.embedded_index is not None:
        yield FileIndexes(context, file, Container.of_bytes(file.embedded_index, path), path)
        return
    name = index_file_name(file)
    if name is None:
        yield None
        return
    index_path = f"{path.rpartition('/')[0]}/{name}"
    with _opened(context.io, index_path) as container:
        yield FileIndexes(context, file, container, index_path)


@contextmanager
def _opened(io: FileIO, path: str) -> Iterator[Container]:
    try:
        source = io.open_input(path)
    except FileNotFoundError:
        raise CorruptFile(path, "a file index that a snapshot references", f"no file ({_REMEDY})") from None
    with source:
        yield Container(source.read_at, path)


class FileIndexes:
    """The indexes of one data file. Columns have the names of the schema to read with, even if the file has others.

    path: the path of the file that contains the indexes, for error messages.
    """

    def __init__(self, context: TableContext, file: DataFileMeta, container: Container, path: str) -> None:
        self._context = context
        self._file = file
        self._container = container
        self._path = path

    @cached_property
    def _file_schema(self) -> TableSchema:
        schema_id = self._file.schema_id
        return self._context.schema if schema_id == self._context.schema.id else self._context.schemas.get(schema_id)

    def of_column(self, indexed: IndexedColumn) -> Iterator[ColumnIndex]:
        """Yield the indexes of a column, or of one key of a map. Yields none if the values are cast when read."""
        wanted = self._context.schema.by_name[indexed.column]
        stored = self._stored(wanted)
        if stored is None:
            return
        of_values = stored.type if indexed.key is None else value_type(stored.type)
        if of_values is None or (format_of(self._file.file_name) == "orc" and _has_chars(stored.type)):
            return  # CHAR is read without the padding that the file has
        name = str(IndexedColumn(stored.name, indexed.key))
        for kind, place in self._container.places.get(name, {}).items():
            body = None if place.start is None else self._container.body(place)
            if (index := open_index(kind, body, of_values, self._path)) is not None:
                yield index

    def _stored(self, wanted: DataField) -> DataField | None:
        """Return the column in the file; None if its values are cast when read."""
        stored = self._file_schema.by_id.get(wanted.id)
        if stored is None or not same_ignoring_nullability(stored.type, wanted.type):
            return None
        return stored

    @property
    def path(self) -> str:
        return self._path


def _has_chars(data_type: DataType) -> bool:
    parts = (data_type.key, data_type.value) if isinstance(data_type, MapType) else (data_type,)
    return any(part.root is Root.CHAR for part in parts)
