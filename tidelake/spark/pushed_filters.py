"""Converts filters that Spark pushes down to conditions of a scan.

A filter is accepted only if it selects the same rows.

Spark differs from the comparisons of `tidelake.storage.read.predicate` in NaN: it equals itself, and is greater than
all other values. Spark applies the filters that are not accepted to the result.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from tidelake.errors import BadInput
from tidelake.storage.read import predicate as predicates
from tidelake.storage.read.predicate import Column, Predicate, col

_ROUNDED_DIGITS: Final = 28  # PySpark rounds a filter's decimal to so many


def predicate_of(pushed: Filter, schema: pa.Schema) -> Predicate | None:
    """Return the condition that selects the same rows of this schema, alone and negated; None if there is none."""
    found = _negated(pushed.child, schema) if isinstance(pushed, Not) else _plain(pushed, schema)
    if found is None:
        return None
    try:
        found.expression(schema)
    except (BadInput, pa.ArrowException):
        return None
    return found


def _negated(inner: Filter, schema: pa.Schema) -> Predicate | None:
    if isinstance(inner, In) and None in inner.value:
        return None  # `not in (1, null)` is true for no row
    found = _plain(inner, schema)
    return None if found is None else predicates.Not(found)


def _plain(pushed: Filter, schema: pa.Schema) -> Predicate | None:
    """Return a condition that is null exactly if Spark's filter is null, so that it may be negated."""
    path: tuple[str, ...] = getattr(pushed, "attribute", ())
    if len(path) != 1 or schema.get_field_index(path[0]) < 0:
        return None
    column, kind = col(path[0]), schema.field(path[0]).type
    match pushed:
        case IsNull():
            return column.is_null()
        case IsNotNull():
            return column.is_not_null()
        case EqualNullSafe(value=None):
            return column.is_null()
        case StringStartsWith(value=str(prefix)) if pa.types.is_string(kind):
            return column.starts_with(prefix)
        case In(value=values):
            return _in(column, kind, values)
        case EqualNullSafe(value=value) if _is_comparable(value, kind):
            return column.is_not_null() & _equal(column, value)
        case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            return _compared(pushed, column, kind) if _is_comparable(pushed.value, kind) else None
    return None


def _in(column: Column, kind: pa.DataType, values: tuple[Any, ...]) -> Predicate | None:
    if not all(value is None or _is_comparable(value, kind) for value in values):
        return None
    numbers = column.is_in([value for value in values if not _is_nan(value)])
    return numbers | column.is_nan() if any(map(_is_nan, values)) else numbers


def _compared(pushed: Any, column: Column, kind: pa.DataType) -> Predicate | None:
    value = pushed.value
    if isinstance(pushed, EqualTo):
        return _equal(column, value)
    if pa.types.is_boolean(kind):
        return None
    if _is_nan(value):
        match pushed:
            case LessThan():
                return ~column.is_nan()
            case GreaterThanOrEqual():
                return column.is_nan()
        return None
    condition: predicates.Compare = _OPERATORS[type(pushed)](column, value)
    is_greater = isinstance(pushed, GreaterThan | GreaterThanOrEqual)
    return condition | column.is_nan() if is_greater and pa.types.is_floating(kind) else condition


_OPERATORS: Final[Mapping[type, Callable[[Column, Any], Any]]] = {
    GreaterThan: lambda column, value: column > value,
    GreaterThanOrEqual: lambda column, value: column >= value,
    LessThan: lambda column, value: column < value,
    LessThanOrEqual: lambda column, value: column <= value,
}


def _equal(column: Column, value: Any) -> Predicate:
    return column.is_nan() if _is_nan(value) else column == value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _is_comparable(value: Any, kind: pa.DataType) -> bool:
    """Return whether a value has the column's type, so that nothing has to be converted for a comparison."""
    match value:
        case bool():
            return bool(pa.types.is_boolean(kind))
        case int():
            return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))
        case float():
            return bool(pa.types.is_floating(kind))
        case Decimal():
            return bool(pa.types.is_decimal(kind)) and len(value.as_tuple().digits) < _ROUNDED_DIGITS
        case str():
            return bool(pa.types.is_string(kind))
        case bytes():
            return bool(pa.types.is_binary(kind))
        case dt.datetime():
            return bool(pa.types.is_timestamp(kind)) and (kind.tz is None) is (value.tzinfo is None)
        case dt.date():
            return bool(pa.types.is_date(kind))
    return False
