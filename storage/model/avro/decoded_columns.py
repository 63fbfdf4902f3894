"""Columns of one type from many Avro records. Numbers are arrays, all other values are positions in a buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.model.avro.avro_type import NULL, AvroType

Mask: TypeAlias = NDArray[np.bool_]
Places: TypeAlias = NDArray[np.int64]

_ARROW_TYPES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}
_BYTES_PER_LENGTH_MIN: Final = 65_536  # with fewer bytes, copying each length by itself is slower


@dataclass(frozen=True, slots=True, eq=False)
class DecodedColumn:
    """A column of n values, of which m are not null.

    type: the type of values that are not null.
    octets: the buffer with the values in Avro's binary form.
    valid (n,): True for values that are not null.
    starts (m,): where each value begins in the buffer.
    ends (m,): where each value ends in the buffer.
    values (m,): booleans or numbers. For texts and bytes their lengths: the text is the last part of the value. For
        arrays their numbers of items.
    fields: for records, field name to a column of m values.
    items: for arrays of plain values, the concatenated items of all arrays.
    """

    type: AvroType
    octets: NDArray[np.uint8]
    valid: Mask
    starts: Places
    ends: Places
    values: NDArray[Any] | None = None
    fields: Mapping[str, DecodedColumn] = field(default_factory=dict)
    items: DecodedColumn | None = None

    def __len__(self) -> int:
        return len(self.valid)

    def take(self, rows: Places) -> DecodedColumn:
        """Return the column of these rows."""
        valid = self.valid[rows]
        dense = rows if self.valid.all() else (np.cumsum(self.valid) - 1)[rows[valid]]
        items = None
        if self.items is not None and self.values is not None:
            counts = self.values[dense]
            items = self.items.take(_ranges((np.cumsum(self.values) - self.values)[dense], counts))
        return DecodedColumn(
            self.type,
            self.octets,
            valid,
            self.starts[dense],
            self.ends[dense],
            None if self.values is None else self.values[dense],
            {name: inner.take(dense) for name, inner in self.fields.items()},
            items,
        )

    def inner(self, name: str) -> DecodedColumn | None:
        """Return a field of this column of records, null where the record is null; None if there is no such field."""
        found = self.fields.get(name)
        if found is None or len(found) == len(self):
            return found
        valid = self.valid.copy()
        valid[valid] = found.valid
        return replace(found, valid=valid)

    def to_arrow(self) -> pa.Array | None:
        """Return an array of booleans, int64, floats, doubles, strings or binary; None for any other type.

        Raises an error of pyarrow for a text that is not UTF-8.
        """
        if self.type.kind == NULL:
            return pa.nulls(len(self))
        if self.values is None or self.type.kind == "array":
            return None
        all_valid = len(self.starts) == len(self.valid)
        if self.type.kind in _ARROW_TYPES:
            numbers = self.values
            if not all_valid:
                numbers = np.zeros(len(self), self.values.dtype)
                numbers[self.valid] = self.values
            return pa.array(numbers, _ARROW_TYPES[self.type.kind], mask=None if all_valid else ~self.valid)
        return self._octets_to_arrow(self.values, None if all_valid else self.valid)

    def _octets_to_arrow(self, lengths: NDArray[np.int64], valid: Mask | None) -> pa.Array:
        positions = self._positions(lengths)
        kind = pa.string() if self.type.kind == "string" else pa.binary()
        validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        content = _copied(self.octets, self.ends - lengths, lengths)
        column = pa.Array.from_buffers(kind, len(self), [validity, pa.py_buffer(positions), pa.py_buffer(content)])
        column.validate(full=True)  # raises for a text that is not UTF-8
        return column

    def lists_of(self, elements: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return this column of arrays as lists of a type. elements: its items, converted."""
        assert self.values is not None
        mask = None if len(self.starts) == len(self.valid) else pa.array(~self.valid)
        return pa.ListArray.from_arrays(pa.array(self._positions(self.values)), elements, type=kind, mask=mask)

    def _positions(self, lengths: NDArray[np.int64]) -> NDArray[np.int32]:
        """(n + 1,): where each value begins if all are concatenated. lengths (m,)."""
        positions = np.zeros(len(self) + 1, np.int64)
        positions[1:][self.valid] = lengths
        np.cumsum(positions, out=positions)
        if positions[-1] >= 1 << 31:
            raise ValueError("more bytes than one array holds")
        return positions.astype(np.int32)


def _ranges(begins: Places, lengths: NDArray[np.int64]) -> Places:
    """Return the concatenated ranges of integers. begins: the first integer of each range. lengths: their lengths."""
    places: Places = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    places += np.arange(len(places))
    return places


def _copied(octets: NDArray[np.uint8], begins: Places, lengths: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Concatenate ranges of bytes. With few lengths and many bytes, all ranges of one length are copied at once."""
    total = int(lengths.sum())
    shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
    if (longest - shortest) * _BYTES_PER_LENGTH_MIN > total:
        return octets[_ranges(begins, lengths)]
    if shortest == longest:
        if not longest:
            return np.zeros(0, np.uint8)
        return np.lib.stride_tricks.sliding_window_view(octets, longest)[begins].reshape(-1)
    targets = np.cumsum(lengths) - lengths
    result = np.zeros(total, np.uint8)
    for length in range(max(shortest, 1), longest + 1):
        rows = np.flatnonzero(lengths == length)
        if len(rows):
            source = np.lib.stride_tricks.sliding_window_view(octets, length)
            target = np.lib.stride_tricks.sliding_window_view(result, length, writeable=True)
            target[targets[rows]] = source[begins[rows]]
    return result
