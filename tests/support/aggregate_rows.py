"""Row-by-row aggregate functions, written from the rules, to compare the columnar ones with.

Values are Python's: Decimal for decimals, NumPy scalars for floats (their width counts), dicts for rows, lists of pairs
for maps. None is null. Shares nothing with the product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

EXACT = Context(prec=200, rounding=ROUND_HALF_UP)


class Refused(Exception):
    """The function does not take this row."""


class Function:
    """reset, agg, agg_reversed and retract, as Java names them."""

    def __init__(self, agg: Callable[[Any, Any], Any], retract: Callable[[Any, Any], Any] | None = None) -> None:
        self._agg = agg
        self._retract = retract
        self.swaps = True
        self.ignores_retract = False

    def reset(self) -> None:
        pass

    def agg(self, acc: Any, x: Any) -> Any:
        return self._agg(acc, x)

    def agg_reversed(self, acc: Any, x: Any) -> Any:
        return self.agg(x, acc) if self.swaps else self.agg(acc, x)

    def retract(self, acc: Any, x: Any) -> Any:
        if self.ignores_retract:
            return acc
        if self._retract is None:
            raise Refused
        return self._retract(acc, x)


def fold(function: Function, rows: Sequence[tuple[str, Any]]) -> Any:
    """rows: (what, value); what is agg, agg_reversed, retract, set or skip."""
    function.reset()
    acc = None
    for what, x in rows:
        match what:
            case "agg":
                acc = function.agg(acc, x)
            case "agg_reversed":
                acc = function.agg_reversed(acc, x)
            case "retract":
                acc = function.retract(acc, x)
            case "set":
                acc = x
    return acc


def function(name: str, column: str, options: Mapping[str, str]) -> Function:
    """column: SQL text of the type. options: without `fields.<column>.`."""
    made = _made(name, column, options)
    if options.get("ignore-retract") == "true":
        made.ignores_retract = True
        made.swaps = True
    return made


def _made(name: str, column: str, options: Mapping[str, str]) -> Function:
    distinct = options.get("distinct") == "true"
    match name:
        case "sum":
            number = _number(column)
            return Function(_picking(number.add), number.subtract_from)
        case "product":
            number = _number(column)
            return Function(_picking(number.multiply), number.divide)
        case "max" | "bool_or":
            return Function(_picking(lambda a, x: x if _sort_key(a) < _sort_key(x) else a))
        case "min" | "bool_and":
            return Function(_picking(lambda a, x: a if _sort_key(a) < _sort_key(x) else x))
        case "last_value":
            return Function(lambda a, x: x, lambda a, x: None)
        case "last_non_null_value":
            return Function(lambda a, x: a if x is None else x, lambda a, x: a if x is None else None)
        case "first_value":
            return _First(lambda x: True)
        case "first_non_null_value":
            return _First(lambda x: x is not None)
        case "primary-key":
            return Function(lambda a, x: x, lambda a, x: x)
        case "listagg":
            return Function(_listagg(options.get("list-agg-delimiter", ","), distinct))
        case "collect":
            collect = Function(_collect(distinct), _without_elements)
            collect.swaps = False
            return collect
        case "merge_map":
            return Function(
                _picking(lambda a, x: list({**dict(a), **dict(x)}.items())),
                lambda a, x: a if a is None or not x else [e for e in a if e[0] not in dict(x)],
            )
        case "merge_map_with_keytime":
            return Function(_picking(_by_time(options["ts-field"])))
        case "nested_update":
            nested = _Nested(options)
            return Function(nested.update, nested.retract)
        case "nested_partial_update":
            return Function(_Nested(options).patch)
    raise AssertionError(name)


def _picking(both: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Null and something are something."""
    return lambda a, x: x if a is None else a if x is None else both(a, x)


class _First(Function):
    def __init__(self, counts: Callable[[Any], bool]) -> None:
        super().__init__(self._first)
        self._counts = counts
        self.reset()

    def reset(self) -> None:
        self._initialised = False

    def _first(self, acc: Any, x: Any) -> Any:
        if self._initialised or not self._counts(x):
            return acc
        self._initialised = True
        return x


