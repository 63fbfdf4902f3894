"""Decodes BinaryRows to columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import CorruptFile, UnsupportedFeature
from tidelake.storage.model.binary_row.row_layout import (
    ARITY_PREFIX_BYTES,
    COMPACT_DECIMAL_PRECISION,
    COMPACT_TIMESTAMP_PRECISION,
    FIXED_WIDTH,
    array_header_bytes,
    element_width,
    header_words,
    ramp,
)
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    BYTES,
    INT,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
    arrow_type,
    timestamp_unit,
)
from tidelake.storage.model.types.arrow_buffers import PaddedBytes

Words: TypeAlias = NDArray[np.uint64]
Integers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
OutOfRange: TypeAlias = Literal["error", "null"]

_UNITS_PER_MILLI: Final = {"ms": 1, "us": 10**3, "ns": 10**6}


def decode_rows(
    rows: Sequence[bytes], types: Sequence[DataType], *, out_of_range: OutOfRange = "error"
) -> list[pa.Array]:
    """Decode rows in the serialized form of manifests. Returns one column per field, in its in-memory form.

    out_of_range: the treatment of timestamps that don't fit the Arrow unit of their type (nanoseconds reach from 1677
        to 2262): UnsupportedFeature, or null, which is right for bounds ("unknown").

    Raises ValueError if a row has another number of fields or is truncated; the caller names the file.
    """
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    ends = np.cumsum(lengths)
    starts = ends - lengths + ARITY_PREFIX_BYTES
    least = ARITY_PREFIX_BYTES + 8 * (header_words(len(types)) + len(types))
    if len(rows) and int(lengths.min()) < least:
        raise ValueError(f"a row of {len(types)} fields takes at least {least} bytes, found one of {lengths.min()}")
    data = PaddedBytes(np.frombuffer(b"".join(rows), np.uint8))
    arities = data.load(starts - ARITY_PREFIX_BYTES, ARITY_PREFIX_BYTES).astype(np.uint32).byteswap()
    if (arities != len(types)).any():
        raise ValueError(f"expected rows of {len(types)} fields, found one of {arities[arities != len(types)][0]}")
    decoder = _BinaryRowDecoder(data, out_of_range)
    return decoder.fields(types, _Ranges(starts, ends - starts, np.zeros(len(rows), np.bool_)))


def decode_rows_of_files(
    rows: Sequence[bytes],
    types: Sequence[DataType],
    files: Sequence[str],
    what: str,
    *,
    out_of_range: OutOfRange = "error",
) -> list[pa.Array]:
    """Decode as `decode_rows` does, for rows that manifests hold about data files.

    files: one file name per row.
    what: describes the rows in messages.

    Raises CorruptFile with the name of the first file whose row can't be decoded.
    """
    try:
        return decode_rows(rows, types, out_of_range=out_of_range)
    except ValueError:
        for row, file in zip(rows, files, strict=True):
            try:
                decode_rows([row], types, out_of_range=out_of_range)
            except ValueError as e:
                raise CorruptFile(file, f"{what} of {len(types)} columns in its manifest entry", str(e)) from None
        raise


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Byte ranges, one per value: of rows, arrays, strings, … For nulls, start and length have no meaning."""

    starts: Integers
    lengths: Integers
    nulls: Mask

    def check_lengths(self, least: Integers | int, what: str) -> None:
        """Raise ValueError if a range that is not null has fewer bytes."""
        if (~self.nulls & (self.lengths < least)).any():
            raise ValueError(f"{what} inside a row is cut short")


@dataclass(frozen=True, slots=True)
class _Slots:
    """Slots, one per value.

    at: the position of the slot.
    within: the row or array that contains it; offsets are relative to its start.
    """

    at: Integers
    within: _Ranges
    nulls: Mask


