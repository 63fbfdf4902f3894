"""How Paimon spells the values of its options: sizes, durations, maps, booleans.

Source: Java `options/MemorySize.java`, `utils/TimeUtils.java`, `options/OptionsUtils.java`.
"""

from __future__ import annotations

import re
from typing import Final

from storage.errors import BadInput

_NUMBER_AND_UNIT: Final = re.compile(r"\s*(\d+)\s*([A-Za-z]*)\s*")

_BYTES_PER_UNIT: Final = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}

_NANOS_PER_UNIT: Final = {
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000_000),
    **dict.fromkeys(("min", "m", "minute", "minutes"), 60_000_000_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000_000),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1_000_000),
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), 1_000),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
}


def parse_size_bytes(text: str) -> int:
    """`64 kb`, `128MB`, `500` (bytes); units count in 1024s. Raises BadInput."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2].lower() not in _BYTES_PER_UNIT:
        raise BadInput(f"{text!r} is not a size; write a whole number and b, kb, mb, gb or tb")
    return int(match[1]) * _BYTES_PER_UNIT[match[2].lower()]


def parse_duration_ms(text: str) -> int:
    """`10 s`, `1h`, `500` (milliseconds). Fractions of a millisecond are cut off. Raises BadInput."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2].lower() not in _NANOS_PER_UNIT:
        raise BadInput(f"{text!r} is not a duration; write a whole number and d, h, min, s or ms")
    return int(match[1]) * _NANOS_PER_UNIT[match[2].lower()] // 1_000_000


def parse_boolean(text: str) -> bool:
    """`true` or `false`, in any case. Raises BadInput."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise BadInput(f"{text!r} is neither true nor false")


def parse_map(text: str) -> dict[str, str]:
    """`0:avro,3:parquet`. Raises BadInput."""
    pairs = [part.split(":", 1) for part in text.split(",") if part.strip()]
    if any(len(pair) != 2 for pair in pairs):
        raise BadInput(f"{text!r} is not a list of key:value pairs parted by commas")
    return {key.strip(): value.strip() for key, value in pairs}


def parse_names(text: str) -> tuple[str, ...]:
    """`a, b` -> ("a", "b")."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
