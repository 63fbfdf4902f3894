"""Values as a database prints them (`expected.json` of a recording) and as a table stores them, converted to
one form.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from typing import Any, Final

import numpy as np

_EPOCH: Final = date(1970, 1, 1).toordinal()
_DAY_US: Final = 86_400_000_000
_MONTH_US: Final = int(30.4375 * _DAY_US)  # what Debezium makes of an interval's month
_CLOCK: Final = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?(Z|[+-]\d\d(?::?\d\d)?)?")
_INTERVAL: Final = re.compile(r"P(?:(\S+?)Y)?(?:(\S+?)M)?(?:(\S+?)D)?(?:T(?:(\S+?)H)?(?:(\S+?)M)?(?:(\S+?)S)?)?")


def same_value(database_type: str, printed: str | None, held: Any) -> bool:
    """Whether a cell of a table is the value that the database prints.

    held: as `to_pylist` gives it, but timestamps as microseconds since 1970, for Python's end before Arrow's do.
    """
    if printed is None or held is None:
        return printed is None and held is None
    form = _form_of(database_type)
    return bool(form(printed) == form(held))


def comparable(database_type: str, value: Any) -> Any:
    """A key's value, printed or held, in the form in which both are equal. Of an unsaid type: its text."""
    form = _form_of(database_type)
    return str(value) if form is _text else form(value)


def _form_of(database_type: str) -> Callable[[Any], Any]:
    if database_type.endswith("[]"):
        return _array(_form_of(database_type.removesuffix("[]")))
    for pattern, form in _FORMS:
        if re.fullmatch(pattern, database_type):
            return form
    return _text


def _text(value: Any) -> Any:
    return value


def _number(value: Any) -> Decimal:
    if isinstance(value, str):
        value = value.replace("$", "").replace(",", "")
    return Decimal(str(int(value) if isinstance(value, bool) else value))


def _float(value: Any, width: type[np.floating[Any]] = np.float64) -> tuple[float, float]:
    """The value and its sign: -0.0 differs from 0.0."""
    with np.errstate(over="ignore"):
        number = float(width(value.replace("Infinity", "inf") if isinstance(value, str) else value))
    return (math.inf, 0) if math.isnan(number) else (number, math.copysign(1, number))


def _float32(value: Any) -> tuple[float, float]:
    return _float(value, np.float32)


def _boolean(value: Any) -> bool:
    return value in ("t", "1", True)


def _days(value: Any) -> int:
    return (value if isinstance(value, date) else date.fromisoformat(value)).toordinal() - _EPOCH


def timestamp_us(value: Any) -> int:
    """Microseconds since 1970 of a printed time without zone."""
    if isinstance(value, int):
        return value
    day, _, clock = value.partition(" ")
    return _days(day) * _DAY_US + _clock_us(clock)


def _clock_us(value: Any) -> int:
    """Microseconds, east of Greenwich taken off; a MariaDB time may be negative, or longer than a day."""
    if isinstance(value, int):
        return value
    match = _CLOCK.fullmatch(value.isoformat() if isinstance(value, time) else value)
    assert match is not None, value
    sign, hours, minutes, seconds, fraction, zone = match.groups()
    total = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int(f"{fraction or 0:0<6}")
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        east = (int(digits[:2]) * 60 + int(digits[2:])) * 60_000_000
        total = (total + (east if zone[0] == "-" else -east)) % _DAY_US
    return -total if sign else total


def _interval_us(value: Any) -> int:
    if isinstance(value, int):
        return value
    match = _INTERVAL.fullmatch(value)
    assert match is not None, value
    years, months, days, hours, minutes, seconds = (Decimal(part or 0) for part in match.groups())
    clock = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return int((years * 12 + months) * _MONTH_US + clock * 1_000_000)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else bytes.fromhex(value.removeprefix("\\x"))


def _bits(value: Any) -> int | bool:
    if isinstance(value, bool):
        return int(value)
    return int.from_bytes(value, "big") if isinstance(value, bytes) else int(value or "0", 2)


def _array(element: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def form(value: Any) -> list[Any]:
        members = _array_members(value) if isinstance(value, str) else value
        return [None if member is None else element(member) for member in members]

    return form


def _array_members(printed: str) -> list[str | None]:
    """PostgreSQL's `{a,"b c",NULL}`."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', printed)
    return [
        re.sub(r"\\(.)", r"\1", quoted) if plain == "" else (None if plain == "NULL" else plain)
        for quoted, plain in found
    ]


def _hstore(value: Any) -> dict[str, str | None]:
    """PostgreSQL's `"k"=>"v", "n"=>NULL`, JSON, or the pairs of a map."""
    if not isinstance(value, str):
        return dict(value)
    if value.startswith("{"):
        members: dict[str, str | None] = json.loads(value)
        return members
    return {key: None if plain else text for key, text, plain in re.findall(r'"([^"]*)"=>(?:"([^"]*)"|(NULL))', value)}


def _set(value: Any) -> list[str]:
    members = value.split(",") if isinstance(value, str) else value
    return [member for member in members if member]


def _point(value: Any) -> tuple[float, float]:
    """`(1.5,-2)`, `POINT(1.5 -2)` or Debezium's struct, also as JSON."""
    if isinstance(value, str) and value.startswith("{"):
        value = json.loads(value)
    if isinstance(value, dict):
        return value["x"], value["y"]
    x, y = re.findall(r"-?[\d.]+", value)
    return float(x), float(y)


_FORMS: Final = (
    (r"bit varying|bit\(.*\)", _bits),
    (r"(big|small|medium|tiny)?int(eger)?(\(.*\))?( unsigned)?( zerofill)?|year.*", _number),
    (r"numeric.*|decimal.*|money", _number),
    (r"real|float.*", _float32),
    (r"double.*", _float),
    (r"boolean", _boolean),
    (r"date", _days),
    (r"timestamp.*|datetime.*", timestamp_us),
    (r"time(\(.*\))?( with(out)? time zone)?", _clock_us),
    (r"interval", _interval_us),
    (r"bytea|(var)?binary.*|(tiny|medium|long)?blob", _bytes),
    (r"hstore", _hstore),
    (r"set.*", _set),
    (r"point", _point),
)
