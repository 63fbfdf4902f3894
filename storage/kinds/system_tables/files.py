"""`t$files`: the live data files of a snapshot, as manifests describe them. `t$file_key_ranges`: some of its columns.

Source: Java `table/system/FilesTable.java`, `FileKeyRangesTable.java`, `stats/SimpleStatsEvolution.java`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.commit.manifests.entry_columns import columns_of_entries, live_entry_columns
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.files.bucket_directory import partition_directories
from tidelake.storage.files.casting import cast
from tidelake.storage.files.data_file import epoch_ms_of_local
from tidelake.storage.kinds.system_tables.metadata_table import TIME, Columns, MetadataTable, bigint, text
from tidelake.storage.kinds.system_tables.row_text import joined, object_row_texts, object_texts, sql_row_texts
from tidelake.storage.kinds.system_tables.system_table import SystemTableRead
from tidelake.storage.model.binary_row import decode_rows_of_files
from tidelake.storage.model.format import FileSource
from tidelake.storage.model.paths import format_of
from tidelake.storage.model.schema.table_schema import TRACKING_FIELDS, TableSchema
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, arrow_type, same_ignoring_nullability
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired


def files_at(context: TableContext, snapshot: Snapshot | None) -> list[ManifestEntry]:
    """Return the live files of a snapshot, sorted by partition and bucket. A table without snapshots has no files."""
    if snapshot is None:
        return []
    with raise_if_snapshot_expired(context, snapshot.id):
        entries = live_entries(context, snapshot)
    return sorted(entries, key=lambda entry: entry.bucket_id)


_BUCKET: Final = pa.field("bucket", pa.int32(), nullable=False)
_LEVEL: Final = pa.field("level", pa.int32(), nullable=False)


class FilesTable(MetadataTable[Any]):
    """The files of the buckets that reads see. Files of the postpone bucket are counted in `t$buckets` only."""

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

    def items(self, at: SystemTableRead) -> pa.RecordBatch:
        """Return the live files in the columns of `ENTRY_SCHEMA`."""
        if at.snapshot is None:
            return columns_of_entries([])
        with raise_if_snapshot_expired(at.context, at.snapshot.id):
            files = live_entry_columns(at.context, at.snapshot)
        keep = pc.greater_equal(files.column("bucket"), 0)
        if at.files_since_ms is not None:
            keep = pc.and_(keep, _made_since(files, at.files_since_ms))
        return files.filter(keep)

    def selected(self, items: pa.RecordBatch, numbers: Sequence[int]) -> pa.RecordBatch:
        return items.take(pa.array(numbers, pa.int64()))

    def columns(self, items: pa.RecordBatch, context: TableContext) -> Columns:
        stats = FileStatisticsTexts(context, items)
        stored = {shown: partial(items.column, name) for shown, name in _AS_STORED.items()}
        return {
            **stored,
            "partition": lambda: sql_row_texts(
                items.column("partition").to_pylist(), context.schema.partition_fields, context.name
            ),
            "file_path": lambda: _paths(items, context),
            "file_format": lambda: _of_distinct(items.column("file_name"), format_of),
            "min_key": lambda: _keys(context, items, "min_key"),
            "max_key": lambda: _keys(context, items, "max_key"),
            "null_value_counts": stats.null_counts,
            "min_value_stats": stats.minima,
            "max_value_stats": stats.maxima,
            "creation_time": lambda: items.column("creation_time_ms").cast(TIME),
            "file_source": lambda: _of_distinct(items.column("file_source"), lambda number: FileSource(number).name),
        }


_AS_STORED: Final = {
    **{name: name for name in ("bucket", "schema_id", "level", "first_row_id")},
    **{name: name for name in ("min_sequence_number", "max_sequence_number")},
    "record_count": "row_count",
    "file_size_in_bytes": "file_size",
    "deleteRowCount": "delete_row_count",
    "write_cols": "write_columns",
}


def _made_since(files: pa.RecordBatch, time_ms: int) -> pa.Array:
    """Return whether each file was created at this time or later.

    Null, which a filter drops, without a creation time.
    """
    made = files.column("creation_time_ms")
    epochs = [None if ms is None else epoch_ms_of_local(ms) for ms in made.to_pylist()]
    return pc.greater_equal(pa.array(epochs, pa.int64()), time_ms)


def _of_distinct(column: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    encoded = column.dictionary_encode()
    return pa.array(map(text, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)


_KEY_RANGE_COLUMNS: Final = (
    *("partition", "bucket", "file_path", "file_format", "schema_id", "level", "record_count"),
    *("file_size_in_bytes", "min_key", "max_key", "first_row_id"),
)


class FileKeyRanges(FilesTable):
    name = "file_key_ranges"
    fields: ClassVar[Sequence[pa.Field]] = tuple(f for f in FilesTable.fields if f.name in _KEY_RANGE_COLUMNS)


def _paths(files: pa.RecordBatch, context: TableContext) -> pa.Array:
    partitions = files.column("partition").dictionary_encode()
    of_partitions = partition_directories(context, partitions.dictionary.to_pylist())

    @cache
    def directory(partition: int, bucket: int) -> str:
        return context.paths.bucket_directory(of_partitions[partition], bucket)

    buckets = files.column("bucket").to_pylist()
    directories = pa.array(map(directory, partitions.indices.to_pylist(), buckets), pa.string())
    inside = pc.binary_join_element_wise(directories, files.column("file_name"), "/")
    return pc.coalesce(files.column("external_path"), inside)


def _keys(context: TableContext, files: pa.RecordBatch, name: str) -> pa.Array:
    groups = _groups(files, ["schema_id"])
    parts = []
    for numbers in groups:
        of_schema = files.take(numbers)
        schema = _schema(context, of_schema.column("schema_id")[0].as_py())
        fields = schema.select(schema.trimmed_primary_keys) or schema.fields
        parts.append(object_row_texts(of_schema.column(name).to_pylist(), fields, context.name))
    return _in_order(parts, groups, pa.string())


def _groups(files: pa.RecordBatch, names: Sequence[str]) -> list[pa.Array]:
    """Group the files with equal values in these columns, and return the positions of the files of each group.

    names: columns of numbers or of lists of texts.
    """
    codes = np.zeros(len(files), np.int64)
    for name in names:
        column = files.column(name)
        if pa.types.is_list(column.type):
            column = _list_texts(column)
        encoded = column.dictionary_encode("encode")
        codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    return [pa.array(numbers) for numbers in np.split(order, edges)] if len(order) else []


def _list_texts(column: pa.Array) -> pa.Array:
    """Return one text per list of texts; different lists have different texts. Null stays null."""
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    return pa.array([None if names is None else json.dumps(names) for names in column.to_pylist()], pa.string())


def _schema(context: TableContext, schema_id: int) -> TableSchema:
    return context.schema if schema_id == context.schema.id else context.schemas.get(schema_id)


def _in_order(parts: Sequence[pa.Array], numbers: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """Concatenate the values of parts in the order of the files.

    numbers: the positions of the files of each part.
    """
    if not parts:
        return pa.nulls(0, kind)
    if len(parts) == 1:
        return parts[0]
    places = np.argsort(np.concatenate([of_part.to_numpy() for of_part in numbers]))
    return pa.concat_arrays(parts).take(pa.array(places))


@dataclass(frozen=True, slots=True)
class FileStatisticsTexts:
    """The statistics of each file as text, `{column=value, …}`.

    Columns have their current names and are sorted by them. Values are shown as stored: truncated bounds are not
    widened, as a scan widens them.
    """

    context: TableContext
    files: pa.RecordBatch

    def minima(self) -> pa.Array:
        return self._texts(lambda group, field: group.bound_texts(field, is_maximum=False))

    def maxima(self) -> pa.Array:
        return self._texts(lambda group, field: group.bound_texts(field, is_maximum=True))

    def null_counts(self) -> pa.Array:
        return self._texts(lambda group, field: group.null_count_texts(field))

    def _texts(self, text_of: Callable[[_SameColumns, DataField], pa.Array]) -> pa.Array:
        groups = _groups(self.files, ["schema_id", "value_stats_columns", "write_columns"])
        fields = sorted(self.context.schema.fields, key=lambda field: field.name)
        names = [f"{field.name}=" for field in fields]
        parts = []
        for numbers in groups:
            group = _SameColumns(self.context, self.files if len(groups) == 1 else self.files.take(numbers))
            parts.append(joined([text_of(group, field) for field in fields], names, "{", "}"))
        return _in_order(parts, groups, pa.string())


class _SameColumns:
    """Files of one schema with statistics of the same columns.

    files: at least one file.
    """

    def __init__(self, context: TableContext, files: pa.RecordBatch) -> None:
        schema_id, written, stats_columns = (
            files.column(name)[0].as_py() for name in ("schema_id", "write_columns", "value_stats_columns")
        )
        schema = _schema(context, schema_id)
        self._files = files
        self._where = context.name
        written = schema.names if written is None else written
        self._written = {schema.by_name[name].id for name in written if name in schema.by_name}
        names = written if stats_columns is None else stats_columns
        by_name = {**TRACKING_FIELDS, **schema.by_name}
        self._fields = [by_name[name] for name in names if name in by_name]

    def bound_texts(self, wanted: DataField, *, is_maximum: bool) -> pa.Array:
        position = self._position(wanted)
        if position is None:
            return pa.nulls(len(self._files), pa.string())
        stored = self._fields[position].type
        column = (self._maxima if is_maximum else self._minima)[position]
        if not same_ignoring_nullability(stored, wanted.type):
            try:
                column = cast(column, stored, wanted.type)
            except BadInput:  # a text that can't be converted to the new type: the bound is unknown
                column = pa.nulls(len(column), arrow_type(wanted.type))
        return object_texts(column, wanted.type)

    def null_count_texts(self, wanted: DataField) -> pa.Array:
        """Return the null counts of a column as text. A column that the files lack is null in all rows."""
        position = self._position(wanted)
        if position is not None:
            return self._null_counts(position).cast(pa.string())
        if wanted.id in self._written:
            return pa.nulls(len(self._files), pa.string())
        return self._files.column("row_count").cast(pa.string())

    def _null_counts(self, position: int) -> pa.Array:
        """Return the null counts at a position. Null for a file with fewer null counts."""
        counts = self._files.column("null_counts")
        lengths = pc.fill_null(pc.list_value_length(counts), 0).to_numpy()
        if len(lengths) and (lengths > position).all():
            return pc.list_element(counts, position)
        has = lengths > position
        found = np.full(len(has), -1)
        found[has] = np.arange(int(has.sum()))
        kept = pc.list_element(counts.filter(pa.array(has)), position) if has.any() else pa.nulls(0, pa.int64())
        return kept.take(pa.array(found, mask=~has))

    def _position(self, wanted: DataField) -> int | None:
        return next((i for i, field in enumerate(self._fields) if field.id == wanted.id), None)

    @cached_property
    def _minima(self) -> list[pa.Array]:
        return self._columns("min_values")

    @cached_property
    def _maxima(self) -> list[pa.Array]:
        return self._columns("max_values")

    def _columns(self, name: str) -> list[pa.Array]:
        """Decode the serialized rows of a column.

        Values are null for a row without fields, whose statistics were dropped.
        """
        rows = self._files.column(name).to_pylist()
        present = [i for i, row in enumerate(rows) if row[:4] != bytes(4)]
        types = [field.type for field in self._fields]
        where = [self._where] * len(present)
        columns = decode_rows_of_files([rows[i] for i in present], types, where, "statistics", out_of_range="null")
        if len(present) == len(rows):
            return columns
        place = {number: i for i, number in enumerate(present)}
        places = pa.array([place.get(i) for i in range(len(rows))], pa.int64())
        return [column.take(places) for column in columns]
