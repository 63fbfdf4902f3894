"""JSON to BOOLEAN, the integers and the floating point types."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.formats.cells.binaries import bits_as_int
from ingest.formats.cells.decimals import exact_decimal, unsigned
from ingest.formats.cells.json_text import BadValue, Cell, Kind, kind_of, read_text, refuse, shown
from ingest.formats.connect_schema import Meaning, SourceType
from storage.types import AtomicType, Root

_TRUE: Final = frozenset({"t", "true", "y", "yes", "1"})
_FALSE: Final = frozenset({"f", "false", "n", "no", "0"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,400}")
_BITS_OF: Final = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}
_SPECIAL: Final = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
_DECIMAL_MEANINGS: Final = frozenset({Meaning.DECIMAL, Meaning.VARIABLE_DECIMAL})


def boolean_cell() -> Cell:
    """true and false; 1 and 0; the words t, true, y, yes, f, false, n, no in any case, as Paimon's CDC reads them."""

    def cell(raw: bytes) -> bool:
        word = read_text(raw).lower() if kind_of(raw) is Kind.TEXT else raw.decode()
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        raise refuse(raw, "BOOLEAN")

    return cell


def integer_cell(source: SourceType, target: AtomicType) -> Cell:
    """Whole numbers, also as texts, with a zero fraction, as decimals or bits; true is 1. Never rounds, never wraps."""
    limit = 1 << (_BITS_OF[target.root] - 1)

    def cell(raw: bytes) -> int:
        value = _whole_number(raw, source, target)
        if not -limit <= value < limit:
            raise BadValue(f"{value} is out of the range of {target}")
        return value

    return cell


def _whole_number(raw: bytes, source: SourceType, target: AtomicType) -> int:
    kind = kind_of(raw)
    if source.meaning is Meaning.BITS and kind is Kind.TEXT:
        return bits_as_int(raw)
    if kind is Kind.BOOLEAN:
        return int(raw == b"true")
    if source.meaning not in _DECIMAL_MEANINGS and kind in (Kind.NUMBER, Kind.TEXT):
        text = read_text(raw) if kind is Kind.TEXT else raw.decode()
        if _INTEGER.fullmatch(text):
            return unsigned(int(text)) if source.meaning is Meaning.UNSIGNED else int(text)
        if kind is Kind.TEXT:
            raise refuse(raw, str(target))
    number = exact_decimal(raw, source)
    if number.adjusted() > 40 or number != number.to_integral_value():
        raise BadValue(f"{shown(raw)} is no whole number in the range of {target}")
    return int(number)


def floating_cell(source: SourceType, target: AtomicType) -> Cell:
    """The nearest FLOAT or DOUBLE; NaN and the infinities as Debezium's texts. A finite value never turns infinite."""
    narrow = target.root is Root.FLOAT

    def cell(raw: bytes) -> float:
        kind = kind_of(raw)
        if kind is Kind.TEXT and source.meaning not in _DECIMAL_MEANINGS:
            text = read_text(raw)
            if text in _SPECIAL:
                return _SPECIAL[text]
        text = raw.decode() if kind is Kind.NUMBER else str(exact_decimal(raw, source))
        value = nearest_float32(text) if narrow else float(text)
        if not np.isfinite(value):
            raise BadValue(f"{shown(raw)} is out of the range of {target}")
        return value

    return cell


def nearest_float32(text: str) -> float:
    """The 32-bit float nearest to a decimal number; infinite beyond the last one."""
    double = float(text)
    if rounds_twice(np.array([double]))[0]:
        nearest: float = pa.scalar(text).cast(pa.float32()).as_py()
        return nearest
    with np.errstate(over="ignore"):
        return float(np.float32(double))


def rounds_twice(doubles: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where going from a double on to a 32-bit float may give a neighbour of the float nearest to the original digits.

    A double half way between two floats may have been rounded to there; so may any where floats get sparse, near zero.
    """
    half_way = (doubles.view(np.uint64) & np.uint64(2**29 - 1)) == 2**28
    near_zero = (np.abs(doubles) < np.finfo(np.float32).tiny) & (doubles != 0)
    errs: NDArray[np.bool_] = half_way | near_zero
    return errs
