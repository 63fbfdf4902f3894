"""FLOAT and DOUBLE: one JSON value, a column of JSON values, a column of Avro."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.ingest.formats.connect_schema import DOUBLE_WORDS, FLOAT_WORDS, JSON_VALUE, SemanticType
from tidelake.ingest.formats.values.conversion import (
    ArrowConverter,
    ColumnDecoder,
    Conversion,
    TypeRules,
    unflagged,
    unflagged_arrow,
)
from tidelake.ingest.formats.values.decimals import decimal_that_holds, exact_decimal, significant_digits
from tidelake.ingest.formats.values.integers import check_characters
from tidelake.ingest.formats.values.json_text import (
    BadValue,
    JsonKind,
    TooNarrow,
    ValueDecoder,
    kind_of,
    read_text,
    shown,
)
from tidelake.storage.model.types import DOUBLE, STRING, AtomicType, DataType, Root

_SPECIAL: Final = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_FLOAT_DIGITS_MAX: Final = 767  # the longest exact decimal form of a 64-bit float
_FLOATING_WORDS: Final = ("", JSON_VALUE.connect, *FLOAT_WORDS, *DOUBLE_WORDS)
_DECIMAL_SEMANTICS: Final = frozenset({SemanticType.DECIMAL, SemanticType.VARIABLE_DECIMAL})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,400}")
_SAFE_DIGITS: Final = 15  # a double keeps numbers of so many digits


def _floating_decoder(conversion: Conversion) -> ValueDecoder:
    """Return a decoder of floating point numbers. NaN and the infinities are read from Debezium's texts.

    Without `rounds`, a number is accepted in two cases:

    - Its source type is FLOAT or DOUBLE, and the column is not narrower. Its nearest value in the column is returned.
    - No digit gets lost (`prints_exactly`).

    A number with a fraction or an exponent whose type no schema declares counts as a DOUBLE. A finite number that would
    become infinite is always refused.

    With `rounds`, each number is rounded to its nearest value in the column.
    """
    source, target, rounds = conversion.source, conversion.target, conversion.rounds
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


# ---------------------------------------------------------------- a column


def _floating_column_decoder(conversion: Conversion) -> ColumnDecoder | None:
    source = conversion.source
    if source.semantic_type is not SemanticType.PLAIN or source.connect not in _FLOATING_WORDS:
        return None
    if conversion.target.root is Root.DOUBLE:
        return unflagged(int | float | str | None, _doubles)
    is_nearest = conversion.rounds or source.connect in FLOAT_WORDS
    return unflagged(int | float | str | None, _float32s if is_nearest else _same_float32s)


def _doubles(values: Sequence[Any]) -> pa.Array:
    """Return an array of doubles from numbers, or from texts of numbers."""
    if set(map(type, values)) <= {str, type(None)}:
        texts = pa.array(values, pa.string())
        if (pc.max(pc.binary_length(texts)).as_py() or 0) <= _SAFE_DIGITS:
            with suppress(ValueError):  # a text with other characters, or one that Arrow can't read
                check_characters(b"-.0123456789", texts)
                return pc.add(texts.cast(pa.float64()), 0.0)  # the text -0 is an integer, so it must give 0.0
        return pa.array([None if value is None else _float_of_text(value) for value in values], pa.float64())
    return _float64s(values)


def _float64s(values: Sequence[float | str | None]) -> pa.Array:
    """Return an array of doubles. Arrow refuses integers above 2**53, which may have more digits than a double."""
    try:
        return pa.array(values, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # texts among them: NaN and the infinities
        return pa.array([_special_float(v) if type(v) is str else v for v in values], pa.float64())


def _float_of_text(text: str) -> float:
    """Return the double of a number's text if the double keeps all digits. Raises BadValue for any other text."""
    if text in _SPECIAL:
        return float(text)
    if not text.isascii() or text.strip("+-.0123456789"):
        raise BadValue(f"text {text!r} is left to the value decoder")
    value = float(text) + 0.0  # the text -0 is an integer, so it must give 0.0
    if len(text) > _SAFE_DIGITS and repr(value) != text:
        raise BadValue(f"text {text!r} is left to the value decoder")
    return value


def _special_float(text: str) -> float:
    if text not in _SPECIAL:
        raise BadValue(f"text {text!r} is left to the value decoder")
    return float(text)


def _same_float32s(values: Sequence[float | str | None]) -> pa.Array:
    """Return an array of floats. Refuses a double that equals neither its float nor the number that it prints."""
    wide = _float64s(values)
    with np.errstate(over="ignore"):
        column = wide.cast(pa.float32(), safe=False)
    back = column.cast(pa.float64())
    differs = pc.and_(pc.not_equal(back, wide), pc.invert(pc.is_nan(wide)))
    if pc.any(differs).as_py():
        number, float_ = wide.filter(differs), column.filter(differs)
        if pc.any(pc.not_equal(float_.cast(pa.string()).cast(pa.float64()), number)).as_py():
            raise BadValue("numbers with more digits than a float keeps")
    return column


def _float32s(values: Sequence[float | str | None]) -> pa.Array:
    wide = _float64s(values)
    doubles: NDArray[np.float64] = wide.fill_null(0).to_numpy()
    with np.errstate(over="ignore"):
        floats = doubles.astype(np.float32)
    overflowed = np.isinf(floats) & np.isfinite(doubles)
    if overflowed.any() or rounds_twice(doubles).any():
        raise BadValue("values that need their digits to round right, or are out of range")
    # A number with a fraction, such as 16777217.0, may become the nearest float. An integer must keep all its digits.
    inexact = np.flatnonzero((np.abs(doubles) > 2**24) & (floats != doubles))
    if any(type(values[at]) is int for at in inexact.tolist()):
        raise BadValue("integers that are no float")
    return pc.if_else(wide.is_valid(), pa.array(floats), pa.scalar(None, pa.float32()))


def _floating_arrow_converter(conversion: Conversion, kind: str) -> ArrowConverter | None:
    words = FLOAT_WORDS if conversion.target.root is Root.FLOAT else DOUBLE_WORDS
    kind_of_column = "float" if conversion.target.root is Root.FLOAT else "double"
    if kind != kind_of_column or conversion.source.connect not in words:
        return None
    return unflagged_arrow(lambda column: column)


FLOATING_RULES: Final = TypeRules(_floating_decoder, _floating_column_decoder, _floating_arrow_converter)
