"""Columns of one type from many Avro records. Numbers are arrays, all other values are positions in a buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.avro.value_reader import read_value
from tidelake.ingest.formats.avro.writer_schema import AvroType

Mask: TypeAlias = NDArray[np.bool_]
Places: TypeAlias = NDArray[np.int64]

_ARROW_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}


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

    @staticmethod
    def joined(parts: Sequence[DecodedColumn]) -> DecodedColumn:
        """Return the concatenated columns. parts: at least one, all of one type, without fields or items."""
        first = parts[0]
        values = None if first.values is None else np.concatenate([part.values for part in parts])
        return DecodedColumn(
            first.type,
            first.octets,
            np.concatenate([part.valid for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.ends for part in parts]),
            values,
        )

    def to_arrow(self) -> pa.Array | None:
        """Return an array of booleans, int64, floats, doubles, strings or binary; None for any other type.

        Raises an error of pyarrow for a text that is not UTF-8.
        """
        if self.type.kind == "null":
            return pa.nulls(len(self))
        if self.values is None or self.type.kind == "array":
            return None
        all_valid = bool(self.valid.all())
        if self.type.kind in _ARROW_TYPES:
            numbers = self.values
            if not all_valid:
                numbers = np.zeros(len(self), self.values.dtype)
                numbers[self.valid] = self.values
            return pa.array(numbers, _ARROW_TYPES[self.type.kind], mask=None if all_valid else ~self.valid)
        return self._octets_to_arrow(self.values, None if all_valid else self.valid)

    def _octets_to_arrow(self, lengths: NDArray[np.int64], valid: Mask | None) -> pa.Array:
        positions = np.zeros(len(self) + 1, np.int64)
        if valid is None:
            positions[1:] = lengths
        else:
            positions[1:][valid] = lengths
        np.cumsum(positions, out=positions)
        if positions[-1] >= 1 << 31:
            raise ValueError("more bytes than one array holds")
        places = _ranges(self.ends - lengths, lengths)
        kind = pa.string() if self.type.kind == "string" else pa.binary()
        validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        buffers = [validity, pa.py_buffer(positions.astype(np.int32)), pa.py_buffer(self.octets[places])]
        column = pa.Array.from_buffers(kind, len(self), buffers)
        column.validate(full=True)  # raises for a text that is not UTF-8
        return column

    def to_json(self) -> list[bytes | None]:
        """Return each value as raw JSON; None for null."""
        raws: list[bytes | None] = [None] * len(self)
        octets = self.octets
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        for row, (start, end) in zip(np.flatnonzero(self.valid).tolist(), spans, strict=True):
            raws[row] = read_value(octets[start:end].tobytes(), self.type)
        return raws


def _ranges(begins: Places, lengths: NDArray[np.int64]) -> Places:
    """Return the concatenated ranges of integers. begins: the first integer of each range. lengths: their lengths."""
    places: Places = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    places += np.arange(len(places))
    return places