# ---------------------------------------------------------------- numbers


def _sort_key(x: Any) -> Any:
    """Floats: -0.0 before 0.0, NaN last; text by its bytes."""
    if isinstance(x, np.floating):
        return (bool(np.isnan(x)), float(0 if np.isnan(x) else x), 0 if np.signbit(x) else 1)
    return x.encode() if isinstance(x, str) else x


def _number(column: str) -> _Integers | _Floats | _Decimals:
    if column.startswith("DECIMAL"):
        precision, scale = column.removeprefix("DECIMAL(").removesuffix(")").split(",")
        return _Decimals(int(precision), int(scale))
    bits = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
    return _Integers(bits[column]) if column in bits else _Floats()


class _Integers:
    def __init__(self, bits: int) -> None:
        self._limit = 1 << (bits - 1)

    def _checked(self, n: int) -> int:
        if not -self._limit <= n < self._limit:
            raise Refused
        return n

    def add(self, a: int, x: int) -> int:
        return self._checked(a + x)

    def subtract_from(self, a: int | None, x: int | None) -> int | None:
        if x is None:
            return a
        return self._checked((a or 0) - x)

    def multiply(self, a: int, x: int) -> int:
        return self._checked(a * x)

    def divide(self, a: int | None, x: int | None) -> int | None:
        if a is None or x is None:
            return a
        if x == 0:
            raise Refused
        return self._checked(math.trunc(Fraction(a, x)))


class _Floats:
    def add(self, a: Any, x: Any) -> Any:
        with np.errstate(all="ignore"):
            return a + x

    def subtract_from(self, a: Any, x: Any) -> Any:
        with np.errstate(all="ignore"):
            return a if x is None else -x if a is None else a - x

    def multiply(self, a: Any, x: Any) -> Any:
        with np.errstate(all="ignore"):
            return a * x

    def divide(self, a: Any, x: Any) -> Any:
        with np.errstate(all="ignore"):
            return a if a is None or x is None else a / x


class _Decimals:
    def __init__(self, precision: int, scale: int) -> None:
        self._precision, self._scale = precision, scale

    def _fitting(self, n: Decimal) -> Decimal | None:
        rounded = EXACT.quantize(n, Decimal(1).scaleb(-self._scale))
        return rounded if rounded.scaleb(self._scale, EXACT).copy_abs() < 10**self._precision else None

    def _sum(self, n: Decimal) -> Decimal | None:
        """Up to 18 digits, 64 bits are the only limit."""
        if self._precision <= 18 and -(2**63) <= n.scaleb(self._scale, EXACT) < 2**63:
            return n
        return self._fitting(n)

    def add(self, a: Decimal, x: Decimal) -> Decimal | None:
        return self._sum(EXACT.add(a, x))

    def subtract_from(self, a: Decimal | None, x: Decimal | None) -> Decimal | None:
        if x is None:
            return a
        return self._fitting(EXACT.minus(x)) if a is None else self._sum(EXACT.subtract(a, x))

    def multiply(self, a: Decimal, x: Decimal) -> Decimal | None:
        return self._fitting(EXACT.multiply(a, x))

    def divide(self, a: Decimal | None, x: Decimal | None) -> Decimal | None:
        if a is None or x is None:
            return a
        if x == 0:
            raise Refused
        quotient = EXACT.divide(a, x)
        if Fraction(quotient) * Fraction(x) != Fraction(a):
            raise Refused
        return self._fitting(quotient)


# ---------------------------------------------------------------- texts, arrays, maps


def _is_blank(text: str) -> bool:
    java = {*range(0x09, 0x0E), *range(0x1C, 0x21), 0x1680, *range(0x2000, 0x2007), *range(0x2008, 0x200B)}
    java |= {0x2028, 0x2029, 0x205F, 0x3000}
    return all(ord(c) in java for c in text)


