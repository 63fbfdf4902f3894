"""Python values as Arrow columns, without a change: 1.5 stays 1.5, also for an INT within an ARRAY.

`pyarrow.array(values, type)` cuts values to the type: it makes 1 of 1.5, drops unknown fields of dicts, zones, times of
day and nanoseconds, and takes numbers for times. So values keep their own types here. The writer converts them to those
of the table, or refuses them. Of a type only its shape is used: a dict is a ROW or a MAP.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.storage.base.arguments import shown

_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)


def python_array(values: Iterable[Any], shape: pa.DataType | None, *, nan_is_null: bool = False) -> pa.Array:
    """Return the values as they are. None, and pandas' NA and NaT, are null.

    shape: the type of the column that they are for; None if it isn't known
    nan_is_null: whether NaN is null, too. NaN within lists and dicts stays NaN

    Raises pa.ArrowException, TypeError, ValueError or OverflowError for values that have no common type.
    """
    found = [None if _is_missing(value, nan_is_null) else value for value in values]
    return _array(found, shape)


def _is_missing(value: Any, nan_is_null: bool) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return nan_is_null and isinstance(value, float) and math.isnan(value)


def _array(values: Sequence[Any], shape: pa.DataType | None) -> pa.Array:
    if shape is not None:
        if pa.types.is_struct(shape):
            return _rows(values, shape)
        if pa.types.is_map(shape):
            return _maps(values, shape)
        if pa.types.is_nested(shape):
            return _lists(values, shape.value_type)
    return _plain(values, shape)


# ---------------------------------------------------------------- values with parts


def _rows(values: Sequence[Any], shape: pa.StructType) -> pa.Array:
    """Return structs, also with the fields that the type lacks: the writer names the first of them."""
    known = [field.name for field in shape]
    rows = [_row(value, known) for value in values]
    names = dict.fromkeys([*known, *(name for row in rows if row is not None for name in row)])
    children = []
    for name in names:
        parts = [None if row is None else row.get(name) for row in rows]
        children.append(python_array(parts, shape.field(name).type) if name in known else _unknown(parts))
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.StructArray.from_arrays(children, names=list(names), mask=mask)


def _row(value: Any, names: Sequence[str]) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if isinstance(value, tuple) and len(value) == len(names):
        return dict(zip(names, value, strict=True))
    if not isinstance(value, Mapping):
        raise TypeError(f"{shown(value)} is no dict of the fields of a ROW")
    for name in value:
        if not isinstance(name, str):
            raise TypeError(f"a field of a ROW is named {shown(name)}; names are texts")
    return value


def _unknown(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.nulls(len(values))  # it is refused for its name


def _maps(values: Sequence[Any], shape: pa.MapType) -> pa.Array:
    pairs = [None if value is None else _pairs(value) for value in values]
    flat = [pair for one in pairs if one is not None for pair in one]
    keys = python_array((key for key, _ in flat), shape.key_type)
    items = python_array((item for _, item in flat), shape.item_type)
    return pa.MapArray.from_arrays(_offsets(pairs), keys, items)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    pairs = list(value.items()) if isinstance(value, Mapping) else _items(value)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"{shown(value)} is neither a dict nor a list of pairs of a key and a value")
    return [(key, item) for key, item in pairs]


def _lists(values: Sequence[Any], element: pa.DataType) -> pa.Array:
    lists = [None if value is None else value if isinstance(value, np.ndarray) else _items(value) for value in values]
    given = [one for one in lists if one is not None]
    arrays = [one for one in given if isinstance(one, np.ndarray) and one.ndim == 1 and one.dtype != object]
    if given and len(arrays) == len(given) and len({one.dtype for one in arrays}) == 1:
        elements = pa.array(np.concatenate(arrays))
    else:
        elements = python_array((part for one in given for part in one), element)
    return pa.ListArray.from_arrays(_offsets(lists), elements)


def _items(value: Any) -> list[Any]:
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"{shown(value)} is no list")
    return list(value)


def _offsets(lists: Sequence[Any]) -> pa.Array:
    """Return where each list begins; null for a null, as `from_arrays` of Arrow takes them."""
    offsets, end = [], 0
    for one in lists:
        offsets.append(None if one is None else end)
        end += 0 if one is None else len(one)
    return pa.array([*offsets, end], pa.int32())


# ---------------------------------------------------------------- values without parts


def _plain(values: Sequence[Any], shape: pa.DataType | None) -> pa.Array:
    kinds = {type(value) for value in values} - {type(None)}

    def has(of: type) -> bool:
        return any(issubclass(kind, of) for kind in kinds)

    if has(pa.Scalar):
        return _plain([value.as_py() if isinstance(value, pa.Scalar) else value for value in values], shape)
    for family in (date, time, timedelta):  # a datetime is a date
        if has(family):
            _check_all(kinds, family)
    if has(datetime):
        return _times([_at_midnight(value) for value in values])
    if has(time) and any(isinstance(value, time) and value.tzinfo is not None for value in values):
        raise ValueError("a time of day has a time zone, which no column keeps; remove it: replace(tzinfo=None)")
    if shape is not None and pa.types.is_decimal(shape) and has(int) and not has(bool):
        return pa.array([Decimal(value) if isinstance(value, int) else value for value in values])
    return pa.array(values)


def _check_all(kinds: Iterable[type], family: type) -> None:
    """Raise TypeError for values of another family. Arrow takes a number among times for one of them."""
    for kind in kinds:
        if not issubclass(kind, family):
            raise TypeError(f"a value is of type {kind.__name__}, and others are of type {family.__name__}")


def _at_midnight(value: Any) -> Any:
    """Return a date as a datetime. Arrow makes a column of dates of both, and drops the times of day."""
    return datetime.combine(value, time()) if type(value) is date else value


def _times(values: Sequence[Any]) -> pa.Array:
    has_zone = {value.tzinfo is not None for value in values if isinstance(value, datetime)}
    if len(has_zone) > 1:
        raise ValueError("some times have a time zone, and others none, so they are not instants; give all of them one")
    zone = "UTC" if True in has_zone else None
    if not any(getattr(value, "nanosecond", 0) for value in values):
        return pa.array(values)
    counts = pa.array([None if value is None else _nanoseconds(value) for value in values], pa.int64())
    return counts.cast(pa.timestamp("ns", zone))


def _nanoseconds(value: datetime) -> int:
    """Return the nanoseconds since 1970 of a pandas Timestamp, which may have more digits than a datetime."""
    own = value if value.tzinfo is None else value.astimezone(UTC)
    plain: datetime = own.to_pydatetime(warn=False) if hasattr(own, "to_pydatetime") else own
    return (plain.replace(tzinfo=None) - _EPOCH) // _MICROSECOND * 1000 + int(getattr(own, "nanosecond", 0))
