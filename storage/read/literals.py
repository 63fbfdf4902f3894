"""Converts the value that a condition compares with a column to the column's type."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

import pyarrow as pa

from tidelake.storage.base.errors import BadInput
from tidelake.storage.read.number_comparison import as_number, is_number_type, same_comparison


def known_column(column: str, schema: pa.Schema) -> str:
    """Returns the name. Raises BadInput if the table has no such column."""
    if schema.get_field_index(column) < 0:
        raise BadInput(f"the filter names column {column!r}; the table has {', '.join(schema.names)}")
    return column


def in_type_of_column(operator: str, value: Any, column: str, kind: pa.DataType) -> tuple[str, pa.Scalar]:
    """Returns (operator, value of the column's type) with the same meaning.

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
    if _is_text(given.type) or not _is_text(kind):  # otherwise Arrow would compare texts with 5 as with "5"
        with suppress(pa.ArrowException, OverflowError):
            return operator, given.cast(kind)
    raise BadInput(f"the filter compares column {column!r} ({kind}) with {value!r} ({given.type})")


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
