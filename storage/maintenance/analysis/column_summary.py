"""The statistics of one column: nulls, distinct values, minimum, maximum, lengths.

Up to 16,384 distinct values are counted exactly. Beyond that, their number is estimated from the smallest hashes
(mostly within 2 %).

Source: Java `stats/ColStats.java`; Spark `CommandUtils.computeColumnStats`, which counts for Paimon's own.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.storage.files.file_index.value_hashes import hash_numbers, hash_texts
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    INTEGER_ROOTS,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    AtomicType,
    DataField,
    Root,
)
from tidelake.storage.model.types.arrow_buffers import fixed_width_values
from tidelake.storage.model.types.partition_text import partition_text

_HASHES_KEPT: Final = 16_384
_FLOATS: Final = frozenset({Root.FLOAT, Root.DOUBLE})
_ORDERED: Final = frozenset(
    {*INTEGER_ROOTS, *TIMESTAMP_ROOTS, *_FLOATS, Root.BOOLEAN, Root.DECIMAL, Root.DATE, Root.TIME}
)
_BYTES: Final = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.FLOAT: 4,
    Root.DATE: 4,
    Root.TIME: 4,
    Root.BIGINT: 8,
    Root.DOUBLE: 8,
}
_SHORT_DECIMAL_DIGITS: Final = 18


def can_be_summed_up(field: DataField) -> bool:
    return field.type.root in (*_ORDERED, *STRING_ROOTS, *BINARY_ROOTS) and isinstance(field.type, AtomicType)


class ColumnSummary:
    """The statistics of one column, updated batch by batch.

    field: a column for which `can_be_summed_up` is true.
    """

    def __init__(self, field: DataField) -> None:
        assert isinstance(field.type, AtomicType)
        self._field = field
        self._type = field.type
        self._rows = self._nulls = self._length_sum = self._length_max = 0
        self._hashes: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._is_estimate = False
        self._bounds: tuple[pa.Scalar, pa.Scalar] | None = None

    def add(self, column: pa.Array) -> None:
        values = column.drop_null()
        self._rows += len(column)
        self._nulls += len(column) - len(values)
        if not len(values):
            return
        self._add_hashes(_hashes(values, self._type))
        if self._type.root in _ORDERED:
            self._add_bounds(values)
        else:
            is_text = self._type.root in STRING_ROOTS
            lengths = pc.utf8_length(values) if is_text else pc.binary_length(values)
            self._length_sum += pc.sum(lengths).as_py()
            self._length_max = max(self._length_max, pc.max(lengths).as_py())

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as in Java's file; unknown values are left out."""
        statistics: dict[str, Any] = {"colId": self._field.id, "distinctCount": self._distinct_count()}
        if self._bounds is not None:
            statistics["min"], statistics["max"] = (self._text(bound) for bound in self._bounds)
        statistics["nullCount"] = self._nulls
        present = self._rows - self._nulls
        if self._type.root in _ORDERED:
            statistics["avgLen"] = statistics["maxLen"] = self._fixed_bytes()
        else:
            statistics["avgLen"] = -(-self._length_sum // present) if present else 0
            statistics["maxLen"] = self._length_max
        return statistics

    def _add_hashes(self, hashes: NDArray[np.uint64]) -> None:
        if self._is_estimate:
            hashes = hashes[hashes < self._hashes[-1]]
        known = np.union1d(self._hashes, hashes)
        self._is_estimate |= len(known) > _HASHES_KEPT
        self._hashes = known[:_HASHES_KEPT]

    def _distinct_count(self) -> int:
        """Return the number of distinct values.

        If it is estimated: the number of kept hashes, scaled from the part of the hash range that they fill to all of
        it.
        """
        if not self._is_estimate:
            return len(self._hashes)
        return round((len(self._hashes) - 1) * 2.0**64 / float(self._hashes[-1]))

    def _add_bounds(self, values: pa.Array) -> None:
        if self._type.root in _FLOATS:
            values = values.filter(pc.invert(pc.is_nan(values)))
            if not len(values):
                return
        if self._bounds is not None:
            values = pa.concat_arrays([values, pa.array([b.as_py() for b in self._bounds], values.type)])
        found = pc.min_max(values)
        self._bounds = found["min"], found["max"]

    def _text(self, bound: pa.Scalar) -> str:
        return partition_text(bound, self._type, legacy=self._type.root not in TIMESTAMP_ROOTS)

    def _fixed_bytes(self) -> int:
        if self._type.root is Root.DECIMAL:
            return 8 if self._type.precision <= _SHORT_DECIMAL_DIGITS else 16
        return _BYTES.get(self._type.root, 8)


def _hashes(values: pa.Array, data_type: AtomicType) -> NDArray[np.uint64]:
    root = data_type.root
    if root in STRING_ROOTS or root in BINARY_ROOTS:
        return hash_texts(values).view(np.uint64)
    if root is Root.DECIMAL:
        return hash_texts(values.cast(pa.string())).view(np.uint64)
    if root is Root.BOOLEAN:
        numbers = values.cast(pa.int64()).to_numpy()
    elif root in _FLOATS:
        doubles = values.cast(pa.float64()).to_numpy() + 0.0  # -0.0 becomes 0.0
        numbers = np.where(np.isnan(doubles), np.nan, doubles).view(np.int64)
    else:
        width = values.type.bit_width // 8
        numbers = fixed_width_values(values, f"i{width}").astype(np.int64)
    return hash_numbers(numbers).view(np.uint64)
