"""Returns the statistics of manifests as columns of the current schema, before files are opened.

Files may have older schemas, so their columns are found by field id. If the type of a column has changed, its bounds
are used only if the cast keeps the order of values, and its null counts only if the cast makes no nulls.

Source: Java `stats/SimpleStatsEvolution.java`, `stats/SimpleStatsEvolutions.java`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.files.casting import cast, keeps_order, may_make_nulls
from tidelake.storage.files.data_file import DataFileMeta, SimpleStats
from tidelake.storage.files.stats_collection import Bounds, ColumnBounds, without_nan
from tidelake.storage.model.binary_row import decode_rows_of_files
from tidelake.storage.model.schema.table_schema import TRACKING_FIELDS, TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, Root, arrow_type


def value_bounds(context: TableContext, files: Sequence[DataFileMeta]) -> Bounds:
    """Return the bounds of the table's columns in these files, by name.

    context: the table with the schema to read with.
    """
    numbers: dict[tuple[int, tuple[str, ...] | None, tuple[str, ...] | None], list[int]] = defaultdict(list)
    for number, file in enumerate(files):
        numbers[file.schema_id, file.value_stats_columns, file.write_columns].append(number)
    groups = [_SameSchemaFiles(context, [files[i] for i in of_group]) for of_group in numbers.values()]
    # The position of each given file in the order of the groups.
    places = pa.array(np.argsort([i for of_group in numbers.values() for i in of_group]), pa.int64())
    rows = pa.array([file.row_count for file in files], pa.int64())

    def bounds(name: str) -> ColumnBounds:
        wanted = context.schema.by_name[name]
        found = [group.bounds(wanted) for group in groups]
        if not found:
            return ColumnBounds.unknown(arrow_type(wanted.type), rows)
        minimum, maximum, nulls = (pa.concat_arrays(parts).take(places) for parts in zip(*found, strict=True))
        return ColumnBounds(minimum, maximum, nulls, rows)

    return cache(bounds)


def key_bounds(context: TableContext, files: Sequence[DataFileMeta]) -> Bounds:
    """Return the bounds of the primary key's columns, by name. They apply to all versions of a key."""
    fields = context.schema.select(context.schema.trimmed_primary_keys)
    paths = [file.file_name for file in files]
    statistics = key_statistics(context, files)

    def bounds(name: str) -> ColumnBounds:
        if name != fields[0].name:
            return statistics(name)
        # The first key column has exact bounds: its values in the first and the last key.
        minimum = _decoded([file.min_key for file in files], paths, fields)[0]
        maximum = _decoded([file.max_key for file in files], paths, fields)[0]
        return replace(statistics(name), minimum=minimum, maximum=maximum)

    return cache(bounds)


def key_statistics(context: TableContext, files: Sequence[DataFileMeta]) -> Bounds:
    """Like `key_bounds`, but only from the statistics of keys."""
    names = context.schema.trimmed_primary_keys
    rows = pa.array([file.row_count for file in files], pa.int64())
    stats = _Stats([file.key_stats for file in files], [file.file_name for file in files], context.schema.select(names))

    def bounds(name: str) -> ColumnBounds:
        position = names.index(name)
        return ColumnBounds(stats.minimum[position], stats.maximum[position], stats.null_counts(position), rows)

    return cache(bounds)


class _SameSchemaFiles:
    """Files of one schema with statistics of the same columns."""

    def __init__(self, context: TableContext, files: Sequence[DataFileMeta]) -> None:
        first = files[0]
        is_current = first.schema_id == context.schema.id
        self._schema: TableSchema = context.schema if is_current else context.schemas.get(first.schema_id)
        self._has_write_columns = first.write_columns is not None
        written = first.write_columns if first.write_columns is not None else self._schema.names
        names = first.value_stats_columns if first.value_stats_columns is not None else written
        by_name = {**TRACKING_FIELDS, **self._schema.by_name}
        self._fields = [f for name in names if (f := by_name.get(name)) is not None]
        self._row_counts = [file.row_count for file in files]
        self._stats = _Stats([file.value_stats for file in files], [file.file_name for file in files], self._fields)

    def bounds(self, wanted: DataField) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Return (minimum, maximum, null count) of each file, for a column of the current schema."""
        kind = arrow_type(wanted.type)
        nothing = pa.nulls(len(self._row_counts), kind)
        position = next((i for i, f in enumerate(self._fields) if f.id == wanted.id), None)
        if position is None:
            is_newer = wanted.id not in self._schema.by_id and not self._has_write_columns
            nulls = self._row_counts if is_newer else [None] * len(self._row_counts)
            return nothing, nothing, pa.array(nulls, pa.int64())
        stored = self._fields[position].type
        nulls_known = self._stats.null_counts(position)
        if may_make_nulls(stored, wanted.type):
            are_all = pc.equal(nulls_known, pa.array(self._row_counts, pa.int64()))
            nulls_known = pc.if_else(are_all, nulls_known, pa.scalar(None, pa.int64()))
        if not keeps_order(stored, wanted.type):
            return nothing, nothing, nulls_known
        minimum, maximum = self._stats.minimum[position], self._stats.maximum[position]
        return cast(minimum, stored, wanted.type), cast(maximum, stored, wanted.type), nulls_known


@dataclass
class _Stats:
    """The statistics of several files, for the same columns. They are decoded once, when they are first needed."""

    stats: Sequence[SimpleStats]
    paths: Sequence[str]
    fields: Sequence[DataField]

    @cached_property
    def minimum(self) -> list[pa.Array]:
        """The lower bounds by column. They are unknown for CHAR.

        The bounds of CHAR in Java's ORC files are texts padded with blanks, but the values are read without these.
        """
        columns = _decoded([s.min_values for s in self.stats], self.paths, self.fields)
        is_char = [f.type.root is Root.CHAR for f in self.fields]
        return [pa.nulls(len(c), c.type) if char else c for c, char in zip(columns, is_char, strict=True)]

    @cached_property
    def maximum(self) -> list[pa.Array]:
        columns = _decoded([s.max_values for s in self.stats], self.paths, self.fields)
        return [_corrected_java_maximum(c) if pa.types.is_string(c.type) else c for c in columns]

    def null_counts(self, position: int) -> pa.Array:
        counts = [s.null_counts for s in self.stats]
        return pa.array([c[position] if position < len(c) else None for c in counts], pa.int64())


def _corrected_java_maximum(maximum: pa.Array) -> pa.Array:
    """Correct upper bounds of Java that may be too low.

    Java truncates long texts, and increments the last character. After U+D7FF comes a lone surrogate, which Java writes
    as `?`. Such a bound is less than the texts that it should bound. So a final `?` is replaced by the next valid
    character.
    """
    return pc.replace_substring_regex(maximum, r"\?$", "\ue000")


def _decoded(rows: Sequence[bytes], paths: Sequence[str], fields: Sequence[DataField]) -> list[pa.Array]:
    """Decode rows to one column per field. Rows without fields become null: they are dropped statistics.

    Raises CorruptFile.
    """
    present = [i for i, row in enumerate(rows) if row[:4] != bytes(4)]
    types = [f.type for f in fields]
    present_rows, files = [rows[i] for i in present], [paths[i] for i in present]
    columns = decode_rows_of_files(present_rows, types, files, "statistics", out_of_range="null")
    columns = [without_nan(column) for column in columns]
    if len(present) == len(rows):
        return columns
    place = {number: i for i, number in enumerate(present)}
    places = pa.array([place.get(i) for i in range(len(rows))], pa.int64())
    return [column.take(places) for column in columns]
