"""Compares a column of dates or times with any date or time exactly, as a comparison with a value of its own type.

    DATE < 2026-05-01 12:00   is   DATE <= 2026-05-01         TIME(3) > 12:00:00.0005   is   TIME(3) > 12:00:00.000

Arrow alone can't do this: its cast of a time to a date drops the time of day, and it refuses finer or farther times.
Times without a time zone are compared as times of UTC.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

import pyarrow as pa

from tidelake.storage.read.number_comparison import nearest_comparison

_NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY: Final = 86_400 * 10**9  # nanoseconds
_TIME_OF_DAY: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,9}))?)?")


def is_time_type(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind))


def time_of_text(text: str, kind: pa.DataType) -> pa.Scalar | None:
    """Return the date or time that a text means beside a column of type `kind`; None if it means none."""
    if pa.types.is_time(kind):
        found = _TIME_OF_DAY.fullmatch(text)
        if found is None:
            return None
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[:3])
        fraction = int((found[4] or "").ljust(9, "0"))
        return pa.scalar(((hours * 60 + minutes) * 60 + seconds) * 10**9 + fraction, pa.time64("ns"))
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    for other in (kind, pa.timestamp("us", zone), pa.timestamp("ns", zone)):
        with suppress(pa.ArrowException):
            return pa.scalar(text).cast(other)
    return None


def same_time_comparison(operator: str, value: pa.Scalar, kind: pa.DataType) -> tuple[str, pa.Scalar] | None:
    """Return (operator, value of type `kind`) that holds for the same values of that type as `operator value`.

    Return None if one is a time of day, and the other is not.
    """
    if not is_time_type(value.type) or pa.types.is_time(value.type) != pa.types.is_time(kind):
        return None
    unit = _nanoseconds(kind)
    units, rest = divmod(value.value * _nanoseconds(value.type), unit)
    lowest, highest = _range(kind)
    if not rest and lowest <= units <= highest:
        return operator, pa.scalar(units, kind)
    operator, units = nearest_comparison(operator, min(units, highest), lowest)
    return operator, pa.scalar(units, kind)


def _nanoseconds(kind: pa.DataType) -> int:
    """Return the nanoseconds of the unit in which a type counts."""
    if pa.types.is_date(kind):
        return _DAY if pa.types.is_date32(kind) else 10**6
    return _NANOSECONDS[kind.unit]


def _range(kind: pa.DataType) -> tuple[int, int]:
    """Return the smallest and the largest value, in units of the type."""
    if pa.types.is_time(kind):
        return 0, _DAY // _nanoseconds(kind) - 1
    return 1 - (1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1  # the smallest timestamp of all means no time
