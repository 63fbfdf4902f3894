"""Converts the columns that a file library returns to the in-memory Arrow form of their type.

This accepts the same variants as Java's readers: wider and narrower integers, any unit of time, any storage of
decimals, INT96.

Source: Java `format/parquet/reader/ParquetVectorUpdaterFactory.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import UnsupportedFeature
from tidelake.storage.model.types import (
    INT,
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
from tidelake.storage.model.variants.shredding import assembled

Leaf: TypeAlias = Callable[[pa.Array, AtomicType], pa.Array]
"""Converts values that are not nested."""

UNITS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_YEARS: Final = {"us": "-290308 to 294247", "ns": "1677 to 2262"}  # the range of 64 bits
_REMEDY: Final = "Alter the column to TIMESTAMP(6), which can hold all years, and rewrite its rows with Java"
_REMEDY_OF_FINEST: Final = "Correct it with Java, or read without the column"
_PAIMON_TYPE: Final = {"s": "TIMESTAMP(0)", "ms": "TIMESTAMP(3)", "us": "TIMESTAMP(6)", "ns": "TIMESTAMP(9)"}
INT96: Final = pa.binary(12)  # the in-memory type of a Parquet INT96

_JULIAN_DAY_OF_EPOCH: Final = 2_440_588
_SECONDS_PER_DAY: Final = 86_400
_INT64: Final = np.iinfo(np.int64)


@contextmanager
def in_column(name: str) -> Iterator[None]:
    """Add the column's name to the error for a value that can't be represented."""
    try:
        yield
    except UnsupportedFeature as e:
        raise UnsupportedFeature(f"column {name!r}: {e.feature}", e.reason, e.remedy) from None


def to_arrow_type(column: pa.Array, data_type: DataType) -> pa.Array:
    """Convert a stored column to the in-memory form of its type.

    Raises pa.ArrowInvalid if the values are not of this type. Raises UnsupportedFeature for times outside of its range.
    """
    if column.type == arrow_type(data_type):
        return column
    return convert_leaves(column, data_type, stored_leaf)


def convert_leaves(column: pa.Array, data_type: DataType, leaf: Leaf) -> pa.Array:
    """Convert every atomic part of the values with `leaf`. Lists, maps and structs keep their shape.

    Fields of a ROW are matched by name. Extra fields are dropped, and a missing field raises pa.ArrowInvalid.
    """
    column = _plain(column)
    match data_type:
        case AtomicType():
            return leaf(column, data_type)
        case RowType():
            return _rebuild_row(column, data_type, leaf)
        case MapType():
            return _rebuild_map(column, data_type.key, data_type.value, leaf)
        case MultisetType():
            return _rebuild_map(column, data_type.element, not_null(INT), leaf)
        case VectorType():
            if not pa.types.is_fixed_size_list(column.type):
                column = column.cast(pa.list_(column.type.value_field, data_type.length))
            child = convert_leaves(column.values, data_type.element, leaf)
            kind = pa.list_(pa.field("element", child.type, nullable=False), data_type.length)
            return with_child(column, kind, child)
        case ArrayType():
            if not pa.types.is_list(column.type):
                column = column.cast(pa.list_(column.type.value_field))
            child = convert_leaves(column.values, data_type.element, leaf)
            return with_child(column, pa.list_(pa.field("element", child.type, data_type.element.nullable)), child)


def _plain(column: pa.Array) -> pa.Array:
    """Remove dictionaries and extension types around the values."""
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _rebuild_row(column: pa.Array, data_type: RowType, leaf: Leaf) -> pa.Array:
    children = []
    for f in data_type.fields:
        position = column.type.get_field_index(f.name) if pa.types.is_struct(column.type) else -1
        if position < 0:
            raise pa.ArrowInvalid(f"no field {f.name!r} in {column.type}")
        children.append(convert_leaves(column.field(position), f.type, leaf))
    fields = [
        pa.field(f.name, child.type, f.type.nullable) for f, child in zip(data_type.fields, children, strict=True)
    ]
    return struct_array(children, fields, column)


def _rebuild_map(column: pa.Array, key: DataType, value: DataType, leaf: Leaf) -> pa.Array:
    if not pa.types.is_map(column.type):
        raise pa.ArrowInvalid(f"no map but {column.type}")
    keys, items = convert_leaves(column.keys, key, leaf), convert_leaves(column.items, value, leaf)
    kind = pa.map_(keys.type, pa.field("value", items.type, value.nullable))
    entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    return with_child(column, kind, entries)


def struct_array(children: Sequence[pa.Array], fields: Sequence[pa.Field], like: pa.Array) -> pa.Array:
    """Make a struct array that is null where `like` is null."""
    if not children:
        return pa.array([{} if valid else None for valid in like.is_valid().to_pylist()], pa.struct([]))
    parts = [
        child if field.nullable or not child.null_count else _without_hidden_nulls(child, like)
        for field, child in zip(fields, children, strict=True)
    ]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=like.is_null() if like.null_count else None)


def _without_hidden_nulls(child: pa.Array, parent: pa.Array) -> pa.Array:
    """Remove the nulls of a required field where the struct itself is null: Arrow can't write these to Parquet.

    Raises pa.ArrowInvalid for other nulls.
    """
    if pc.any(pc.and_(child.is_null(), parent.is_valid())).as_py():
        raise pa.ArrowInvalid("a required part of a row is null")
    kind, buffers = child.type, child.buffers()
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([child.field(i) for i in range(kind.num_fields)], fields=list(kind))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return pa.Array.from_buffers(kind, len(child), [None, buffers[1]], 0, child.offset, [child.values])
    if pa.types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, len(child), [None], 0, child.offset, [child.values])
    return pa.Array.from_buffers(kind, len(child), [None, *buffers[1:]], 0, child.offset)


def with_child(column: pa.Array, kind: pa.DataType, child: pa.Array) -> pa.Array:
    """Return the lists or maps of `column` with other values.

    child: the new values, as many as the whole child array of `column` has.
    """
    buffers = column.buffers()[: 1 if pa.types.is_fixed_size_list(kind) else 2]
    return pa.Array.from_buffers(kind, len(column), buffers, column.null_count, column.offset, children=[child])


def list_offsets(column: pa.Array) -> list[int]:
    """Return the offset where each list or map of a column begins in its child array, and where the last one ends."""
    if pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        return list(range(column.offset * size, (column.offset + len(column)) * size + 1, size))
    if not len(column):
        return []
    offsets: list[int] = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1].tolist()
    return offsets


def stored_leaf(column: pa.Array, data_type: AtomicType) -> pa.Array:
    """Convert values that are not nested, for `to_arrow_type`."""
    source, target = column.type, arrow_type(data_type)
    if source == target:
        return column
    if pa.types.is_null(source):
        return pa.nulls(len(column), target)
    if pa.types.is_timestamp(target):
        if source == INT96:
            return decode_int96(column, target)
        if pa.types.is_timestamp(source):
            return rescale_times(column, source.unit, target)
        if pa.types.is_int64(source):  # no annotation: Java uses the declared precision
            return rescale_times(column, "us" if target.unit == "us" else "ms", target)
    if data_type.root is Root.VARIANT:
        return variant(column, target)
    # Java narrows doubles without a check, too
    return column.cast(target, safe=not (pa.types.is_floating(source) and pa.types.is_floating(target)))


def variant(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the two parts of a variant, by name. A shredded variant is assembled first."""
    if not pa.types.is_struct(column.type):
        raise pa.ArrowInvalid(f"no variant but {column.type}")
    if column.type.get_field_index("typed_value") >= 0:
        return struct_array(assembled(column), list(target), column)
    return struct_array([column.field(f.name).cast(f.type) for f in target], list(target), column)


