"""JSON to BOOLEAN, the integers and the floating point types.

Decodes values of MySQL's ENUM and SET that are sent as numbers, as they are in the binlog.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.connect_schema import DOUBLE_WORDS, FLOAT_WORDS, JSON_VALUE, SemanticType, SourceType
from tidelake.ingest.formats.values.binaries import bits_as_int
from tidelake.ingest.formats.values.decimals import decimal_that_holds, exact_decimal, significant_digits, unsigned
from tidelake.ingest.formats.values.json_text import (
    BadValue,
    JsonKind,
    TooNarrow,
    ValueDecoder,
    kind_of,
    read_text,
    shown,
    wrong_kind_error,
)
from tidelake.storage.model.types import BIGINT, DOUBLE, INT, SMALLINT, STRING, AtomicType, DataType, Root

_TRUE: Final = frozenset({"t", "true", "y", "yes", "1"})
_FALSE: Final = frozenset({"f", "false", "n", "no", "0"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,400}")
_BITS_OF: Final = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}
_WIDER_INTEGERS: Final = ((16, SMALLINT), (32, INT), (64, BIGINT))
_SPECIAL: Final = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_FLOAT_DIGITS_MAX: Final = 767  # the longest exact decimal form of a 64-bit float
_FLOATING_WORDS: Final = ("", JSON_VALUE.connect, *FLOAT_WORDS, *DOUBLE_WORDS)
_DECIMAL_SEMANTICS: Final = frozenset({SemanticType.DECIMAL, SemanticType.VARIABLE_DECIMAL})


def boolean_decoder() -> ValueDecoder:
    """Return a decoder of booleans.

    It reads true and false, 1 and 0, and the words t, true, y, yes, f, false, n, no in any case, as Paimon's CDC does.
    """

    def decode(raw: bytes) -> bool:
        word = read_text(raw).lower() if kind_of(raw) is JsonKind.TEXT else raw.decode()
        if word in _TRUE:
            return True
        if word in _FALSE or raw == b"-0":  # JSON allows the number -0
            return False
        raise wrong_kind_error(raw, "BOOLEAN")

    return decode


def integer_decoder(source: SourceType, target: AtomicType) -> ValueDecoder:
    """Return a decoder of integers. It never rounds, and refuses numbers out of the type's range.

    It reads whole numbers, also as texts, with a zero fraction, as decimals or as bits. true is 1, and false is 0.
    """
    limit = 1 << (_BITS_OF[target.root] - 1)

    def decode(raw: bytes) -> int:
        value = _whole_number(raw, source, target)
        if not -limit <= value < limit:
            raise TooNarrow(f"{value} is out of the range of {target}", target, _integer_that_holds(value, target))
        return value

    return decode


def _integer_that_holds(value: int, target: AtomicType) -> DataType:
    for bits, wider in _WIDER_INTEGERS:
        if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            return wider
    return decimal_that_holds(Decimal(value), target)


def _whole_number(raw: bytes, source: SourceType, target: AtomicType) -> int:
    kind = kind_of(raw)
    if source.semantic_type is SemanticType.BITS and kind is JsonKind.TEXT:
        return bits_as_int(raw)
    if kind is JsonKind.BOOLEAN:
        return int(raw == b"true")
    if source.semantic_type not in _DECIMAL_SEMANTICS and kind in (JsonKind.NUMBER, JsonKind.TEXT):
        text = read_text(raw) if kind is JsonKind.TEXT else raw.decode()
        if _INTEGER.fullmatch(text):
            return unsigned(int(text)) if source.semantic_type is SemanticType.UNSIGNED else int(text)
        if kind is JsonKind.TEXT:
            raise wrong_kind_error(raw, str(target))
    number = exact_decimal(raw, source)
    if number.adjusted() > 40 or number != number.to_integral_value():
        fits = DOUBLE if source.connect in (*FLOAT_WORDS, *DOUBLE_WORDS) else decimal_that_holds(number, target)
        raise TooNarrow(f"{shown(raw)} is not a whole number in the range of {target}", target, fits)
    return int(number)


def floating_decoder(source: SourceType, target: AtomicType, rounds: bool) -> ValueDecoder:
    """Return a decoder of floating point numbers. NaN and the infinities are read from Debezium's texts.

    Without `rounds`, a number is accepted in two cases:

    - Its source type is FLOAT or DOUBLE, and the column is not narrower. Its nearest value in the column is returned.
    - No digit gets lost (`prints_exactly`).

    A number with a fraction or an exponent whose type no schema declares counts as a DOUBLE. A finite number that would
    become infinite is always refused.

    rounds: whether each number is rounded to its nearest value in the column.
    """
    narrow = target.root is Root.FLOAT
    nearest = nearest_float32 if narrow else float
    is_floating = source.connect in _FLOATING_WORDS and source.semantic_type not in _DECIMAL_SEMANTICS
    is_no_wider = is_floating and (not narrow or source.connect in FLOAT_WORDS)

    def decode(raw: bytes) -> float:
        kind = kind_of(raw)
        if kind is JsonKind.TEXT and source.semantic_type not in _DECIMAL_SEMANTICS:
            text = read_text(raw)
            if text in _SPECIAL:
                return _SPECIAL[text]
        number: Decimal | float | None  # the number that must be kept exactly; None if rounding is allowed
        if kind is JsonKind.NUMBER and is_floating and not _INTEGER.fullmatch(raw.decode()):
            text = raw.decode()
            number = None if rounds or is_no_wider else float(text)
        else:
            exact = exact_decimal(raw, source) or Decimal(0)  # JSON's -0 is an integer
            text, number = str(exact), None if rounds else exact
        value = nearest(text)
        if not np.isfinite(value):
            fits: DataType = DOUBLE if narrow and np.isfinite(float(text)) else STRING
            raise TooNarrow(f"{shown(raw)} is out of the range of {target}", target, fits)
        if isinstance(number, float) and not _float32_keeps(number, value):
            raise TooNarrow(f"{shown(raw)} has more digits than a FLOAT can hold", target, DOUBLE, can_round=True)
        if isinstance(number, Decimal) and not prints_exactly(number, value, narrow):
            fits = DOUBLE if narrow and prints_exactly(number, float(text), False) else _decimal_or_text(number)
            raise TooNarrow(f"{shown(raw)} has more digits than a {target.root} can hold", target, fits, can_round=True)
        return value

    return decode


def _decimal_or_text(number: Decimal) -> DataType:
    return decimal_that_holds(number, AtomicType(Root.DECIMAL))


def _float32_keeps(number: float, value: float) -> bool:
    """Return whether the 32-bit float `value` equals the 64-bit float `number`, or keeps its printed digits."""
    return value == number or prints_exactly(Decimal(repr(number)), value, True)


def prints_exactly(number: Decimal, value: float, narrow: bool) -> bool:
    """Return whether a float prints as a number.

    It is printed with as many digits as the number has, and with as few digits as distinguish it from other floats.

    narrow: whether the float has 32 bits.
    """
    digits = significant_digits(number)
    if digits > _FLOAT_DIGITS_MAX:  # no float has so many significant digits
        return False
    printed = Decimal(f"{value:.{digits - 1}e}")
    return printed == number or Decimal(str(np.float32(value)) if narrow else repr(value)) == number


def nearest_float32(text: str) -> float:
    """Return the 32-bit float nearest to a decimal number; infinite for a number beyond the range of floats."""
    double = float(text)
    if rounds_twice(np.array([double]))[0]:
        nearest: float = pa.scalar(text).cast(pa.float32()).as_py()
        return nearest
    with np.errstate(over="ignore"):
        return float(np.float32(double))


def rounds_twice(doubles: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return flags of doubles whose conversion to a 32-bit float may not give the float nearest to the original digits.

    The digits were rounded once to a double, and the conversion rounds a second time. This can be wrong for a double
    half way between two floats, and for any double near zero, where floats have fewer bits.
    """
    half_way = (doubles.view(np.uint64) & np.uint64(2**29 - 1)) == 2**28
    near_zero = (np.abs(doubles) < np.finfo(np.float32).tiny) & (doubles != 0)
    may_differ: NDArray[np.bool_] = half_way | near_zero
    return may_differ


