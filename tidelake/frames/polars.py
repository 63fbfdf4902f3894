"""Scans as Polars LazyFrames. Polars passes the columns, the condition and the row limit of a query to the scan."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.frames.readable import Readable, check_installed
from tidelake.storage.read.conditions import as_predicate
from tidelake.storage.read.predicate import And, Column, IsNan, Not, Or, Predicate, col

if TYPE_CHECKING:
    import polars as pl

_COMPARE: Final[dict[str, Callable[[Column, Any], Predicate]]] = {
    "Eq": lambda column, value: column == value,
    "NotEq": lambda column, value: column != value,
    "Lt": lambda column, value: column < value,
    "LtEq": lambda column, value: column <= value,
    "Gt": lambda column, value: column > value,
    "GtEq": lambda column, value: column >= value,
}


def to_polars(scan: Readable) -> pl.LazyFrame:
    check_installed("polars", "to_polars()")
    import polars as pl
    from polars.io.plugins import register_io_source

    empty = pl.from_arrow(scan.schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    source = _Source(scan, empty.schema)
    return register_io_source(source, schema=empty.schema, validate_schema=True, is_pure=True)


class _Source:
    """Reads rows for Polars, which calls it once for each collected query."""

    def __init__(self, scan: Readable, schema: pl.Schema) -> None:
        self._scan = scan
        self._schema = schema

    def __call__(
        self, columns: list[str] | None, predicate: pl.Expr | None, rows_max: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        import polars as pl

        wanted = list(self._schema) if columns is None else columns
        read = wanted if predicate is None else list(dict.fromkeys([*wanted, *predicate.meta.root_names()]))
        found = self._scan
        if predicate is not None and (condition := _pushed(predicate, self._schema, found.schema)) is not None:
            found = _narrowed(found, condition)
        found = found.select(read or list(self._schema)[:1])
        if rows_max is not None and predicate is None:
            found = found.limit(rows_max)
        left = rows_max
        for batch in found.to_batches():
            rows = pl.from_arrow(batch)
            assert isinstance(rows, pl.DataFrame)
            if predicate is not None:
                rows = rows.filter(predicate)
            rows = rows.select(wanted)
            if left is not None:
                rows = rows.head(left)
                left -= len(rows)
            yield rows
            if left == 0:
                return


def _narrowed(scan: Readable, condition: Predicate) -> Readable:
    try:
        return scan.where(condition)
    except BadInput:  # a scan with a limit: Polars applies the condition to its rows
        return scan


# ---------------------------------------------------------------- conditions of Polars


class _NotUnderstoodError(Exception):
    pass


def _pushed(predicate: pl.Expr, schema: pl.Schema, own: pa.Schema) -> Predicate | None:
    """Return a condition that each row fulfils which Polars keeps; None if no part of the expression is understood."""
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # an expression that Polars can't serialize, such as one with a Python function
        return None
    found = [condition for part in _conjuncts(tree) if (condition := _understood(part, schema, own)) is not None]
    return And(tuple(found)) if found else None


def _understood(tree: Any, schema: pl.Schema, own: pa.Schema) -> Predicate | None:
    try:
        condition = as_predicate(_condition(tree, schema), own)
        condition.expression(own)  # raises if a value does not fit its column
    except (_NotUnderstoodError, BadInput):
        return None
    return condition


def _conjuncts(tree: Any) -> Iterator[Any]:
    match tree:
        case {"BinaryExpr": {"op": "And", "left": left, "right": right}}:
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield tree


def _condition(tree: Any, schema: pl.Schema) -> Predicate:
    """Return the condition with the same truth for each row. Raises _NotUnderstoodError."""
    match tree:
        case {"BinaryExpr": {"op": "And" | "Or" as word, "left": left, "right": right}}:
            sides = (_condition(left, schema), _condition(right, schema))
            return And(sides) if word == "And" else Or(sides)
        case {"BinaryExpr": {"op": operator, "left": {"Column": name}, "right": {"Literal": _} as literal}}:
            return _comparison(operator, name, _value(literal, name, schema), schema)
        case {"Function": {"input": [inner], "function": {"Boolean": "Not"}}}:
            return Not(_condition(inner, schema))
        case {"Function": {"input": [{"Column": name}], "function": {"Boolean": "IsNull"}}}:
            return col(name).is_null()
        case {"Function": {"input": [{"Column": name}], "function": {"Boolean": "IsNotNull"}}}:
            return col(name).is_not_null()
        case {
            "Function": {
                "input": [{"Column": name}, low, high],
                "function": {"Boolean": {"IsBetween": {"closed": closed}}},
            }
        }:
            least = "GtEq" if closed in ("Both", "Left") else "Gt"
            most = "LtEq" if closed in ("Both", "Right") else "Lt"
            ends = (_value(low, name, schema), _value(high, name, schema))
            return And((_comparison(least, name, ends[0], schema), _comparison(most, name, ends[1], schema)))
        case {
            "Function": {
                "input": [{"Column": name}, {"Literal": _} as literal],
                "function": {"Boolean": {"IsIn": {"nulls_equal": False}}},
            }
        }:
            return col(name).is_in(_values(literal, name, schema))
        case {
            "Function": {
                "input": [{"Column": name}, {"Literal": _} as literal],
                "function": {"StringExpr": "StartsWith"},
            }
        }:
            return col(name).starts_with(_value(literal, name, schema).as_py())
    raise _NotUnderstoodError


def _comparison(operator: str, name: str, value: Any, schema: pl.Schema) -> Predicate:
    if operator not in _COMPARE:
        raise _NotUnderstoodError
    found = _COMPARE[operator](col(name), value)
    if schema[name].is_float() and operator in ("Gt", "GtEq"):
        return Or((found, IsNan(name)))  # Polars orders NaN above all numbers
    return found


def _value(literal: Any, name: str, schema: pl.Schema) -> Any:
    """Return the value that a column is compared with, as an Arrow scalar of its own type."""
    series = _series(literal)
    of, kind = schema[name], series.dtype
    is_same = kind == of or (kind.is_integer() and of.is_integer())
    value = series.to_arrow()[0]
    if not is_same or not value.is_valid or (kind.is_float() and series.is_nan().any()):
        raise _NotUnderstoodError
    return value


def _values(literal: Any, name: str, schema: pl.Schema) -> list[Any]:
    series = _series(literal)
    inner = series.explode() if series.dtype.is_nested() else series
    of, kind = schema[name], inner.dtype
    if not (kind == of or (kind.is_integer() and of.is_integer())) or kind.is_float() or inner.null_count():
        raise _NotUnderstoodError
    return list(inner.to_arrow())


def _series(literal: Any) -> pl.Series:
    """Return a literal as Polars has it: its serialized form differs between types."""
    import polars as pl

    try:
        return pl.select(pl.Expr.deserialize(BytesIO(json.dumps(literal).encode()), format="json")).to_series()
    except Exception:
        raise _NotUnderstoodError from None