class _BinaryRowDecoder:
    """Decodes values of any type at given positions of `data`. Each method decodes all values of a column at once."""

    def __init__(self, data: PaddedBytes, out_of_range: OutOfRange) -> None:
        self._data = data
        self._out_of_range = out_of_range

    def fields(self, types: Sequence[DataType], rows: _Ranges) -> list[pa.Array]:
        first_slot = 8 * header_words(len(types))
        rows.check_lengths(first_slot + 8 * len(types), "a row")
        return [
            self._values(t, _Slots(rows.starts + first_slot + 8 * i, rows, self._nulls(rows, 8 + i)))
            for i, t in enumerate(types)
        ]

    def _nulls(self, within: _Ranges, bit: Any) -> Mask:
        """Return the null bits.

        bit: the number of the bit, counted from the start of the row or array: one number, or one per value.
        """
        octets = self._load(within.starts + (bit >> 3), 1, within.nulls).astype(np.int64)
        is_null: Mask = within.nulls | ((octets >> (bit & 7)) & 1 != 0)
        return is_null

    def _load(self, at: Integers, count: Any, nulls: Mask) -> Words:
        return self._data.load(np.where(nulls, 0, at), count)

    def _integers(self, ranges: _Ranges) -> Integers:
        """Return the first 4 bytes of each range as an integer; 0 for nulls."""
        ranges.check_lengths(4, "a count")
        return np.where(ranges.nulls, 0, self._load(ranges.starts, 4, ranges.nulls).astype(np.int64))

    def _variable_parts(
        self, slots: _Slots, lengths: Integers | None = None, *, may_be_inline: bool = False
    ) -> _Ranges:
        """Return the ranges that the slots point to.

        lengths: given if the slots don't contain them.
        """
        words = self._load(slots.at, 8, slots.nulls)
        starts = slots.within.starts + (words >> 32).astype(np.int64)
        lengths = (words & 0xFFFF_FFFF).astype(np.int64) if lengths is None else lengths
        if may_be_inline:
            inline = words >> 63 != 0
            starts = np.where(inline, slots.at, starts)
            lengths = np.where(inline, ((words >> 56) & 0x7F).astype(np.int64), lengths)
        ends = slots.within.starts + slots.within.lengths
        if (~slots.nulls & (starts + lengths > ends)).any():
            raise ValueError("a field points outside of its row")
        return _Ranges(starts, np.where(slots.nulls, 0, lengths), slots.nulls)

    def _values(self, data_type: DataType, slots: _Slots) -> pa.Array:
        root = data_type.root
        if root in FIXED_WIDTH:
            values = self._load(slots.at, FIXED_WIDTH[root], slots.nulls).astype(f"u{FIXED_WIDTH[root]}")
            return _array(data_type, slots.nulls, _bitmap(values != 0) if root is Root.BOOLEAN else values)
        if root in STRING_ROOTS or root in BINARY_ROOTS:
            return self._bytes(self._variable_parts(slots, may_be_inline=True)).cast(
                arrow_type(data_type)
            )  # checks UTF-8
        if isinstance(data_type, AtomicType) and root is Root.DECIMAL:
            return self._decimals(data_type, slots)
        if isinstance(data_type, AtomicType) and root in TIMESTAMP_ROOTS:
            return self._timestamps(data_type, slots)
        return self._nested(data_type, self._variable_parts(slots))

    def _bytes(self, ranges: _Ranges) -> pa.Array:
        ends = np.cumsum(ranges.lengths)
        content = self._data.data[np.repeat(ranges.starts, ranges.lengths) + ramp(ranges.lengths)]
        return _array(BYTES, ranges.nulls, _offsets(ends), content)

    def _decimals(self, data_type: AtomicType, slots: _Slots) -> pa.Array:
        if data_type.precision <= COMPACT_DECIMAL_PRECISION:
            low = self._load(slots.at, 8, slots.nulls).view(np.int64)
            return _array(data_type, slots.nulls, np.stack([low, low >> 63], axis=1))
        ranges = self._variable_parts(slots)
        lengths = ranges.lengths
        if (lengths > 16).any():
            raise ValueError(f"a decimal inside a row takes {lengths.max()} bytes, more than {data_type} needs")
        second_half = np.where(lengths > 8, ranges.starts + 8, 0)
        top = self._load(ranges.starts, lengths, slots.nulls).byteswap().view(np.int64)
        bottom = self._load(second_half, lengths - 8, slots.nulls).byteswap()
        unused = 8 * (16 - lengths)  # bits to shift out; NumPy shifts by 64 or more to zero, or to the sign
        shift = unused.astype(np.uint64)
        low = (bottom >> shift) | (top.view(np.uint64) << (64 - shift))
        low = np.where(unused < 64, low, (top >> np.maximum(unused - 64, 0)).view(np.uint64))
        return _array(data_type, slots.nulls, np.stack([low, (top >> unused).view(np.uint64)], axis=1))

    def _timestamps(self, data_type: AtomicType, slots: _Slots) -> pa.Array:
        first = self._load(slots.at, 8, slots.nulls)
        if data_type.precision <= COMPACT_TIMESTAMP_PRECISION:
            millis, nanos = first.view(np.int64), np.zeros(len(first), np.int64)
        else:
            behind = self._variable_parts(slots, np.full(len(first), 8))
            millis = self._load(behind.starts, 8, slots.nulls).view(np.int64)
            nanos = (first & 0xFFFF_FFFF).astype(np.int64)
        unit = timestamp_unit(data_type.precision)
        if unit == "s":
            return _array(data_type, slots.nulls, millis // 1000)
        factor = _UNITS_PER_MILLI[unit]
        fraction = nanos * factor // 10**6
        fits = _fits(millis, factor, fraction) | slots.nulls
        if self._out_of_range == "error" and not fits.all():
            raise UnsupportedFeature(
                f"{data_type} value {millis[~fits][0]} ms after 1970",
                f"Arrow stores this type as 64 bits of {unit} since 1970, which can't hold the value",
                "Store such times with six digits of a second: TIMESTAMP(6)",
            )
        return _array(data_type, slots.nulls | ~fits, millis * factor + fraction)

    def _nested(self, data_type: DataType, ranges: _Ranges) -> pa.Array:
        match data_type:
            case RowType():
                return _array(data_type, ranges.nulls, children=self.fields([f.type for f in data_type.fields], ranges))
            case ArrayType():
                offsets, elements = self._elements(data_type.element, ranges)
                return _array(data_type, ranges.nulls, offsets, children=[elements])
            case MapType():
                return self._maps(data_type, data_type.key, data_type.value, ranges)
            case MultisetType():
                return self._maps(data_type, data_type.element, INT, ranges)
            case VectorType():
                return self._vectors(data_type, ranges)
        value_lengths = self._integers(ranges)
        value, metadata = self._split(ranges, value_lengths)
        return _array(data_type, ranges.nulls, children=[self._bytes(value), self._bytes(metadata)])

    def _split(self, ranges: _Ranges, first_lengths: Integers) -> tuple[_Ranges, _Ranges]:
        """Split each range, which consists of the length of the first part, the first part and the second part."""
        ranges.check_lengths(4 + first_lengths, "the first part of a value")
        second_lengths = np.where(ranges.nulls, 0, ranges.lengths - 4 - first_lengths)
        return (
            _Ranges(ranges.starts + 4, first_lengths, ranges.nulls),
            _Ranges(ranges.starts + 4 + first_lengths, second_lengths, ranges.nulls),
        )

    def _elements(self, data_type: DataType, arrays: _Ranges) -> tuple[NDArray[np.int32], pa.Array]:
        """Return the offsets and the elements of an Arrow list."""
        counts = self._integers(arrays)
        width = element_width(data_type)
        header = array_header_bytes(counts)
        arrays.check_lengths(header + counts * width, "an array")
        numbers = ramp(counts)
        within = _Ranges(
            np.repeat(arrays.starts, counts), np.repeat(arrays.lengths, counts), np.zeros(len(numbers), np.bool_)
        )
        at = within.starts + np.repeat(header, counts) + width * numbers
        slots = _Slots(at, within, self._nulls(within, 32 + numbers))
        return _offsets(np.cumsum(counts)), self._values(data_type, slots)

    def _maps(self, data_type: DataType, key: DataType, value: DataType, ranges: _Ranges) -> pa.Array:
        key_arrays, value_arrays = self._split(ranges, self._integers(ranges))
        offsets, keys = self._elements(key, key_arrays)
        value_offsets, values = self._elements(value, value_arrays)
        if (offsets != value_offsets).any():
            raise ValueError("a map inside a row has more keys than values, or fewer")
        kind = arrow_type(data_type)
        entry = pa.struct([kind.key_field, kind.item_field])
        entries = pa.Array.from_buffers(entry, len(keys), [None], children=[keys, values])
        return _array(data_type, ranges.nulls, offsets, children=[entries])

    def _vectors(self, data_type: VectorType, ranges: _Ranges) -> pa.Array:
        width = element_width(data_type.element)
        ranges.check_lengths(4 + width * data_type.length, f"a vector of {data_type.length} elements")
        at = (ranges.starts[:, None] + 4 + width * np.arange(data_type.length)).reshape(-1)
        nulls = np.repeat(ranges.nulls, data_type.length)
        within = _Ranges(at, np.full(len(at), width), nulls)
        elements = self._values(data_type.element, _Slots(np.where(nulls, 0, at), within, np.zeros(len(at), np.bool_)))
        return _array(data_type, ranges.nulls, children=[elements])


def _fits(millis: Integers, factor: int, fraction: Integers) -> Mask:
    """Return whether `millis * factor + fraction` fits into 64 bits, for 0 <= fraction < factor."""
    lowest, lowest_fraction = divmod(-(2**63), factor)
    highest, highest_fraction = divmod(2**63 - 1, factor)
    above = (millis > lowest) | ((millis == lowest) & (fraction >= lowest_fraction))
    below = (millis < highest) | ((millis == highest) & (fraction <= highest_fraction))
    fits: Mask = above & below
    return fits


# ---------------------------------------------------------------- Arrow


def _array(data_type: DataType, nulls: Mask, *buffers: NDArray[Any], children: Sequence[pa.Array] = ()) -> pa.Array:
    validity = pa.py_buffer(_bitmap(~nulls)) if nulls.any() else None
    content = [pa.py_buffer(np.ascontiguousarray(buffer)) for buffer in buffers]
    return pa.Array.from_buffers(arrow_type(data_type), len(nulls), [validity, *content], children=list(children))


def _bitmap(bits: Mask) -> NDArray[np.uint8]:
    return np.packbits(bits, bitorder="little")


def _offsets(ends: Integers) -> NDArray[np.int32]:
    if len(ends) and ends[-1] > 2**31 - 1:
        raise ValueError("the values of one column take more than 2 GiB; decode fewer rows at once")
    return np.concatenate([[0], ends]).astype(np.int32)
