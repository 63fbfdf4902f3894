"""The text of a partition value, as Java writes it into directory names.

With `partition.legacy-name` (the default) it is the `toString()` of Java's internal object, otherwise SQL's cast to
STRING. Other readers compute the text again from the value in the manifest. They don't find a directory with a wrong
text.

Source: Java `utils/InternalRowPartitionComputer.java`, `casting/*ToStringCastRule.java`, `utils/DateTimeUtils.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.errors import UnsupportedFeature
from tidelake.storage.model.types.data_types import (
    BINARY_ROOTS,
    CONSTRUCTED_ROOTS,
    INTEGER_ROOTS,
    STRING_ROOTS,
    AtomicType,
    DataType,
    Root,
)

_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def partition_texts(
    values: Sequence[pa.Scalar], types: Sequence[DataType], legacy: bool, zone: tzinfo = UTC
) -> list[str | None]:
    """Return one text per value; None for null. `paths.partition_path` makes a directory of them.

    values: in the in-memory form of their types.
    legacy: option `partition.legacy-name`.
    zone: the zone that Java takes from its JVM. Only TIMESTAMP WITH LOCAL TIME ZONE without legacy names depends on it.

    Raises UnsupportedFeature for types that directory names can't represent.
    """
    return [
        partition_text(value, data_type, legacy, zone) if value.is_valid else None
        for value, data_type in zip(values, types, strict=True)
    ]


def partition_text(value: pa.Scalar, data_type: DataType, legacy: bool, zone: tzinfo = UTC) -> str:
    """Return the text of one value that is not null. See `partition_texts`."""
    root = data_type.root
    if root in INTEGER_ROOTS or root in STRING_ROOTS:
        return str(value.as_py())
    match root:
        case Root.BOOLEAN:
            return "true" if value.as_py() else "false"
        case Root.DECIMAL:
            unscaled: Decimal = value.as_py()
            return f"{unscaled:f}"
        case Root.FLOAT:
            return java_float_text(np.float32(value.as_py()))
        case Root.DOUBLE:
            return java_float_text(np.float64(value.as_py()))
        case Root.DATE:
            return str(value.value) if legacy else _sql_date(value.value)
        case Root.TIME:
            return str(value.value) if legacy else _sql_time(value.value, _precision(data_type))
        case Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
            second, fraction = divmod(value.value, _PER_SECOND[value.type.unit])
            nanos = fraction * (10**9 // _PER_SECOND[value.type.unit])
            if legacy:
                return _iso_timestamp(second, nanos)
            if root is Root.TIMESTAMP_LTZ:
                second += _offset_seconds(second, zone)
            return _sql_timestamp(second, nanos, _precision(data_type))
    raise UnsupportedFeature(
        f"partition column of type {data_type}",
        "a directory name can't hold its values"
        if root in CONSTRUCTED_ROOTS or root not in BINARY_ROOTS
        else "Java names the directory after the address of the bytes in memory, so no reader can find it",
        "Partition by a column of another type",
    )


def _precision(data_type: DataType) -> int:
    return data_type.precision if isinstance(data_type, AtomicType) else 0


# ---------------------------------------------------------------- numbers


def java_float_text(number: np.float32 | np.float64) -> str:
    """Return Java's `Float.toString` or `Double.toString`: the fewest digits, at least two, that identify the number.

    This is the text of JDK 19 and newer. Older ones print other digits for some numbers from 1E7 up and below 1E-3
    (2.0E23 as 1.9999999999999998E23). So even two Java versions may not find each other's directory for such a value.
    """
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    mantissa, _, exponent_text = np.format_float_scientific(number, unique=True, trim="-").partition("e")
    if "." not in mantissa:
        # Java prints the nearest text of two digits: 4.9E-324, though one digit would be enough (5E-324).
        mantissa, _, exponent_text = f"{float(number):.1e}".partition("e")
    exponent = int(exponent_text)
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "")
    if number == 0:
        return f"{sign}0.0"
    if not -3 <= exponent < 7:
        return f"{sign}{digits[0]}.{digits[1:]}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{_without_final_zero(digits)}"
    digits = digits.ljust(exponent + 2, "0")
    whole, fraction = digits[: exponent + 1], digits[exponent + 1 :]
    return f"{sign}{whole}.{_without_final_zero(fraction)}"


def _without_final_zero(digits: str) -> str:
    return digits.rstrip("0") or "0"


# ---------------------------------------------------------------- dates and times


def _year_month_day(epoch_day: int) -> tuple[int, int, int]:
    """Convert a day to the proleptic Gregorian calendar. Any year is allowed, whereas `datetime` supports 1 to 9999."""
    day = np.datetime64(epoch_day, "D")
    month = day.astype("datetime64[M]")
    year = day.astype("datetime64[Y]")
    return (
        int(year.astype(np.int64)) + 1970,
        int((month - year).astype(np.int64)) + 1,
        int((day - month).astype(np.int64)) + 1,
    )


def _clock(second_of_day: int) -> tuple[int, int, int]:
    return second_of_day // 3600, second_of_day // 60 % 60, second_of_day % 60


def _sql_date(epoch_day: int) -> str:
    year, month, day = _year_month_day(epoch_day)
    return f"{year % 10_000:04d}-{month:02d}-{day:02d}"  # Java also prints only the last four digits of a year


def _sql_time(milli_of_day: int, precision: int) -> str:
    """Return the time with as many fraction digits as declared, without zeros at the end, but at least one digit.

    Examples: 12:34:56.0, 12:34:56.78.
    """
    hour, minute, second = _clock(milli_of_day // 1000)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{_without_final_zero(f'{milli_of_day % 1000:03d}'[:precision])}" if precision else text


def _sql_timestamp(second: int, nanos: int, precision: int) -> str:
    hour, minute, second_of_minute = _clock(second % 86_400)
    fraction = f"{nanos:09d}"
    while len(fraction) > precision and fraction.endswith("0"):
        fraction = fraction[:-1]
    clock = f"{hour:02d}:{minute:02d}:{second_of_minute:02d}"
    return f"{_sql_date(second // 86_400)} {clock}" + (f".{fraction}" if fraction else "")


def _iso_timestamp(second: int, nanos: int) -> str:
    """Return the text of Java's `LocalDateTime.toString`: seconds only if needed, fractions of 3, 6 or 9 digits."""
    year, month, day = _year_month_day(second // 86_400)
    hour, minute, second_of_minute = _clock(second % 86_400)
    year_text = f"+{year}" if year > 9999 else f"{year:04d}" if year >= 0 else f"-{-year:04d}"
    text = f"{year_text}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}"
    if second_of_minute or nanos:
        text += f":{second_of_minute:02d}"
    if nanos:
        fraction = f"{nanos:09d}"
        text += "." + (fraction[:3] if nanos % 10**6 == 0 else fraction[:6] if nanos % 10**3 == 0 else fraction)
    return text


def _offset_seconds(epoch_second: int, zone: tzinfo) -> int:
    """Return how far `zone` is ahead of UTC. Outside of the years 1 to 9999, the offset at the nearer end is used."""
    inside = min(max(epoch_second, _FIRST_SECOND), _LAST_SECOND)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=inside)
    offset = moment.astimezone(zone).utcoffset() or timedelta(0)
    return round(offset.total_seconds())


_FIRST_SECOND: Final = -62_135_510_400  # 0001-01-02T00:00:00Z: one day inside, so that no zone leaves datetime's range
_LAST_SECOND: Final = 253_402_214_400  # 9999-12-31T00:00:00Z
