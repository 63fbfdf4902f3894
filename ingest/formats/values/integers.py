"""BOOLEAN and the integers: one JSON value, a column of JSON values, a column of Avro."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.ingest.formats.connect_schema import DOUBLE_WORDS, FLOAT_WORDS, SemanticType, SourceType
from tidelake.ingest.formats.values.binaries import bits_as_int
from tidelake.ingest.formats.values.conversion import (
    INTEGER_KINDS,
    ArrowConverter,
    ColumnDecoder,
    Conversion,
    TypeRules,
    first_of,
    unflagged,
    unflagged_arrow,
)
from tidelake.ingest.formats.values.decimals import decimal_that_holds, exact_decimal, unsigned
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
from tidelake.storage.model.types import BIGINT, DOUBLE, INT, SMALLINT, AtomicType, DataType, Root, arrow_type

_TRUE: Final = frozenset({"t", "true", "y", "yes", "1"})
_FALSE: Final = frozenset({"f", "false", "n", "no", "0"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,400}")
_BITS_OF: Final = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}
_WIDER_INTEGERS: Final = ((16, SMALLINT), (32, INT), (64, BIGINT))
_DECIMAL_SEMANTICS: Final = frozenset({SemanticType.DECIMAL, SemanticType.VARIABLE_DECIMAL})
# A count of days or of units of time is an integer, too.
_INTEGER_SEMANTICS: Final = frozenset(
    {SemanticType.PLAIN, SemanticType.DATE, SemanticType.TIME, SemanticType.TIMESTAMP}
)
_BOOLEANS: Final[Mapping[bool | int | str, bool]] = {True: True, False: False, "1": True, "0": False}

# ---------------------------------------------------------------- BOOLEAN


def _boolean_decoder(conversion: Conversion) -> ValueDecoder:
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


def _boolean_column_decoder(conversion: Conversion) -> ColumnDecoder | None:
    if conversion.source.semantic_type is not SemanticType.PLAIN:
        return None
    return unflagged(bool | int | str | None, _booleans)


def _booleans(values: Sequence[bool | int | str | None]) -> pa.Array:
    """Return an array of booleans. A number or text that is not in `_BOOLEANS` stays as it is, and Arrow refuses it."""
    if set(map(type, values)) <= {bool, type(None)}:
        return pa.array(values, pa.bool_())
    return pa.array([None if value is None else _BOOLEANS.get(value, value) for value in values], pa.bool_())


def _boolean_arrow_converter(conversion: Conversion, kind: str) -> ArrowConverter | None:
    return unflagged_arrow(lambda column: column) if kind == "boolean" else None


BOOLEAN_RULES: Final = TypeRules(_boolean_decoder, _boolean_column_decoder, _boolean_arrow_converter)


# ---------------------------------------------------------------- integers


def _integer_decoder(conversion: Conversion) -> ValueDecoder:
    """Return a decoder of integers. It never rounds, and refuses numbers out of the type's range.

    It reads whole numbers, also as texts, with a zero fraction, as decimals or as bits. true is 1, and false is 0.
    """
    source, target = conversion.source, conversion.target
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


def _integer_column_decoder(conversion: Conversion) -> ColumnDecoder | None:
    if conversion.source.semantic_type not in _INTEGER_SEMANTICS:
        return None
    in_memory = arrow_type(conversion.target)

    def to_array(values: Sequence[int | str | None]) -> pa.Array:
        if not isinstance(first_of(values), str):
            return pa.array(values, in_memory)
        texts = pa.array(values, pa.string())
        check_characters(b"-0123456789", texts)  # Arrow's cast would accept 0x1F, too
        return texts.cast(in_memory)

    return unflagged(int | str | None, to_array)


def check_characters(allowed: bytes, texts: pa.Array) -> None:
    """Raise BadValue if the texts have other characters."""
    _, positions, data = texts.buffers()
    end = np.frombuffer(positions, np.int32)[len(texts)]
    if end and data.to_pybytes()[:end].translate(None, allowed):
        raise BadValue("texts that are no digits")


def _integer_arrow_converter(conversion: Conversion, kind: str) -> ArrowConverter | None:
    if kind not in INTEGER_KINDS or conversion.source.semantic_type not in _INTEGER_SEMANTICS:
        return None
    in_memory = arrow_type(conversion.target)
    return unflagged_arrow(lambda column: column.cast(in_memory))


INTEGER_RULES: Final = TypeRules(_integer_decoder, _integer_column_decoder, _integer_arrow_converter)
