"""Converts columns of several types to times, for functions such as `year` and `date_format`.

Source: Paimon `cdc/Expression.java`, which reads texts. Here the columns already have types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.model.types import INTEGER_ROOTS, STRING_ROOTS, TIMESTAMP_ROOTS, DataType, Root

UNIT_OF_PRECISION: Final[Mapping[int, str]] = {0: "s", 3: "ms", 6: "us", 9: "ns"}
PARTS: Final[Mapping[str, Callable[[pa.Array], pa.Array]]] = {
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}
_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_MONTHS: Final = "January February March April May June July August September October November December"
_DAYS: Final = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"


def check_temporal(column_type: DataType, precision: int | None, where: str) -> None:
    """Raise BadInput for a column that can't hold times.

    precision: the precision of epoch times, which is the last argument of the function.
    """
    if precision is not None and precision not in UNIT_OF_PRECISION:
        raise BadInput(
            f"{where}: the precision of epoch times must be 0 (s), 3 (ms), 6 (µs) or 9 (ns), not {precision}"
        )
    if precision is None and column_type.root in (*TIMESTAMP_ROOTS, Root.DATE):
        return
    if column_type.root not in INTEGER_ROOTS and column_type.root not in STRING_ROOTS:
        remedy = "leave the precision out" if precision is not None else "name a column with times"
        raise BadInput(f"{where}: a {column_type} can't hold epoch times, dates or timestamps; {remedy}")


def times(column: pa.Array, precision: int | None) -> pa.Array:
    """Return the column as timestamps without a time zone. Times with a zone are converted to UTC.

    Raises ArrowInvalid for a text that is no time.
    """
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp(column.type.unit, "UTC")).cast(pa.timestamp(column.type.unit))
    if pa.types.is_date(column.type):
        return column.cast(pa.timestamp("s"))
    if pa.types.is_string(column.type) and precision is None:
        return column.cast(pa.timestamp("us"))
    return column.cast(pa.int64()).view(pa.timestamp(UNIT_OF_PRECISION[precision or 0]))


def formatter(pattern: str, where: str) -> Callable[[pa.Array], pa.Array]:
    """Return a function that formats timestamps by a pattern of Java's `DateTimeFormatter`.

    Raises BadInput for pattern letters that are not supported.
    """
    parts: list[Callable[[pa.Array], Any]] = []
    end = 0
    for token in _TOKEN.finditer(pattern):
        if token.start() != end:
            break
        end, text = token.end(), token[0]
        if token[1] is not None:
            parts.append(_literal(token[1].replace("''", "'") or "'"))
        elif token[2] is None:
            parts.append(_literal(text))
        else:
            part = _part(text)
            if part is None:
                raise BadInput(f"{where}: {text!r} in the pattern {pattern!r} is not one of y M d H h m s S E a D")
            parts.append(part)
    if end != len(pattern):
        raise BadInput(f"{where}: the pattern {pattern!r} has an unclosed quote")
    return lambda moments: pc.binary_join_element_wise(*[part(moments) for part in parts], "")


def _literal(text: str) -> Callable[[pa.Array], pa.Scalar]:
    return lambda _: pa.scalar(text)


def _number(get: Callable[[pa.Array], pa.Array], width: int) -> Callable[[pa.Array], pa.Array]:
    return lambda moments: pc.utf8_lpad(get(moments).cast(pa.string()), width, "0")


def _name(get: Callable[[pa.Array], pa.Array], names: str, *, short: bool) -> Callable[[pa.Array], pa.Array]:
    known = pa.array([name[:3] if short else name for name in names.split(" ")])
    return lambda moments: known.take(get(moments))


def _part(letters: str) -> Callable[[pa.Array], pa.Array] | None:
    n = len(letters)
    match letters[0]:
        case "y" | "u":
            return _year(n)
        case "M" | "L" if n > 2:
            return _name(lambda t: pc.subtract(pc.month(t), 1), _MONTHS, short=n == 3)
        case "M" | "L":
            return _number(pc.month, n)
        case "d":
            return _number(pc.day, n)
        case "D":
            return _number(pc.day_of_year, n)
        case "H":
            return _number(pc.hour, n)
        case "h":
            return _number(_hour_of_12, n)
        case "m":
            return _number(pc.minute, n)
        case "s":
            return _number(pc.second, n)
        case "S" if n <= 9:
            return lambda t: pc.utf8_slice_codeunits(_nanoseconds(t), 0, n)
        case "E":
            return _name(pc.day_of_week, _DAYS, short=n <= 3)
        case "a" if n == 1:
            return lambda t: pc.if_else(pc.less(pc.hour(t), 12), "AM", "PM")
        case _:
            return None


def _year(n: int) -> Callable[[pa.Array], pa.Array]:
    if n == 2:
        return lambda t: pc.utf8_slice_codeunits(pc.utf8_lpad(pc.year(t).cast(pa.string()), 4, "0"), 2)
    return _number(pc.year, n)


def _hour_of_12(moments: pa.Array) -> pa.Array:
    hours = pc.hour(moments)
    of_half = pc.subtract(hours, pc.multiply(pc.divide(hours, 12), 12))
    return pc.if_else(pc.equal(of_half, 0), 12, of_half)


def _nanoseconds(moments: pa.Array) -> pa.Array:
    thousands = [pc.millisecond(moments), pc.microsecond(moments), pc.nanosecond(moments)]
    return pc.binary_join_element_wise(*[pc.utf8_lpad(part.cast(pa.string()), 3, "0") for part in thousands], "")
