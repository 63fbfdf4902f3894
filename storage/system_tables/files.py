"""`t$files`: the live data files of a snapshot, with what manifests know of each. `t$file_key_ranges`: a part of it.

Source: Java `table/system/FilesTable.java`, `FileKeyRangesTable.java`, `stats/SimpleStatsEvolution.java`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from storage.binary_row import decode_rows_of_files
from storage.errors import BadInput
from storage.files.bucket_directory import bucket_directory, data_file_path
from storage.files.casting import cast
from storage.files.data_file import DataFileMeta
from storage.manifests.manifest_entry import ManifestEntry
from storage.manifests.snapshot_files import live_entries
from storage.paths import format_of
from storage.read.expired_snapshots import raise_if_snapshot_expired
from storage.read.scan import made_since
from storage.schema.table_schema import TableSchema
from storage.snapshots.snapshot import Snapshot
from storage.system_tables.base import ReadAt
from storage.system_tables.metadata_table import TIME, Columns, MetadataTable, bigint, text
from storage.system_tables.row_text import joined, object_row_texts, object_texts, sql_row_texts
from storage.table import TableContext
from storage.types import DataField, arrow_type, same_ignoring_nullability


def files_at(
    context: TableContext, snapshot: Snapshot | None, files_since_ms: int | None = None
) -> list[ManifestEntry]:
    """In the order of partitions and buckets; none for a table without snapshots."""
    if snapshot is None:
        return []
    keep = None if files_since_ms is None else made_since(files_since_ms)
    with raise_if_snapshot_expired(context, snapshot.id):
        entries = live_entries(context, snapshot, keep_entry=keep)
    return sorted(entries, key=lambda entry: (entry.partition, entry.bucket))


_BUCKET: Final = pa.field("bucket", pa.int32(), nullable=False)
_LEVEL: Final = pa.field("level", pa.int32(), nullable=False)


class Files(MetadataTable[ManifestEntry]):
    """Of buckets that can be read: rows whose bucket was postponed are in `t$buckets` only."""

    name = "files"
    fields: ClassVar[Sequence[pa.Field]] = (
        text("partition"),
        _BUCKET,
        text("file_path", nullable=False),
        text("file_format", nullable=False),
        bigint("schema_id", nullable=False),
        _LEVEL,
        bigint("record_count", nullable=False),
        bigint("file_size_in_bytes", nullable=False),
        text("min_key"),
        text("max_key"),
        text("null_value_counts", nullable=False),
        text("min_value_stats", nullable=False),
        text("max_value_stats", nullable=False),
        bigint("min_sequence_number"),
        bigint("max_sequence_number"),
        pa.field("creation_time", TIME),
        bigint("deleteRowCount"),
        text("file_source"),
        bigint("first_row_id"),
        pa.field("write_cols", pa.list_(pa.string())),
    )

    def items(self, at: ReadAt) -> Sequence[ManifestEntry]:
        return [entry for entry in files_at(at.context, at.snapshot, at.files_since_ms) if entry.bucket >= 0]

    def columns(self, items: Sequence[ManifestEntry], context: TableContext) -> Columns:
        files = [entry.file for entry in items]
        stats = FileStatisticsTexts(context, files)
        return {
            "partition": lambda: sql_row_texts(
                [entry.partition for entry in items], context.schema.partition_fields, context.name
            ),
            "bucket": lambda: [entry.bucket for entry in items],
            "file_path": lambda: _paths(items, context),
            "file_format": lambda: [format_of(file.file_name) for file in files],
            "schema_id": lambda: [file.schema_id for file in files],
            "level": lambda: [file.level for file in files],
            "record_count": lambda: [file.row_count for file in files],
            "file_size_in_bytes": lambda: [file.file_size for file in files],
            "min_key": lambda: _keys(context, files, lambda file: file.min_key),
            "max_key": lambda: _keys(context, files, lambda file: file.max_key),
            "null_value_counts": stats.null_counts,
            "min_value_stats": stats.minima,
            "max_value_stats": stats.maxima,
            "min_sequence_number": lambda: [file.min_sequence_number for file in files],
            "max_sequence_number": lambda: [file.max_sequence_number for file in files],
            "creation_time": lambda: [file.creation_time_ms for file in files],
            "deleteRowCount": lambda: [file.delete_row_count for file in files],
            "file_source": lambda: [None if f.file_source is None else f.file_source.name for f in files],
            "first_row_id": lambda: [file.first_row_id for file in files],
            "write_cols": lambda: [None if f.write_columns is None else list(f.write_columns) for f in files],
        }


_KEY_RANGE_COLUMNS: Final = (
    *("partition", "bucket", "file_path", "file_format", "schema_id", "level", "record_count"),
    *("file_size_in_bytes", "min_key", "max_key", "first_row_id"),
)


class FileKeyRanges(Files):
    name = "file_key_ranges"
    fields: ClassVar[Sequence[pa.Field]] = tuple(f for f in Files.fields if f.name in _KEY_RANGE_COLUMNS)


def _paths(entries: Sequence[ManifestEntry], context: TableContext) -> list[str]:
    @cache
    def directory(partition: bytes, bucket: int) -> str:
        return bucket_directory(context, partition, bucket)

    return [data_file_path(directory(entry.partition, entry.bucket), entry.file) for entry in entries]


def _keys(context: TableContext, files: Sequence[DataFileMeta], key: Callable[[DataFileMeta], bytes]) -> pa.Array:
    numbers: dict[int, list[int]] = defaultdict(list)
    for number, file in enumerate(files):
        numbers[file.schema_id].append(number)
    parts = []
    for schema_id, of_schema in numbers.items():
        schema = _schema(context, schema_id)
        fields = schema.select(schema.trimmed_primary_keys) or schema.fields
        parts.append(object_row_texts([key(files[i]) for i in of_schema], fields, context.name))
    return _in_order(parts, list(numbers.values()), pa.string())


def _schema(context: TableContext, schema_id: int) -> TableSchema:
    return context.schema if schema_id == context.schema.id else context.schemas.get(schema_id)


def _in_order(parts: Sequence[pa.Array], numbers: Sequence[Sequence[int]], kind: pa.DataType) -> pa.Array:
    """numbers: of each part, where its values belong."""
    if not parts:
        return pa.nulls(0, kind)
    places = np.argsort(np.concatenate([np.asarray(of_part, np.int64) for of_part in numbers]))
    return pa.concat_arrays(parts).take(pa.array(places))


@dataclass(frozen=True, slots=True)
class FileStatisticsTexts:
    """`{column=value, …}` of each file: the table's columns in alphabetical order, under their names of today.

    As stored: cut texts are not widened as a scan does it.
    """

    context: TableContext
    files: Sequence[DataFileMeta]

    def minima(self) -> pa.Array:
        return self._texts(lambda group, field: group.bound_texts(field, is_maximum=False))

    def maxima(self) -> pa.Array:
        return self._texts(lambda group, field: group.bound_texts(field, is_maximum=True))

    def null_counts(self) -> pa.Array:
        return self._texts(lambda group, field: group.null_count_texts(field))

    def _texts(self, text_of: Callable[[_SameColumns, DataField], pa.Array]) -> pa.Array:
        numbers: dict[tuple[int, tuple[str, ...] | None, tuple[str, ...] | None], list[int]] = defaultdict(list)
        for number, file in enumerate(self.files):
            numbers[file.schema_id, file.value_stats_columns, file.write_columns].append(number)
        fields = sorted(self.context.schema.fields, key=lambda field: field.name)
        names = [f"{field.name}=" for field in fields]
        parts = []
        for of_group in numbers.values():
            group = _SameColumns(self.context, [self.files[i] for i in of_group])
            parts.append(joined([text_of(group, field) for field in fields], names, "{", "}"))
        return _in_order(parts, list(numbers.values()), pa.string())


class _SameColumns:
    """Files of one schema whose statistics are of the same columns."""

    def __init__(self, context: TableContext, files: Sequence[DataFileMeta]) -> None:
        first = files[0]
        schema = _schema(context, first.schema_id)
        self._files = files
        self._where = context.name
        written = schema.names if first.write_columns is None else first.write_columns
        self._written = {schema.by_name[name].id for name in written if name in schema.by_name}
        names = written if first.value_stats_columns is None else first.value_stats_columns
        self._fields = [schema.by_name[name] for name in names if name in schema.by_name]

    def bound_texts(self, wanted: DataField, *, is_maximum: bool) -> pa.Array:
        position = self._position(wanted)
        if position is None:
            return pa.nulls(len(self._files), pa.string())
        stored = self._fields[position].type
        column = (self._maxima if is_maximum else self._minima)[position]
        if not same_ignoring_nullability(stored, wanted.type):
            try:
                column = cast(column, stored, wanted.type)
            except BadInput:  # a text that is no value of the new type: unknown
                column = pa.nulls(len(column), arrow_type(wanted.type))
        return object_texts(column, wanted.type)

    def null_count_texts(self, wanted: DataField) -> pa.Array:
        """A column that the files don't have is null in all of their rows."""
        position = self._position(wanted)
        if position is not None:
            counts = [file.value_stats.null_counts for file in self._files]
            values = [of_file[position] if position < len(of_file) else None for of_file in counts]
        else:
            values = [None if wanted.id in self._written else file.row_count for file in self._files]
        return pa.array(values, pa.int64()).cast(pa.string())

    def _position(self, wanted: DataField) -> int | None:
        return next((i for i, field in enumerate(self._fields) if field.id == wanted.id), None)

    @cached_property
    def _minima(self) -> list[pa.Array]:
        return self._columns([file.value_stats.min_values for file in self._files])

    @cached_property
    def _maxima(self) -> list[pa.Array]:
        return self._columns([file.value_stats.max_values for file in self._files])

    def _columns(self, rows: Sequence[bytes]) -> list[pa.Array]:
        """Null for rows without fields, as statistics that were dropped are."""
        present = [i for i, row in enumerate(rows) if row[:4] != bytes(4)]
        types = [field.type for field in self._fields]
        where = [self._where] * len(present)
        columns = decode_rows_of_files([rows[i] for i in present], types, where, "statistics", out_of_range="null")
        if len(present) == len(rows):
            return columns
        place = {number: i for i, number in enumerate(present)}
        places = pa.array([place.get(i) for i in range(len(rows))], pa.int64())
        return [column.take(places) for column in columns]
