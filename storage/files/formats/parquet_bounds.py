"""Reads smallest and largest values from Parquet footers, where the writer has stored them.

Source: Java `format/parquet/ParquetSimpleStatsExtractor.java`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelake.errors import UnsupportedFeature
from tidelake.storage.files.formats.arrow_conversion import INT96, to_arrow_type
from tidelake.storage.files.formats.file_field_ids import leaf_numbers
from tidelake.storage.files.stats_collection import (
    ColumnBounds,
    ColumnMinMax,
    MinMax,
    has_nan,
    min_max_of,
    union_of,
    without_nan,
)
from tidelake.storage.model.types import BINARY_ROOTS, STRING_ROOTS, DataField, DataType

_FOOTER_TEXT_BYTES: Final = 4096  # Arrow does not store longer values in the footer
_FEW_ROWS: Final = 4096  # for so few rows it is faster to compute the bounds than to decode those of the footer


class ChunkMinMax:
    """Collects the ColumnMinMax of a file that is being written.

    The bounds come from the footer. If the footer has none, they are computed from the rows.

    length: how many characters or bytes the bounds of texts and bytes need; None means the whole values.
    """

    def __init__(self, fields: Sequence[DataField], names: Collection[str], length: int | None = None) -> None:
        self._fields = [f for f in fields if f.name in names]
        self._length = length
        # column -> the row groups whose bounds are computed
        self._known_groups: dict[str, set[int]] = {f.name: set() for f in self._fields}
        # column -> the computed bounds of all row groups together, because values may be large
        self._min_max: dict[str, MinMax | None] = {}
        self._row_groups = 0

    def add_row_group(self, table: pa.Table, *, lacks_footer: bool = False) -> None:
        """Add a row group.

        table: the rows of the row group, in their in-memory form.
        lacks_footer: whether the footer will have no bounds.
        """
        for f in self._fields:
            column = table.column(f.name)
            if lacks_footer or table.num_rows <= _FEW_ROWS or _footer_lacks_bounds(f.type, column):
                self._known_groups[f.name].add(self._row_groups)
                known = (self._min_max.get(f.name), min_max_of(_shortened(column, self._length)))
                self._min_max[f.name] = union_of(min_max for min_max in known if min_max is not None)
        self._row_groups += 1

    def of_file(self, metadata: pq.FileMetaData) -> ColumnMinMax:
        """Return the bounds of the file.

        metadata: the footer of the finished file.
        """
        if all(len(groups) == self._row_groups for groups in self._known_groups.values()):  # true for small files
            return {name: min_max for name, min_max in self._min_max.items() if min_max is not None}
        stored = metadata.schema.to_arrow_schema()
        leaves = leaf_numbers(stored)
        found = {
            f.name: self._of_column(metadata, leaves[f.name][0], stored.field(f.name).type, f) for f in self._fields
        }
        return {name: min_max for name, min_max in found.items() if min_max is not None}

    def _of_column(self, metadata: pq.FileMetaData, leaf: int, stored: pa.DataType, field: DataField) -> MinMax | None:
        min_max: list[MinMax | None] = [self._min_max.get(field.name)]
        known: ColumnBounds | None = None
        for i in range(metadata.num_row_groups):
            if i in self._known_groups[field.name]:
                continue
            known = known or row_group_bounds(metadata, leaf, stored, field.type)
            if known.null_count[i] == known.row_count[i]:
                min_max.append(None)
            elif known.minimum[i].is_valid and known.maximum[i].is_valid:
                min_max.append(MinMax(known.minimum[i], known.maximum[i]))
            else:
                return None
        return union_of(found for found in min_max if found is not None)


def _footer_lacks_bounds(data_type: DataType, column: pa.ChunkedArray) -> bool:
    """Return whether the footer has no bounds, or ignores a NaN, which is the largest value in Java."""
    if pa.types.is_floating(column.type):
        return has_nan(column)
    if pa.types.is_timestamp(column.type):
        return bool(column.type.unit == "ns")
    if data_type.root not in STRING_ROOTS | BINARY_ROOTS:
        return False
    return any(_longest(chunk) > _FOOTER_TEXT_BYTES for chunk in column.chunks)


def _shortened(column: pa.ChunkedArray, length: int | None) -> pa.ChunkedArray:
    """Truncate long values: bounds need only their beginning."""
    if length is None or not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return column
    if not any(_longest(chunk) > max(_FOOTER_TEXT_BYTES, 4 * length) for chunk in column.chunks):
        return column
    cut = pc.utf8_slice_codeunits if pa.types.is_string(column.type) else pc.binary_slice
    return cut(column, 0, length)


def _longest(column: pa.Array) -> int:
    """Return the size of the longest value in bytes; 0 if all values together are at most _FOOTER_TEXT_BYTES."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    if not len(column) or offsets[-1] - offsets[0] <= _FOOTER_TEXT_BYTES:
        return 0
    return int(np.diff(offsets).max())


def row_group_bounds(metadata: pq.FileMetaData, leaf: int, stored: pa.DataType, data_type: DataType) -> ColumnBounds:
    """Return the bounds of one column of an atomic type in the row groups of a file.

    leaf: the number of the column's leaf.
    stored: the type with which Arrow reads the column.
    """
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    rows = pa.array([group.num_rows for group in groups], pa.int64())
    statistics = [group.column(leaf).statistics for group in groups]
    nulls = [s.null_count if s is not None and s.has_null_count else None for s in statistics]
    known = [s if s is not None and s.has_min_max and stored != INT96 else None for s in statistics]
    try:
        minimum = to_arrow_type(_array_of([s and s.min_raw for s in known], stored), data_type)
        maximum = to_arrow_type(_array_of([s and s.max_raw for s in known], stored), data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnsupportedFeature):
        return ColumnBounds.unknown(pa.null(), rows)
    return ColumnBounds(without_nan(minimum), without_nan(maximum), pa.array(nulls, pa.int64()), rows)


def _array_of(raw: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Make an array of values from the footer.

    raw: the values as stored in the footer (integers, floats, bytes), or None if unknown.
    """
    if pa.types.is_decimal(kind):
        return pa.array([None if v is None else _decimal(v, kind.scale) for v in raw], kind)
    if pa.types.is_temporal(kind):
        return pa.array(raw, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    return pa.array(raw, kind)


def _decimal(unscaled: int | bytes, scale: int) -> Decimal:
    number = int.from_bytes(unscaled, "big", signed=True) if isinstance(unscaled, bytes) else unscaled
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
