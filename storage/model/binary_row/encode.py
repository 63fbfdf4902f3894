"""Encodes columns as BinaryRows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.model.binary_row.row_layout import (
    ARITY_PREFIX_BYTES,
    COMPACT_DECIMAL_PRECISION,
    COMPACT_TIMESTAMP_PRECISION,
    FIXED_WIDTH,
    INLINE_MARK,
    MAX_INLINE_BYTES,
    array_header_bytes,
    element_width,
    header_words,
    ramp,
)
from tidelake.storage.model.format import RowKind
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    CONSTRUCTED_ROOTS,
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
)
from tidelake.storage.model.types.arrow_buffers import (
    byte_ranges,
    check_form,
    fixed_width_values,
    null_mask,
    to_single_array,
)

Column: TypeAlias = pa.Array | pa.ChunkedArray
Words: TypeAlias = NDArray[np.uint64]
Integers: TypeAlias = NDArray[np.int64]
NullMask: TypeAlias = NDArray[np.bool_] | None  # None: no nulls

# Factor and divisor that turn a timestamp unit into milliseconds.
_MILLISECONDS: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 10**6)}


def encode_rows(
    columns: Sequence[Column], types: Sequence[DataType], kind: RowKind = RowKind.INSERT
) -> pa.BinaryArray | pa.LargeBinaryArray:
    """Return the bytes of each row, without the number of fields.

    columns: at least one, of equal length, in the in-memory form of their types. Timestamps may have any unit. Types of
        up to three digits keep milliseconds.

    Raises BadInput for another form.
    """
    fields = fields_of(columns, types)
    return _rows(fields, len(columns[0]), kind)


def serialize(row: bytes, arity: int) -> bytes:
    """Return the serialized form of manifests: the number of fields, then the row."""
    return arity.to_bytes(ARITY_PREFIX_BYTES, "big") + row


def serialize_rows(columns: Sequence[Column], types: Sequence[DataType]) -> list[bytes]:
    """Encode as `encode_rows` does, in the serialized form of manifests."""
    return [serialize(row, len(types)) for row in encode_rows(columns, types).to_pylist()]


def serialize_row(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
    """Return one row in the serialized form of manifests.

    values: Arrow scalars, or Python values that Arrow can convert.
    """
    if not types:
        return serialize(bytes(8), 0)
    return serialize_rows([pa.array([v], arrow_type(t)) for v, t in zip(values, types, strict=True)], types)[0]


# ---------------------------------------------------------------- encoded columns


@dataclass(frozen=True, slots=True)
class VariablePart:
    """The bytes of a field after the slots.

    counts (n,): the number of 8-byte words of each row.
    load(rows, k): returns word k of each of the rows, which must have that word. k is one number, or one per row.
    """

    counts: Integers
    load: Callable[[Any, Any], Words]

    def all_words(self) -> tuple[Integers, Integers, Words]:
        """Return for all words: the row, the position within the row, the word."""
        rows = np.repeat(np.arange(len(self.counts)), self.counts)
        numbers = ramp(self.counts)
        return rows, numbers, self.load(rows, numbers)


@dataclass(frozen=True, slots=True)
class EncodedField:
    """One field of all rows.

    slots (n,): the slots, still without offsets.
    nulls: None if no row has a null.
    variable_part: None if no row has bytes after the slots.
    """

    slots: Words
    nulls: NullMask
    variable_part: VariablePart | None = None

    def slots_at(self, offsets: Integers) -> Words:
        """Return the slots with offsets: the variable part begins at byte `offsets` of each row."""
        if self.variable_part is None:
            return self.slots
        return np.where(self.variable_part.counts > 0, self.slots | (offsets.astype(np.uint64) << 32), self.slots)


def fields_of(columns: Sequence[Column], types: Sequence[DataType]) -> list[EncodedField]:
    """Encode columns.

    Raises BadInput unless there are as many columns as types, at least one, and all of equal length.
    """
    if not columns or len(columns) != len(types) or len({len(c) for c in columns}) != 1:
        given = ", ".join(str(len(column)) for column in columns)
        raise BadInput(f"{len(types)} fields need as many columns of one length; given: columns of {given} rows")
    return [_field(to_single_array(column), t) for column, t in zip(columns, types, strict=True)]


def _field(column: pa.Array, data_type: DataType, *, in_array: bool = False) -> EncodedField:
    """Encode one column.

    in_array: in an array, null decimals of more than 18 digits and null timestamps of more than 3 digits take no space
        after the slots. In a row they do.
    """
    nulls = null_mask(column)
    root = data_type.root
    if root in TIMESTAMP_ROOTS and pa.types.is_timestamp(column.type):
        field = _timestamp_field(column, data_type, nulls, in_array)
    else:
        check_form(column, data_type)
        field = _other_field(column, data_type, nulls, in_array)
    if nulls is not None:
        field.slots[nulls] = 0
    return field


def _other_field(column: pa.Array, data_type: DataType, nulls: NullMask, in_array: bool) -> EncodedField:
    root = data_type.root
    if root in STRING_ROOTS or root in BINARY_ROOTS:
        return _bytes_field(column, nulls, MAX_INLINE_BYTES)
    if root in CONSTRUCTED_ROOTS or root is Root.VARIANT:
        return _bytes_field(_nested_bytes(column, data_type), nulls, max_inline=-1)
    if root is Root.DECIMAL:
        return _decimal_field(column, nulls, in_array)
    values = column.cast(pa.uint8()) if root is Root.BOOLEAN else column
    return EncodedField(fixed_width_values(values, f"u{FIXED_WIDTH[root]}").astype(np.uint64), nulls)


def _bytes_field(column: pa.Array, nulls: NullMask, max_inline: int) -> EncodedField:
    data, starts, lengths = byte_ranges(column)
    if nulls is not None:
        lengths[nulls] = 0
    inline = lengths <= max_inline
    counts = np.where(inline, 0, (lengths + 7) >> 3)
    sizes = lengths.astype(np.uint64)
    slots = np.where(inline, data.load(starts, lengths) | ((sizes | INLINE_MARK) << 56), sizes)

    def load(rows: Any, number: Any) -> Words:
        return data.load(starts[rows] + 8 * number, lengths[rows] - 8 * number)

    return EncodedField(slots, nulls, VariablePart(counts, load) if counts.any() else None)


def _wide_field(slots: Words, nulls: NullMask, values: Words, in_array: bool) -> EncodedField:
    """Encode a field with w words after the slots.

    values (n, w): the words of each row.
    """
    counts = np.full(len(slots), values.shape[1])
    if nulls is not None:
        values[nulls] = 0
        if in_array:
            counts[nulls] = 0
    return EncodedField(slots, nulls, VariablePart(counts, lambda rows, number: values[rows, number]))


def _timestamp_field(column: pa.Array, data_type: DataType, nulls: NullMask, in_array: bool) -> EncodedField:
    values = fixed_width_values(column, np.int64)
    if nulls is not None:
        values = np.where(nulls, 0, values)
    factor, divisor = _MILLISECONDS[column.type.unit]
    if factor > 1 and len(values) and max(-int(values.min()), int(values.max())) > (2**63 - 1) // factor:
        raise BadInput(f"a value of type {column.type} can't be {data_type}: 64 bits of milliseconds don't hold it")
    millis, rest = np.divmod(values, divisor)  # rounds down, so that the rest is positive before 1970, too
    millis = (millis * factor).view(np.uint64)
    if isinstance(data_type, AtomicType) and data_type.precision <= COMPACT_TIMESTAMP_PRECISION:
        return EncodedField(millis, nulls)
    nanos_of_milli = (rest * (10**6 // divisor)).view(np.uint64)
    return _wide_field(nanos_of_milli, nulls, millis.reshape(-1, 1), in_array)


def _decimal_field(column: pa.Array, nulls: NullMask, in_array: bool) -> EncodedField:
    low, high = fixed_width_values(column, np.uint64).reshape(-1, 2).T
    if column.type.precision <= COMPACT_DECIMAL_PRECISION:
        return EncodedField(low.copy(), nulls)
    lengths, left_aligned = _big_endian(high, low)
    return _wide_field(lengths.astype(np.uint64), nulls, left_aligned, in_array)


def _big_endian(high: Words, low: Words) -> tuple[Integers, Words]:
    """Return Java's `BigInteger.toByteArray` of 128-bit integers: the number of bytes (1 to 16), and the bytes, (n, 2).

    The bytes are left-aligned in two words.
    """
    sign = (high.view(np.int64) >> 63).view(np.uint64)
    high_bits, low_bits = high ^ sign, low ^ sign  # without leading ones
    lengths = np.ones(len(high), np.int64)
    for byte in range(1, 9):  # one more byte for each eight bits, as the sign needs a bit, too
        lengths += (high_bits != 0) | (low_bits >= 1 << (8 * byte - 1))
    for byte in range(1, 8):
        lengths += high_bits >= 1 << (8 * byte - 1)
    unused = (8 * (16 - lengths)).astype(np.uint64)
    # NumPy shifts by 64 or more to zero, and an unsigned 64 - x below zero is huge.
    top = (high << unused) | (low >> (64 - unused)) | (low << (unused - 64))
    return lengths, np.stack([top, low << unused], axis=1).byteswap()


# ---------------------------------------------------------------- rows


def header_of(fields: Sequence[EncodedField], kind: RowKind) -> list[Words]:
    """Return the words before the slots, each (n,), or (1,) if it is the same in all rows."""
    words = [np.zeros(1, np.uint64) for _ in range(header_words(len(fields)))]
    words[0] |= np.uint64(kind)
    for position, field in enumerate(fields):
        if field.nulls is not None:
            word, bit = divmod(8 + position, 64)
            words[word] = words[word] | (field.nulls.astype(np.uint64) << np.uint64(bit))
    return words


def _rows(fields: Sequence[EncodedField], num_rows: int, kind: RowKind) -> pa.BinaryArray | pa.LargeBinaryArray:
    header = header_of(fields, kind)
    if all(field.variable_part is None for field in fields):
        return _rows_of_one_size(fields, header, num_rows)
    sizes = np.full(num_rows, len(header) + len(fields))
    for field in fields:
        if field.variable_part is not None:
            sizes += field.variable_part.counts
    ends = np.cumsum(sizes)
    starts = ends - sizes
    out = np.zeros(int(sizes.sum()), np.uint64)
    for position, word in enumerate(header):
        out[starts + position] = word
    offsets = np.full(num_rows, len(header) + len(fields))  # in words
    for position, field in enumerate(fields, len(header)):
        out[starts + position] = field.slots_at(8 * offsets)
        if field.variable_part is not None:
            rows, numbers, words = field.variable_part.all_words()
            out[(starts + offsets)[rows] + numbers] = words
            offsets += field.variable_part.counts
    return _binary(out, 8 * np.concatenate([[0], ends]))


def _rows_of_one_size(
    fields: Sequence[EncodedField], header: Sequence[Words], num_rows: int
) -> pa.BinaryArray | pa.LargeBinaryArray:
    """Return the rows of fields without variable parts."""
    width = len(header) + len(fields)
    out = np.empty((num_rows, width), np.uint64)
    for position, words in enumerate((*header, *(field.slots for field in fields))):
        out[:, position] = words
    return _binary(out, np.arange(0, 8 * width * num_rows + 1, 8 * width))


def _binary(data: Words, edges: Integers) -> pa.BinaryArray | pa.LargeBinaryArray:
    """Return the consecutive values as an Arrow array.

    edges: the start of each value and the end of the last one, in bytes.
    """
    large = data.nbytes > 2**31 - 1
    offsets = edges.astype(np.int64 if large else np.int32)
    array_type = pa.large_binary() if large else pa.binary()
    return pa.Array.from_buffers(array_type, len(edges) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


# ---------------------------------------------------------------- nested values


def _nested_bytes(column: pa.Array, data_type: DataType) -> pa.Array:
    """Return the bytes of each value, as one binary value per row. Values of nulls in `column` are arbitrary."""
    match data_type:
        case RowType():
            fields = [_field(column.field(i), f.type) for i, f in enumerate(data_type.fields)]
            return _rows(fields, len(column), RowKind.INSERT)
        case ArrayType(element=element):
            return _encode_each(column, lambda scalar: _array_bytes(scalar.values, element))
        case MapType(key=key, value=value):
            return _encode_each(column, lambda scalar: _map_bytes(scalar.values, key, value))
        case MultisetType(element=element):
            return _encode_each(column, lambda scalar: _map_bytes(scalar.values, element, INT))
        case VectorType(element=element):
            return _encode_each(column, lambda scalar: _vector_bytes(scalar.values, element))
        case _:
            return _encode_each(column, _variant_bytes)


def _encode_each(column: pa.Array, to_bytes: Callable[[Any], bytes]) -> pa.Array:
    return pa.array([to_bytes(scalar) if scalar.is_valid else b"" for scalar in column], pa.binary())


def _array_bytes(elements: pa.Array, element_type: DataType) -> bytes:
    field = _field(elements, element_type, in_array=True)
    out = bytearray(len(elements).to_bytes(4, "little"))
    if field.nulls is not None:
        out += np.packbits(field.nulls, bitorder="little").tobytes()
    out += bytes(array_header_bytes(len(elements)) - len(out))
    width = element_width(element_type)
    fixed_bytes = -(-(len(out) + len(elements) * width) // 8) * 8
    behind = b""
    slots = field.slots
    if field.variable_part is not None:
        counts = field.variable_part.counts
        slots = field.slots_at(fixed_bytes + 8 * (np.cumsum(counts) - counts))
        behind = field.variable_part.all_words()[2].tobytes()
    out += slots.astype(f"<u{width}").tobytes()
    return bytes(out.ljust(fixed_bytes, b"\0")) + behind


def _map_bytes(entries: pa.StructArray, key_type: DataType, value_type: DataType) -> bytes:
    keys = _array_bytes(entries.field(0), key_type)
    return len(keys).to_bytes(4, "little") + keys + _array_bytes(entries.field(1), value_type)


def _vector_bytes(elements: pa.Array, element_type: DataType) -> bytes:
    packed = _field(elements, element_type).slots.astype(f"<u{element_width(element_type)}")
    return len(elements).to_bytes(4, "little") + packed.tobytes()


def _variant_bytes(scalar: pa.StructScalar) -> bytes:
    value, metadata = scalar["value"].as_py(), scalar["metadata"].as_py()
    return len(value).to_bytes(4, "little") + bytes(value + metadata)
