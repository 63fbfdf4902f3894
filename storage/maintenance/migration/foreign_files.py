"""Describes a data file of another writer: its columns, row count and bounds.

Source: Java `migrate/FileMetaUtils.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from tidelake.errors import BadInput, CorruptFile, UnsupportedFeature
from tidelake.storage.base.clock import local_time_as_utc_ms
from tidelake.storage.ddl.schema_creation import columns_from_arrow
from tidelake.storage.fileio.base import FileIO, FileStatus
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, SimpleStats
from tidelake.storage.files.formats import format_named
from tidelake.storage.files.formats.file_format import corruption
from tidelake.storage.files.stats_collection import without_nan
from tidelake.storage.model.binary_row import serialize_rows
from tidelake.storage.model.format import FileSource
from tidelake.storage.model.types import BINARY_ROOTS, CONSTRUCTED_ROOTS, STRING_ROOTS, DataField, Root, arrow_type

_READABLE = ("parquet", "orc")
_WITHOUT_BOUNDS = CONSTRUCTED_ROOTS | STRING_ROOTS | BINARY_ROOTS | {Root.VARIANT, Root.DECIMAL}


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A data file of another writer.

    columns: all nullable, with id 0.
    """

    path: str
    size: int
    row_count: int
    columns: tuple[DataField, ...]
    modified_ms: int = 0


def check_migratable_format(name: str) -> str:
    """Return the format. Raises UnsupportedFeature if its files can't be migrated."""
    if name == "avro":
        raise UnsupportedFeature(
            "migration of avro files",
            "Paimon's readers expect null at a fixed place in a union, and read times of other writers differently",
            "Read the rows and write them into a table",
        )
    if name not in _READABLE:
        raise UnsupportedFeature(
            f"migration of {name} files",
            "tables can't have files of this format",
            "Read the rows and write them into a table",
        )
    return name


def read_foreign_file(io: FileIO, path: str, status: FileStatus, format_name: str) -> ForeignFile:
    """Read the footer of a file. Raises CorruptFile if it isn't of the format, BadInput for types that Paimon lacks."""
    with io.open_input(path) as source, corruption(path, f"a file in {format_name}"):
        if format_name == "parquet":
            footer = pq.ParquetFile(source).metadata
            schema, rows = footer.schema.to_arrow_schema(), footer.num_rows
        else:
            file = orc.ORCFile(source)
            schema, rows = file.schema, file.nrows
    nullable = pa.schema([field.with_nullable(True).remove_metadata() for field in schema])
    try:
        columns = columns_from_arrow(nullable)
    except BadInput as e:
        raise BadInput(f"{path}: {e}") from e
    return ForeignFile(path, status.size_bytes, rows, tuple(columns), status.modified_ms)


def check_alike(one: ForeignFile, other: ForeignFile) -> None:
    """Raise BadInput, naming file and column, if two files of a table don't have the same columns, in any order."""
    expected = {column.name: str(column.type) for column in one.columns}
    found = {column.name: str(column.type) for column in other.columns}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise BadInput(
                f"column {name!r} is {expected.get(name, 'missing')} in {one.path} and {found.get(name, 'missing')} "
                f"in {other.path}; files of one table must have the same columns. Migrate them into separate tables, "
                "or rewrite one of the files"
            )


def meta_of(io: FileIO, file: ForeignFile, name: str, fields: Sequence[DataField], format_name: str) -> DataFileMeta:
    """Return the metadata that an append table would have written for the file under schema 0.

    fields: the table's columns that the file contains.

    Numbers, times and booleans of a Parquet file get bounds. The bounds of other types, and of ORC, are unknown without
    decoding the file.
    """
    stats, columns = _stats(io, file, [f for f in fields if f.type.root not in _WITHOUT_BOUNDS], format_name)
    return DataFileMeta(
        file_name=name,
        file_size=file.size,
        row_count=file.row_count,
        min_key=EMPTY_ROW,
        max_key=EMPTY_ROW,
        key_stats=EMPTY_STATS,
        value_stats=stats,
        min_sequence_number=0,
        max_sequence_number=0,
        schema_id=0,
        level=0,
        creation_time_ms=local_time_as_utc_ms(),
        delete_row_count=0,
        file_source=FileSource.APPEND,
        value_stats_columns=columns,
    )


def _stats(
    io: FileIO, file: ForeignFile, fields: Sequence[DataField], format_name: str
) -> tuple[SimpleStats, tuple[str, ...]]:
    nullable = [replace(f, type=replace(f.type, nullable=True)) for f in fields]
    found = format_named(format_name).chunk_bounds(io.open_input(file.path), file.path, nullable) if fields else None
    if found is None:
        return EMPTY_STATS, ()
    lowest, highest, nulls = [], [], []
    for field in nullable:
        known = found(field.name)
        if pc.sum(known.row_count).as_py() not in (file.row_count, None):
            raise CorruptFile(file.path, f"{file.row_count} rows", f"row groups of {pc.sum(known.row_count)}")
        lowest.append(_extreme(without_nan(known.minimum), known.null_count, known.row_count, "min", field))
        highest.append(_extreme(without_nan(known.maximum), known.null_count, known.row_count, "max", field))
        nulls.append(None if known.null_count.null_count else pc.sum(known.null_count).as_py() or 0)
    types = [field.type for field in nullable]
    (minimum,) = serialize_rows(lowest, types)
    (maximum,) = serialize_rows(highest, types)
    return SimpleStats(minimum, maximum, tuple(nulls)), tuple(field.name for field in fields)


def _extreme(bounds: pa.Array, nulls: pa.Array, rows: pa.Array, which: str, field: DataField) -> pa.Array:
    """Return the extreme value, (1,). It is unknown if it is unknown for a part that has values."""
    has_values = pc.fill_null(pc.less(nulls, rows), True)
    kind = arrow_type(field.type)
    if pa.types.is_floating(kind) or pc.any(pc.and_(has_values, bounds.is_null())).as_py():
        return pa.nulls(1, kind)  # bounds don't include NaN
    return pa.repeat(pc.min_max(bounds)[which], 1).cast(kind)
