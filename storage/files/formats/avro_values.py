"""Converts columns to the Python values of fastavro, and back, because fastavro works row by row.

Times become integers, and decimals become bytes (big-endian, as few as possible).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import pyarrow as pa

from tidelake.storage.files.formats.arrow_conversion import list_offsets, rescale_times, struct_array
from tidelake.storage.files.formats.avro_schema import AvroType
from tidelake.storage.model.types import (
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
    not_null,
)
from tidelake.storage.model.types.arrow_buffers import fixed_width_values

Values = list[Any]


# ---------------------------------------------------------------- out of columns


def to_values(column: pa.Array, data_type: DataType) -> Values:
    match data_type:
        case RowType():
            names = [f.name for f in data_type.fields]
            parts = [to_values(column.field(i), f.type) for i, f in enumerate(data_type.fields)]
            rows = zip(*parts, strict=True) if parts else ((),) * len(column)
            return _valid(column, [dict(zip(names, row, strict=True)) for row in rows])
        case ArrayType() | VectorType():
            return _valid(column, _lists(column, to_values(column.values, data_type.element)))
        case MapType():
            return _maps(column, data_type.key, data_type.value)
        case MultisetType():
            return _maps(column, data_type.element, INT)
        case AtomicType():
            return _atoms(column, data_type)


def _atoms(column: pa.Array, data_type: AtomicType) -> Values:
    if data_type.root in (Root.DATE, Root.TIME):
        column = column.cast(pa.int32())
    elif data_type.root in TIMESTAMP_ROOTS:
        unit = "ms" if data_type.precision <= 3 else "us"
        column = rescale_times(column, column.type.unit, pa.timestamp(unit)).cast(pa.int64())
    elif data_type.root is Root.DECIMAL:
        raw = fixed_width_values(column, "V16").tolist()
        return _valid(column, [_twos_complement(int.from_bytes(r, "little", signed=True)) for r in raw])
    values: Values = column.to_pylist()
    return values


def _twos_complement(number: int) -> bytes:
    """Encode a number like Java's `BigInteger.toByteArray`."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _maps(column: pa.Array, key: DataType, value: DataType) -> Values:
    entries = zip(to_values(column.keys, key), to_values(column.items, value), strict=True)
    if key.root in STRING_ROOTS:
        return _valid(column, [dict(row) for row in _lists(column, list(entries))])
    return _valid(column, _lists(column, [{"key": k, "value": v} for k, v in entries]))


def _lists(column: pa.Array, inner: Values) -> list[Values]:
    """Divide values into lists.

    inner: the values of all lists, to which the offsets of `column` refer.
    """
    return [inner[start:end] for start, end in pairwise(list_offsets(column))]


def _valid(column: pa.Array, values: Values) -> Values:
    if not column.null_count:
        return values
    return [v if valid else None for v, valid in zip(values, column.is_valid().to_pylist(), strict=True)]


# ---------------------------------------------------------------- into columns


def from_values(values: Values, data_type: DataType, avro_type: AvroType) -> pa.Array:
    """Convert values to a column in its in-memory form.

    avro_type: the type of the values in the file.

    Raises pa.ArrowInvalid if the values don't fit the type.
    """
    avro_type = _without_null(avro_type)
    match data_type:
        case RowType():
            return _row(values, data_type, avro_type)
        case ArrayType():
            child = from_values(_flat(values), data_type.element, avro_type["items"])
            return pa.ListArray.from_arrays(_offsets(values), child, arrow_type(data_type))
        case VectorType():
            if any(v is not None and len(v) != data_type.length for v in values):
                raise pa.ArrowInvalid(f"vectors of another length than {data_type.length}")
            padded = [[None] * data_type.length if v is None else v for v in values]
            child = from_values(_flat(padded), data_type.element, avro_type["items"])
            mask = pa.array([v is None for v in values], pa.bool_())
            return pa.FixedSizeListArray.from_arrays(child, type=arrow_type(data_type), mask=mask)
        case MapType():
            return _map(values, data_type, data_type.key, data_type.value, avro_type)
        case MultisetType():
            return _map(values, data_type, data_type.element, not_null(INT), avro_type)
        case AtomicType():
            return _atom(values, data_type, avro_type)


def _without_null(avro_type: AvroType) -> AvroType:
    return next(t for t in avro_type if t != "null") if isinstance(avro_type, list) else avro_type


def _atom(values: Values, data_type: AtomicType, avro_type: AvroType) -> pa.Array:
    target = arrow_type(data_type)
    if data_type.root is Root.DECIMAL:
        return _decimals(values, target)
    if data_type.root in TIMESTAMP_ROOTS:
        logical = avro_type.get("logicalType", "") if isinstance(avro_type, dict) else ""
        in_micros = logical.endswith("micros") or (not logical and data_type.precision > 3)
        return rescale_times(pa.array(values, pa.int64()), "us" if in_micros else "ms", target)
    if data_type.root in (Root.DATE, Root.TIME):
        return pa.array(values, pa.int32()).cast(target)
    return pa.array(values, target)


def _decimals(values: Sequence[bytes | None], target: pa.DataType) -> pa.Array:
    """Convert decimals.

    Like in Java, a number with too many digits becomes null: a sum that overflowed its DECIMAL.
    """
    limit = 10**target.precision
    numbers = [limit if v is None else int.from_bytes(v, "big", signed=True) for v in values]
    fits = [abs(n) < limit for n in numbers]
    data = b"".join((n if fit else 0).to_bytes(16, "little", signed=True) for n, fit in zip(numbers, fits, strict=True))
    valid = pa.array(fits, pa.bool_())
    buffers = [valid.buffers()[1], pa.py_buffer(data)]  # validity has one bit per value, like booleans
    return pa.Array.from_buffers(target, len(values), buffers)


def _row(values: Values, data_type: RowType, avro_type: AvroType) -> pa.Array:
    types = {f["name"]: f["type"] for f in avro_type["fields"]}
    children = []
    for f in data_type.fields:
        if f.name in types:
            inner = [None if v is None else v[f.name] for v in values]
            children.append(from_values(inner, f.type, types[f.name]))
        else:
            children.append(pa.nulls(len(values), arrow_type(f.type)))
    like = pa.array([None if v is None else True for v in values], pa.bool_())
    return struct_array(children, list(arrow_type(data_type)), like)


def _map(values: Values, data_type: DataType, key: DataType, value: DataType, avro_type: AvroType) -> pa.Array:
    if avro_type["type"] == "map":
        entries = [None if v is None else list(v.items()) for v in values]
        key_type, value_type = "string", avro_type["values"]
    else:
        entries = [None if v is None else [(e["key"], e["value"]) for e in v] for v in values]
        key_type, value_type = (f["type"] for f in _without_null(avro_type["items"])["fields"])
    keys = from_values([k for k, _ in _flat(entries)], key, key_type)
    items = from_values([v for _, v in _flat(entries)], value, value_type)
    return pa.MapArray.from_arrays(_offsets(entries), keys, items, type=arrow_type(data_type))


def _flat(values: Iterable[Sequence[Any] | None]) -> Values:
    return list(chain.from_iterable(v for v in values if v is not None))


def _offsets(values: Sequence[Sequence[Any] | None]) -> pa.Array:
    """Return the offsets of lists; null for a null list."""
    ends = list(accumulate((0 if v is None else len(v) for v in values), initial=0))
    return pa.array([None if v is None else end for v, end in zip(values, ends, strict=False)] + ends[-1:], pa.int32())