def _listagg(delimiter: str, distinct: bool) -> Callable[[Any, Any], Any]:
    def join(a: str | None, x: str | None) -> str | None:
        if x is None or _is_blank(x):
            return a
        if a is None or _is_blank(a):
            return x
        if not distinct:
            return a + delimiter + x
        seen = a.split(delimiter)
        for part in x.split(delimiter):
            if not _is_blank(part) and part not in seen:
                seen.append(part)
                a += delimiter + part
        return a

    return join


def _collect(distinct: bool) -> Callable[[Any, Any], Any]:
    def collect(a: list[Any] | None, x: list[Any] | None) -> list[Any] | None:
        if a is None and x is None:
            return None
        if not distinct:
            return [*(a or []), *(x or [])]
        once: list[Any] = [*(a or [])] if any(isinstance(e, dict) for e in [*(a or []), *(x or [])]) else []
        for element in [*(a or []), *(x or [])]:
            if element not in once:
                once.append(element)
        return once

    return collect


def _without_elements(a: list[Any] | None, x: list[Any] | None) -> list[Any] | None:
    if a is None or not x:
        return a
    gone, kept = list(x), []
    for element in a:
        if element in gone:
            gone.remove(element)
        else:
            kept.append(element)
    return kept


def _by_time(ts_field: str) -> Callable[[Any, Any], Any]:
    def merge(a: list[Any], x: list[Any]) -> list[Any]:
        merged = dict(a)
        for key, row in x:
            if row is None:
                merged.pop(key, None)
            elif row[ts_field] is not None:
                known = merged.get(key)
                if known is None or known[ts_field] is None or row[ts_field] > known[ts_field]:
                    merged[key] = row
        return list(merged.items())

    return merge


class _Nested:
    """Rows are dicts; a table of them is kept by key."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._key = options["nested-key"].split(",") if "nested-key" in options else []
        self._sequence = options["nested-sequence-field"].split(",") if "nested-sequence-field" in options else []
        self._limit = int(options.get("count-limit", 2**31 - 1))
        self._strategy = options.get("nested-key-null-strategy", "merge")

    def update(self, a: list[Any] | None, x: list[Any] | None) -> list[Any] | None:
        if x is None:
            return a
        if not self._key:
            room = self._limit - len(a or [])  # nulls take room too
            if a is not None and room <= 0:
                return a
            return [row for row in a or [] if row is not None] + [row for row in x if row is not None][:room]
        table: dict[Any, Any] = {}
        for row in self._counting(a or []):
            self._put(table, row, limited=False)
        for row in self._counting(x):
            self._put(table, row, limited=True)
        return list(table.values())

    def retract(self, a: list[Any] | None, x: list[Any] | None) -> list[Any] | None:
        if a is None or x is None:
            return a
        if not self._key:
            return [row for row in a if row is not None and row not in x]
        gone = [self._key_of(row) for row in self._counting(x)]
        table = {self._key_of(row): row for row in self._counting(a)}
        return [row for key, row in table.items() if key not in gone]

    def patch(self, a: list[Any] | None, x: list[Any] | None) -> list[Any] | None:
        if x is None:
            return a
        table: dict[Any, Any] = {}
        for row in self._counting([*(a or []), *x]):
            known = table.setdefault(self._key_of(row), dict.fromkeys(row))
            known.update({name: value for name, value in row.items() if value is not None})
        return list(table.values())

    def _put(self, table: dict[Any, Any], row: Any, *, limited: bool) -> None:
        key = self._key_of(row)
        if key in table:
            if not self._sequence or self._age(row) >= self._age(table[key]):
                table[key] = row
        elif not limited or len(table) < self._limit:
            table[key] = row

    def _key_of(self, row: Any) -> Any:
        return tuple(row[name] for name in self._key)

    def _age(self, row: Any) -> Any:
        return [(row[name] is not None, row[name] or 0) for name in self._sequence]

    def _counting(self, rows: list[Any]) -> list[Any]:
        counting = []
        for row in rows:
            if row is None:
                continue
            if None in self._key_of(row):
                if self._strategy == "error":
                    raise Refused
                if self._strategy == "ignore":
                    continue
            counting.append(row)
        return counting