def rescale_times(column: pa.Array, unit: str, target: pa.DataType) -> pa.Array:
    """Convert timestamps (or their int64 values) in `unit` to `target`. Rounds down if `target` is coarser."""
    have, want = UNITS_PER_SECOND[unit], UNITS_PER_SECOND[target.unit]
    values = column.cast(pa.int64())
    if have > want:
        floored = np.floor_divide(fixed_width_values(values, np.int64), have // want)
        values = _int64_array(floored, values)
    elif have < want:
        factor = want // have
        numbers = fixed_width_values(values, np.int64)
        outside = (numbers > _INT64.max // factor) | (numbers < -(_INT64.max // factor))
        _check_range(outside, values, target)
        values = _int64_array(numbers * factor, values)
    return values.cast(target)


def times_from_parts(
    seconds: NDArray[np.int64], nanos: NDArray[np.int64], target: pa.DataType, like: pa.Array
) -> pa.Array:
    """Make timestamps of `seconds` since 1970 plus `nanos`, 0 to 999,999,999; null where `like` is null."""
    per_second = UNITS_PER_SECOND[target.unit]
    parts = nanos // (10**9 // per_second)
    first, first_part = divmod(int(_INT64.min), per_second)
    last, last_part = divmod(int(_INT64.max), per_second)
    too_early = (seconds < first) | ((seconds == first) & (parts < first_part))
    too_late = (seconds > last) | ((seconds == last) & (parts > last_part))
    _check_range(too_early | too_late, like, target)
    ticks = seconds * per_second + parts  # the product may wrap in the first second, but the sum is correct
    return _int64_array(ticks, like).cast(target)


def _check_range(outside: NDArray[np.bool_], like: pa.Array, target: pa.DataType) -> None:
    if like.null_count:
        outside = outside & like.is_valid().to_numpy(zero_copy_only=False)
    if outside.any():
        raise UnsupportedFeature(
            f"a time outside of the years {_YEARS.get(target.unit, '±292 million')} as {_PAIMON_TYPE[target.unit]}",
            "64 bits can't hold other times",
            _REMEDY_OF_FINEST if target.unit == "us" else _REMEDY,
        )


def _int64_array(values: NDArray[np.int64], like: pa.Array) -> pa.Array:
    mask = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    return pa.array(values, pa.int64(), mask=mask)


# ---------------------------------------------------------------- INT96: nanoseconds of the day, Julian day


def decode_int96(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert INT96 to timestamps.

    In Java's times before 1970 the time of day is negative: it divides towards zero.
    """
    parts = fixed_width_values(column, np.uint8).reshape(-1, 12)
    nanos = parts[:, :8].copy().view("<i8")[:, 0]
    days = parts[:, 8:].copy().view("<i4")[:, 0].astype(np.int64) - _JULIAN_DAY_OF_EPOCH
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        nanos, days = np.where(nulls, 0, nanos), np.where(nulls, 0, days)
    return times_from_parts(days * _SECONDS_PER_DAY + nanos // 10**9, nanos % 10**9, target, column)


def encode_int96(column: pa.Array) -> pa.Array:
    """Convert timestamp[ns] to 12-byte binaries. The time of day is never negative."""
    ticks = fixed_width_values(column, np.int64)
    days, nanos = np.divmod(ticks, _SECONDS_PER_DAY * 10**9)
    parts = np.empty((len(ticks), 12), np.uint8)
    parts[:, :8] = nanos.astype("<i8").view(np.uint8).reshape(-1, 8)
    parts[:, 8:] = (days + _JULIAN_DAY_OF_EPOCH).astype("<i4").view(np.uint8).reshape(-1, 4)
    validity = column.is_valid().buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(INT96, len(column), [validity, pa.py_buffer(parts)], column.null_count)