_DIGITS_MAX = 20  # decimal digits of a 64-bit integer


def by_name(source: SourceType, decode: ValueDecoder) -> ValueDecoder:
    """Return a decoder that replaces numbers by labels and passes the result to `decode`.

    The number of an ENUM becomes its label. The bits of a SET become its labels, separated by commas. A text that is
    not a number is assumed to contain labels already. ENUM 0 is the empty text that MySQL stores for a refused value.
    """

    def named(raw: bytes) -> object:
        text = read_text(raw) if kind_of(raw) is JsonKind.TEXT else raw.decode()
        if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
            return decode(raw)
        number = int(text)
        label = _flags(number, source.flags, raw) if source.flags else _label(number, source.labels, raw)
        return decode(msgspec.json.encode(label))

    return named


def _label(number: int, labels: Sequence[str], raw: bytes) -> str:
    if number > len(labels):
        raise BadValue(f"{shown(raw)} is not the number of a label: the ENUM has {len(labels)} labels")
    return labels[number - 1] if number else ""


def _flags(number: int, flags: Sequence[str], raw: bytes) -> str:
    if number >> len(flags):
        raise BadValue(f"{shown(raw)} has more bits than the SET has labels, {len(flags)}")
    return ",".join(flag for i, flag in enumerate(flags) if number >> i & 1)
