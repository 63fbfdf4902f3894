"""Casts values to another column type, to read a file that was written before a schema change.

The casts are exactly those of Java, even if information is lost: integers wrap, decimals that don't fit become null,
and texts are truncated. Java uses the time zone of its process to cast between LOCAL TIME ZONE and text, dates or plain
timestamps. Here the time zone is UTC.

Source: Java `schema/SchemaEvolutionUtil.java`, `casting/*CastRule.java`, `utils/DecimalUtils.java`,
`utils/DateTimeUtils.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.files.formats.arrow_conversion import UNITS_PER_SECOND, struct_array, times_from_parts, with_child
from tidelake.storage.files.string_casts import from_text, rounded, text_of
from tidelake.storage.model.types import (
    BINARY_ROOTS,
    INTEGER_ROOTS,
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    Root,
    RowType,
    arrow_field,
    arrow_type,
    same_ignoring_nullability,
)
from tidelake.storage.model.types.arrow_buffers import fixed_width_values

_FLOATS: Final = frozenset({Root.FLOAT, Root.DOUBLE})
_MILLIS_PER_DAY: Final = 86_400_000
_WIDE_DIGITS: Final = 76  # digits of decimal256: enough for any DECIMAL at any scale


def cast(column: pa.Array, old: DataType, new: DataType) -> pa.Array:
    """Cast a column of type `old`, in its in-memory form, to type `new`.

    Fields of a ROW are matched by id: renamed fields keep their values, new fields are null.

    Raises BadInput if Java fails, too (a text that is not a number). Raises UnsupportedFeature if Java has no such
    cast.
    """
    if same_ignoring_nullability(old, new):
        return column
    match old, new:
        case RowType(), RowType():
            return _cast_row(column, old, new)
        case ArrayType(), ArrayType():
            return with_child(column, arrow_type(new), cast(column.values, old.element, new.element))
        case MapType(), MapType() if same_ignoring_nullability(old.key, new.key):
            items = cast(column.items, old.value, new.value)
            kind = arrow_type(new)
            entries = pa.StructArray.from_arrays([column.keys, items], fields=[kind.key_field, kind.item_field])
            return with_child(column, kind, entries)
        case _, AtomicType() if new.root in STRING_ROOTS | BINARY_ROOTS:
            return _to_bytes_or_text(column, old, new)
        case AtomicType(), AtomicType():
            return _cast_atom(column, old, new)
    raise _no_cast(old, new)


def _no_cast(old: DataType, new: DataType) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"a change of type from {old} to {new}",
        "Java has no cast for it either",
        "Change the column's type back (`tidelake table alter`, --set-type)",
    )


def keeps_order(old: DataType, new: DataType) -> bool:
    """Return whether the cast keeps the order of values and loses none: then bounds can be cast like values.

    Different values may become equal.
    """
    if same_ignoring_nullability(old, new):
        return True
    if not (isinstance(old, AtomicType) and isinstance(new, AtomicType)):
        return False
    if old.root in INTEGER_ROOTS and new.root in INTEGER_ROOTS:
        return INTEGER_ROOTS.index(old.root) <= INTEGER_ROOTS.index(new.root)
    if old.root is Root.DECIMAL and new.root is Root.DECIMAL:
        return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    if old.root in TIMESTAMP_ROOTS and new.root in TIMESTAMP_ROOTS:
        return new.precision >= old.precision
    if old.root in STRING_ROOTS and new.root is Root.VARCHAR:
        return new.length >= old.length
    return (old.root in INTEGER_ROOTS or old.root is Root.FLOAT) and new.root is Root.DOUBLE


def may_make_nulls(old: DataType, new: DataType) -> bool:
    """Return whether the cast may change values to null: then the null counts of older files are too low.

    Null stays null in every cast. Parts of nested values are not considered.
    """
    return new.root is Root.DECIMAL and not keeps_order(old, new)


def may_fail(old: DataType, new: DataType) -> bool:
    """Return whether the cast fails for some values, as that of a text to INT."""
    match old, new:
        case RowType(), RowType():
            types = {f.id: f.type for f in old.fields}
            return any(f.id in types and may_fail(types[f.id], f.type) for f in new.fields)
        case ArrayType(), ArrayType():
            return may_fail(old.element, new.element)
        case MapType(), MapType():
            return may_fail(old.value, new.value)
        case AtomicType(), AtomicType():
            if old.root in STRING_ROOTS:
                return new.root not in STRING_ROOTS | BINARY_ROOTS
            return old.root in _FLOATS and new.root is Root.DECIMAL  # NaN
    return False


# ---------------------------------------------------------------- nested


def _cast_row(column: pa.Array, old: RowType, new: RowType) -> pa.Array:
    positions = {f.id: i for i, f in enumerate(old.fields)}
    children = []
    for f in new.fields:
        position = positions.get(f.id)
        if position is None:
            children.append(pa.nulls(len(column), arrow_type(f.type)))
        else:
            children.append(cast(column.field(position), old.fields[position].type, f.type))
    return struct_array(children, [arrow_field(f) for f in new.fields], column)


# ---------------------------------------------------------------- texts and bytes


def _to_bytes_or_text(column: pa.Array, old: DataType, new: AtomicType) -> pa.Array:
    if new.root in BINARY_ROOTS:
        if old.root not in STRING_ROOTS | BINARY_ROOTS:
            raise _no_cast(old, new)
        return _fitted_bytes(column.cast(pa.binary()), new)
    texts = column if old.root in STRING_ROOTS else text_of(column, old)
    if texts is None:
        raise _no_cast(old, new)
    keeps_length = old.root in BINARY_ROOTS or not isinstance(old, AtomicType)  # Java does not apply the length here
    return texts if keeps_length else _fitted_text(texts, new)


def _fitted_text(texts: pa.Array, new: AtomicType) -> pa.Array:
    """Truncate texts to the declared length. CHAR is padded with blanks."""
    cut = pc.utf8_slice_codeunits(texts, 0, new.length)
    return pc.utf8_rpad(cut, new.length, " ") if new.root is Root.CHAR else cut


def _fitted_bytes(values: pa.Array, new: AtomicType) -> pa.Array:
    cut = pc.binary_slice(values, 0, new.length)
    if new.root is not Root.BINARY:
        return cut
    return pa.array([None if v is None else v.ljust(new.length, b"\0") for v in cut.to_pylist()], pa.binary())


# ---------------------------------------------------------------- numbers, truth, times


def _cast_atom(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    if old.root in STRING_ROOTS:
        return from_text(column, new)
    if old.root in TIMESTAMP_ROOTS:
        return _from_timestamp(column, old, new)
    numeric = _NUMERIC.get((_family(old.root), _family(new.root)))
    if numeric is not None:
        return numeric(column, old, new)
    if new.root in TIMESTAMP_ROOTS and old.root in (Root.INT, Root.BIGINT, Root.DATE, Root.TIME):
        return _to_timestamp(column, old, new)
    raise _no_cast(old, new)


def _family(root: Root) -> str:
    if root in INTEGER_ROOTS:
        return "integer"
    return "float" if root in _FLOATS else root.lower()


def _numbers(column: pa.Array) -> NDArray[Any]:
    """Return the values as they are in memory, and 0 for nulls."""
    values: NDArray[Any] = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return values


def _to_array(values: NDArray[Any], new: AtomicType, like: pa.Array) -> pa.Array:
    kind = arrow_type(new)
    mask = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    with np.errstate(over="ignore"):  # a double beyond the range of FLOAT becomes infinite
        return pa.array(values.astype(kind.to_pandas_dtype()), kind, mask=mask)


def _integer_to_number(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    return _to_array(_numbers(column), new, column)


def _float_to_integer(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    """Truncate towards zero. Values beyond INT or BIGINT become its limits, and NaN becomes 0. Narrower types wrap."""
    values = np.nan_to_num(_numbers(column).astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    limits = np.iinfo(np.int64 if new.root is Root.BIGINT else np.int32)
    inside = (values > float(limits.min)) & (values < float(limits.max))
    whole = np.where(inside, np.trunc(np.where(inside, values, 0)), 0).astype(np.int64)
    whole = np.where(inside, whole, np.where(values > 0, limits.max, limits.min))
    return _to_array(whole, new, column)


def _integer_to_decimal(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    return _fitted_decimal(column.cast(pa.decimal128(19, 0)), new)


def _float_to_decimal(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    """Convert through the shortest text of the double, like Java. A FLOAT is converted to a double first."""
    texts = []
    for value in column.cast(pa.float64()).to_pylist():
        if value is not None and not np.isfinite(value):
            raise BadInput(
                f"{value} can't be read as {new}; Java fails, too. Change the column's type back to read it "
                f"(`tidelake table alter`, --set-type with {old})"
            )
        texts.append(None if value is None else Decimal(repr(value)))
    return pa.array([None if t is None else rounded(t, new) for t in texts], arrow_type(new))


def _decimal_to_decimal(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    return _fitted_decimal(column, new)


def _fitted_decimal(column: pa.Array, new: AtomicType) -> pa.Array:
    """Round half up to the new scale. Values with more digits than the new precision become null."""
    wide = column.cast(pa.decimal256(_WIDE_DIGITS, column.type.scale))
    if new.scale < column.type.scale:
        wide = pc.round(wide, ndigits=new.scale, round_mode="half_towards_infinity")
    wide = wide.cast(pa.decimal256(_WIDE_DIGITS, new.scale))
    limit = pa.scalar(Decimal(10) ** (new.precision - new.scale), wide.type)
    return pc.if_else(pc.less(pc.abs(wide), limit), wide, pa.scalar(None, wide.type)).cast(arrow_type(new))


def _decimal_to_integer(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    """Truncate towards zero, then keep the lowest bits."""
    whole = pc.trunc(column).cast(pa.decimal128(38, 0), safe=False)
    low = fixed_width_values(whole, np.int64)[::2]
    return _to_array(np.where(whole.is_valid().to_numpy(zero_copy_only=False), low, 0), new, column)


def _decimal_to_float(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    if old.precision <= 18:
        unscaled = fixed_width_values(column, np.int64)[::2].astype(np.float64)
        return _to_array(unscaled / float(10**old.scale), new, column)
    return _to_array(np.array([float(v or 0) for v in column.to_pylist()], np.float64), new, column)


def _boolean_to_number(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    return _to_array(pc.fill_null(column, False).to_numpy(zero_copy_only=False), new, column)


def _boolean_to_decimal(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    return _integer_to_decimal(column.cast(pa.int32()), old, new)


def _integer_to_boolean(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    return pc.not_equal(column, 0)


_Cast: TypeAlias = Callable[[pa.Array, AtomicType, AtomicType], pa.Array]
_NUMERIC: Final[Mapping[tuple[str, str], _Cast]] = {
    ("integer", "integer"): _integer_to_number,
    ("integer", "float"): _integer_to_number,
    ("integer", "decimal"): _integer_to_decimal,
    ("integer", "boolean"): _integer_to_boolean,
    ("float", "float"): _integer_to_number,
    ("float", "integer"): _float_to_integer,
    ("float", "decimal"): _float_to_decimal,
    ("decimal", "decimal"): _decimal_to_decimal,
    ("decimal", "integer"): _decimal_to_integer,
    ("decimal", "float"): _decimal_to_float,
    ("boolean", "integer"): _boolean_to_number,
    ("boolean", "float"): _boolean_to_number,
    ("boolean", "decimal"): _boolean_to_decimal,
}


# ---------------------------------------------------------------- times


def _parts(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return seconds since 1970, and nanoseconds from 0 to 999,999,999."""
    per_second = UNITS_PER_SECOND[column.type.unit]
    seconds, rest = np.divmod(fixed_width_values(column, np.int64), per_second)
    return seconds, rest * (10**9 // per_second)


def _from_timestamp(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    seconds, nanos = _parts(column)
    millis = seconds * 1000 + nanos // 10**6
    match new.root:
        case Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
            if new.precision < old.precision:
                seconds, nanos = _cut(seconds, nanos, new.precision)
            return times_from_parts(seconds, nanos, arrow_type(new), column)
        case Root.DATE:
            return _with_nulls((millis // _MILLIS_PER_DAY).astype(np.int32), pa.int32(), column).cast(pa.date32())
        case Root.TIME:
            return _with_nulls((millis % _MILLIS_PER_DAY).astype(np.int32), pa.int32(), column).cast(pa.time32("ms"))
        case Root.INT | Root.BIGINT:
            towards_zero = np.where(millis < 0, -(-millis // 1000), millis // 1000)
            return _to_array(towards_zero, new, column)
    raise _no_cast(old, new)


def _cut(
    seconds: NDArray[np.int64], nanos: NDArray[np.int64], precision: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Set the digits after `precision` to zero.

    Up to a precision of 3 Java truncates towards 1970, with more digits towards the past.
    """
    if precision > 3:
        step = 10 ** (9 - precision)
        return seconds, nanos // step * step
    millis = seconds * 1000 + nanos // 10**6
    step = 10 ** (3 - precision)
    millis = np.where(millis < 0, -(-millis // step), millis // step) * step
    whole, rest = np.divmod(millis, 1000)
    return whole, rest * 10**6


def _to_timestamp(column: pa.Array, old: AtomicType, new: AtomicType) -> pa.Array:
    """Convert to a timestamp: a number counts seconds, a date becomes its midnight, a time of day is on 1970-01-01."""
    if old.root is Root.DATE:
        seconds = _numbers(column.cast(pa.int32())).astype(np.int64) * 86_400
        nanos = np.zeros_like(seconds)
    elif old.root is Root.TIME:
        seconds, millis = np.divmod(_numbers(column.cast(pa.int32())).astype(np.int64), 1000)
        nanos = millis * 10**6
    else:
        seconds = _numbers(column).astype(np.int64)
        nanos = np.zeros_like(seconds)
    return times_from_parts(seconds, nanos, arrow_type(new), column)


def _with_nulls(values: NDArray[Any], kind: pa.DataType, like: pa.Array) -> pa.Array:
    return pa.array(values, kind, mask=like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None)
