"""The syntax of Paimon's option values: sizes, durations, maps, booleans, numbers.

The `parse_` functions ignore blanks around a text, because existing tables may have them. Java ignores blanks only for
a few types; `OptionType.check` reports what Java would not parse.

Source: Java `options/MemorySize.java`, `utils/TimeUtils.java`, `options/OptionsUtils.java`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelake.errors import BadInput


@dataclass(frozen=True, slots=True)
class OptionType:
    """A type of option values.

    name: for people.
    check: raises BadInput for a text that Java would not parse.
    parse: returns the value of a text, even of one that Java would not parse but existing tables may have.
    words: all possible values, if they are words.
    unset: the value of an option that is not set and has no default.
    """

    name: str
    check: Callable[[str], object]
    parse: Callable[[str], object]
    words: tuple[str, ...] = ()
    unset: object = None


_WHOLE_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
_FRACTION: Final = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_INT_LIMIT: Final = 1 << 31
_LONG_LIMIT: Final = 1 << 63
_NUMBER_AND_UNIT: Final = re.compile(r"\s*([0-9]{1,19})\s*([A-Za-zµ]*)\s*")

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
    """Parse `64 kb`, `128MB`, `500` (bytes). Units are powers of 1024. Raises BadInput."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2].lower() not in _BYTES_PER_UNIT:
        raise BadInput(f"{text!r} is not a size; write a whole number and b, kb, mb, gb or tb")
    return _within(int(match[1]) * _BYTES_PER_UNIT[match[2].lower()], _LONG_LIMIT)


def parse_duration_ms(text: str) -> int:
    """Parse `10 s`, `1h`, `500` (milliseconds). Fractions of a millisecond are cut off. Raises BadInput."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2].lower() not in _NANOS_PER_UNIT:
        raise BadInput(f"{text!r} is not a duration; write a whole number and d, h, min, s or ms")
    return _within(int(match[1]) * _NANOS_PER_UNIT[match[2].lower()] // 1_000_000, _LONG_LIMIT)


def parse_boolean(text: str) -> bool:
    """Parse `true` or `false`, in any case. Raises BadInput."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise BadInput(f"{text!r} is neither true nor false")


def parse_int(text: str) -> int:
    """Parse a whole number of 32 bits. Raises BadInput."""
    return _whole_number(text, _INT_LIMIT)


def parse_long(text: str) -> int:
    """Parse a whole number of 64 bits. Raises BadInput."""
    return _whole_number(text, _LONG_LIMIT)


def parse_fraction(text: str) -> float:
    """Parse a number such as `0.7`. Raises BadInput."""
    if _FRACTION.fullmatch(text) is None:
        raise BadInput(f"{text!r} is not a number")
    return float(text)


def _whole_number(text: str, limit: int) -> int:
    if _WHOLE_NUMBER.fullmatch(text) is None:
        raise BadInput("expected a whole number")
    return _within(int(text), limit)


def _within(number: int, limit: int) -> int:
    if not -limit <= number < limit:
        raise BadInput(f"{number} is too large; the largest number is {limit - 1}")
    return number


def parse_map(text: str) -> dict[str, str]:
    """Parse `0:avro,3:parquet`. Raises BadInput."""
    pairs = [part.split(":", 1) for part in text.split(",") if part.strip()]
    if any(len(pair) != 2 for pair in pairs):
        raise BadInput(f"{text!r} is not a list of key:value pairs separated by commas")
    return {key.strip(): value.strip() for key, value in pairs}


def parse_names(text: str) -> tuple[str, ...]:
    """Parse `a, b` to ("a", "b")."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


# ---------------------------------------------------------------- as Java parses them


def _unpadded(parse: Callable[[str], object]) -> Callable[[str], object]:
    """Return a parser that rejects surrounding blanks, for types whose blanks Java does not remove."""

    def parse_exactly(text: str) -> object:
        if text != text.strip():
            raise BadInput(f"Java does not ignore the spaces; write {text.strip()!r}")
        return parse(text)

    return parse_exactly


def _parse_word(text: str) -> str:
    return text.strip().lower()


def one_of(*words: str) -> OptionType:
    """Return a type whose value is one of the words, in lower or upper case."""

    def check(text: str) -> str:
        if text.lower() not in words:
            raise BadInput(f"expected one of {', '.join(words)}; Java accepts no other spelling")
        return text.lower()

    return OptionType(", ".join(words), check, _parse_word, words)


def _columns(text: str) -> tuple[str, ...]:
    names = parse_names(text)
    if len(names) <= text.count(","):
        raise BadInput("a name is empty; name a column, or unset the option")
    return names


def _exact_columns(text: str) -> tuple[str, ...]:
    names = _columns(text)
    if ",".join(names) != text:
        raise BadInput(f"Java does not ignore the spaces; write {','.join(names)!r}")
    return names


BOOLEAN: Final = OptionType("boolean", _unpadded(parse_boolean), parse_boolean, ("true", "false"), unset=False)
INT: Final = OptionType("int", _unpadded(parse_int), parse_int)
LONG: Final = OptionType("long", _unpadded(parse_long), parse_long)
FRACTION: Final = OptionType("number", parse_fraction, parse_fraction)
SIZE: Final = OptionType("size", parse_size_bytes, parse_size_bytes)
DURATION: Final = OptionType("duration", parse_duration_ms, parse_duration_ms)
MAP: Final = OptionType("map", parse_map, parse_map, unset={})
COLUMNS: Final = OptionType("columns", _columns, parse_names, unset=())  # blanks around names are removed
EXACT_COLUMNS: Final = OptionType("columns", _exact_columns, parse_names, unset=())
WORD: Final = OptionType("word", _unpadded(str), str.strip)  # its valid words depend on more than the type
TEXT: Final = OptionType("text", str, str)
