"""The values that a condition compares: those of a column or of one key of a MAP column, and literals in its type."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.read.number_comparison import as_number, is_number_type, same_comparison
from tidelake.storage.read.time_comparison import is_time_type, same_time_comparison, time_of_text


def known_column(column: str, schema: pa.Schema) -> str:
    """Return the name. Raises BadInput if the table has no such column."""
    if schema.get_field_index(column) < 0:
        raise BadInput(f"the filter names column {column!r}; the table has {', '.join(schema.names)}")
    return column


def in_type_of_column(operator: str, value: Any, column: str, kind: pa.DataType) -> tuple[str, pa.Scalar]:
    """Return (operator, value of the column's type) with the same meaning.

    kind: the column's type.

    Raises BadInput if values of the column's type can't be compared with this value.
    """
    if pa.types.is_nested(kind):
        raise BadInput(
            f"the filter compares column {column!r} ({kind}), whose values are nested: test the column with "
            "is_null(), or a field of it with pyarrow.compute.field"
        )
    if isinstance(value, pa.Scalar) and value.type == kind:
        return operator, value
    number = as_number(value)
    if number is not None and is_number_type(kind):
        return same_comparison(operator, number, kind)
    given = _as_scalar(value, column, kind)
    same = _same_meaning(operator, given, kind)
    if same is None:
        raise BadInput(f"the filter compares column {column!r} ({kind}) with {value!r} ({given.type}); {_remedy(kind)}")
    return same


def _same_meaning(operator: str, given: pa.Scalar, kind: pa.DataType) -> tuple[str, pa.Scalar] | None:
    if not given.is_valid:
        return operator, pa.scalar(None, kind)
    text = given.as_py() if _is_text(given.type) else None
    if is_time_type(kind):
        at = given if text is None else time_of_text(text, kind)
        return None if at is None else same_time_comparison(operator, at, kind)
    if pa.types.is_boolean(kind) and text is None and given.as_py() not in (0, 1):
        return None  # Arrow would cast every number but 0 to true
    if text is not None or not _is_text(kind):  # otherwise Arrow would compare texts with 5 as with "5"
        with suppress(pa.ArrowException, OverflowError):
            return operator, given.cast(kind)
    if text is not None and is_number_type(kind):
        with suppress(InvalidOperation):
            return same_comparison(operator, Decimal(text), kind)
    return None


def _remedy(kind: pa.DataType) -> str:
    """Return how a value of this type is written in a condition."""
    if pa.types.is_time(kind):
        return "write a time of day, as in '12:30:00'"
    if pa.types.is_date(kind):
        return "write a date, as in '2026-05-01'"
    if pa.types.is_timestamp(kind):
        form = ("with", "Z") if kind.tz else ("without", "")
        return f"write a time {form[0]} a time zone, as in '2026-05-01 12:00:00{form[1]}'"
    if pa.types.is_boolean(kind):
        return "write TRUE or FALSE"
    if is_number_type(kind):
        return "write a number, as in 7 or -1.5"
    return "write a text, as in 'abc'"


def _as_scalar(value: Any, column: str, kind: pa.DataType) -> pa.Scalar:
    if isinstance(value, datetime) and getattr(value, "nanosecond", None):
        # A pandas Timestamp, which Arrow returns for times with nanoseconds. Arrow would read it without nanoseconds.
        at: Any = value
        return pa.scalar(at.value if at.unit == "ns" else at.as_unit("ns").value, pa.timestamp("ns", at.tz and "UTC"))
    try:
        return value if isinstance(value, pa.Scalar) else pa.scalar(value)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        raise BadInput(f"the filter compares column {column!r} ({kind}) with {value!r}") from None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def field_path(name: str, schema: pa.Schema) -> tuple[str, ...] | None:
    """Return the column and the fields in it that a dotted name means; None if there are none.

    Names of columns and fields may contain dots. The longest name that fits is taken.
    """
    return _path(name, {column.name: column.type for column in schema})


def _path(name: str, kinds: Mapping[str, pa.DataType]) -> tuple[str, ...] | None:
    if name in kinds:
        return (name,)
    end = name.rfind(".")
    while end > 0:
        kind = kinds.get(name[:end])
        if kind is not None and pa.types.is_struct(kind):
            inner = _path(name[end + 1 :], {field.name: field.type for field in kind})
            if inner is not None:
                return (name[:end], *inner)
        end = name.rfind(".", 0, end)
    return None


def column_text(column: str, key: str | None) -> str:
    """Return the column's name as it is written in conditions."""
    if key is None:
        return column
    quoted = key.replace("'", "''")
    return f"{column}['{quoted}']"


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The values that a condition compares.

    name: the column's name as it is written in conditions
    type: the type of the values
    expression: computes the values; null where a map lacks the key
    """

    name: str
    type: pa.DataType
    expression: pc.Expression

    @classmethod
    def of(cls, column: str, key: str | None, schema: pa.Schema, path: tuple[str, ...] = ()) -> ColumnValues:
        """Raise BadInput if the schema has no such column, or if a key is given and it is no MAP with text keys.

        path: the fields of a ROW that lead to the values
        """
        kind = schema.field(known_column(column, schema)).type
        for name in path:
            kind = kind.field(name).type
        # not a nested `pc.field`: it takes the value of a field below a null as it is in memory
        field = pc.struct_field(pc.field(column), path) if path else pc.field(column)
        column = ".".join((column, *path))
        if key is None:
            return cls(column, kind, field)
        name = column_text(column, key)
        if not pa.types.is_map(kind) or not pa.types.is_string(kind.key_type):
            raise BadInput(f"the filter names {name}, but column {column!r} is {kind}, not a MAP with string keys")
        return cls(name, kind.item_type, pc.map_lookup(field, pa.scalar(key, kind.key_type), "first"))

    def comparable(self, operator: str, value: Any) -> tuple[str, pa.Scalar]:
        """Return (operator, value in the values' type) with the same meaning. Raises BadInput."""
        return in_type_of_column(operator, value, self.name, self.type)
