"""Converts whole columns of numbers in text form to DECIMAL."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ingest.formats.values.json_text import BadValue


def decimals_of_digits(values: Sequence[Any], in_memory: pa.DataType) -> pa.Array:
    """Return decimals of numbers in text form. Raises ArrowInvalid for a number with more digits than the type."""
    texts = pa.array(values, pa.string())
    if _have_exponents(texts):
        texts = pa.array(_without_exponents(values), pa.string())
    return _decimals(texts, in_memory)


def decimals_of_texts(texts: pa.Array, in_memory: pa.DataType) -> pa.Array:
    """Return decimals of an array of texts. Raises BadValue for a text with an exponent."""
    if _have_exponents(texts):
        raise BadValue("a text with an exponent")
    return _decimals(texts, in_memory)


def _decimals(texts: pa.Array, in_memory: pa.DataType) -> pa.Array:
    digits_max = (pc.max(pc.binary_length(texts)).as_py() or 0) + in_memory.scale
    if digits_max > 76:
        raise BadValue("more digits than fit")
    return texts.cast(in_memory) if digits_max <= 38 else cast_via_decimal256(texts, in_memory)


def cast_via_decimal256(column: pa.Array, in_memory: pa.DataType) -> pa.Array:
    """Return the column as decimals of the given type, cast by way of 256-bit decimals.

    Arrow's casts of 128-bit decimals to a larger scale miss some overflows and would return wrong numbers.

    Raises ArrowInvalid for a number that does not fit.
    """
    return column.cast(pa.decimal256(76, in_memory.scale)).cast(in_memory)


def _have_exponents(texts: pa.Array) -> bool:
    _, positions, data = texts.buffers()
    ends = np.frombuffer(positions, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    octets = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if len(texts) and ends[-1] else np.empty(0, np.uint8)
    return bool(((octets | 0x20) == ord("e")).any())


def _without_exponents(values: Sequence[Any]) -> list[Any]:
    """Return the values with JSON numbers that have an exponent as plain digits.

    Raises BadValue for a text with an exponent, and for a number with more digits than any column holds.
    """
    return [_plain_digits(value) if value is not None and _has_exponent(value) else value for value in values]


def _has_exponent(value: str | bytes) -> bool:
    return "e" in value.lower() if isinstance(value, str) else b"e" in value.lower()


def _plain_digits(number: str | bytes) -> str:
    if isinstance(number, str):
        raise BadValue("a text with an exponent")
    try:
        value = Decimal(number.decode())
    except ArithmeticError:
        raise BadValue("an exponent beyond all bounds") from None
    if abs(value.adjusted()) > 76:
        raise BadValue("an exponent beyond what fits")
    return f"{value:f}"
