"""JSON to DECIMAL. No conversion uses a float."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

from tidelake.ingest.formats.connect_schema import SemanticType, SourceType
from tidelake.ingest.formats.values.binaries import base64_bytes
from tidelake.ingest.formats.values.json_text import (
    BadValue,
    JsonKind,
    TooNarrow,
    ValueDecoder,
    kind_of,
    read_object,
    read_text,
    shown,
    wrong_kind_error,
)
from tidelake.storage.model.types import MAX_DECIMAL_PRECISION, STRING, AtomicType, DataType, Root, decimal

# More than PostgreSQL's numeric can hold. The limit prevents that 1E+999999999 is expanded to that many digits.
_DIGITS_MAX: Final = 200_000
_EXACT: Final = Context(prec=_DIGITS_MAX, Emax=_DIGITS_MAX, Emin=-_DIGITS_MAX)
_INTEGER_DIGITS: Final = {Root.TINYINT: 3, Root.SMALLINT: 5, Root.INT: 10, Root.BIGINT: 19}
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")


def decimal_decoder(source: SourceType, target: AtomicType, rounds: bool) -> ValueDecoder:
    """Return a decoder of exact decimals. Trailing zeros of a fraction may exceed the column's scale.

    rounds: whether numbers are rounded half up to the column's scale, as databases round on assignment.
    """

    def decode(raw: bytes) -> Decimal:
        value = exact_decimal(raw, source)
        if value.adjusted() < target.precision - target.scale:
            rounded = value.quantize(Decimal((0, (1,), -target.scale)), ROUND_HALF_UP, _EXACT)
            if rounded != value and not rounds:
                digits = f"{target.scale} digit{'s' * (target.scale != 1)}"
                reason = f"{_short_text(value)} has more than {digits} after the decimal point"
                raise TooNarrow(reason, target, decimal_that_holds(value, target), can_round=True)
            if len(rounded.as_tuple().digits) <= target.precision:
                return rounded
        if not value:
            return Decimal((0, (0,), -target.scale))
        reason = f"{_short_text(value)} is out of the range of {target}"
        raise TooNarrow(reason, target, decimal_that_holds(value, target))

    return decode


def decimal_that_holds(value: Decimal, target: AtomicType) -> DataType:
    """Return a DECIMAL that holds `value` and all values of `target`; STRING if none does.

    target: a DECIMAL or an integer type.
    """
    _, digits, exponent = _EXACT.normalize(value).as_tuple()
    assert isinstance(exponent, int)  # the value is finite
    return wide_decimal(target, len(digits) + exponent, max(0, -exponent))


def significant_digits(value: Decimal) -> int:
    """Return the number of digits without leading and trailing zeros."""
    return len(_EXACT.normalize(value).as_tuple().digits)


def wide_decimal(target: AtomicType, whole_digits: int, scale: int) -> DataType:
    """Return a DECIMAL with at least these digits and those of `target`; STRING if the precision would be too high.

    whole_digits: digits before the decimal point.
    scale: digits after the decimal point.
    """
    whole_digits = max(whole_digits, _INTEGER_DIGITS.get(target.root, target.precision - target.scale))
    scale = max(scale, target.scale)
    precision = whole_digits + scale
    return decimal(precision, scale) if precision <= MAX_DECIMAL_PRECISION else STRING


def exact_decimal(raw: bytes, source: SourceType) -> Decimal:
    """Return the exact number that a JSON value of type `source` encodes."""
    kind = kind_of(raw)
    if kind is JsonKind.NUMBER:
        value = _parse(raw.decode(), raw)
        return Decimal(unsigned(int(value))) if source.semantic_type is SemanticType.UNSIGNED else value
    if source.semantic_type is SemanticType.VARIABLE_DECIMAL and kind is JsonKind.OBJECT:
        members = read_object(raw)
        if members.keys() >= {"scale", "value"} and kind_of(members["value"]) is JsonKind.TEXT:
            return _unscaled(members["value"], int(members["scale"]))
    if kind is JsonKind.TEXT and source.semantic_type is SemanticType.DECIMAL:
        return _unscaled(raw, source.scale)
    if kind is JsonKind.TEXT:
        return _parse(read_text(raw), raw)
    raise wrong_kind_error(raw, "number")


def unsigned(value: int) -> int:
    """Return the unsigned 64-bit integer with the same bits as a signed one."""
    return value + 2**64 if -(2**63) <= value < 0 else value


def _parse(text: str, raw: bytes) -> Decimal:
    if len(text) <= _DIGITS_MAX and _NUMBER.fullmatch(text):
        value = Decimal(text)
        if abs(value.adjusted()) <= _DIGITS_MAX:
            return value
    elif kind_of(raw) is JsonKind.TEXT:
        raise BadValue(
            f"text {shown(raw)} is not a number; if the connector sends decimals as bytes "
            "(decimal.handling.mode=precise) without a schema, set decimal_handling_mode: precise"
        )
    raise BadValue(f"{shown(raw)} has more digits than are supported")


def _unscaled(raw: bytes, scale: int) -> Decimal:
    """Return the decimal with this scale whose unscaled value is a big-endian two's complement integer in base64."""
    data = base64_bytes(read_text(raw))
    if not data or len(data) > _DIGITS_MAX // 3 or abs(scale) > _DIGITS_MAX // 2:
        raise wrong_kind_error(raw, "decimal in bytes")
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)


def plain_text(value: Decimal) -> str:
    """Return the number's digits without an exponent."""
    return f"{value:f}"


def _short_text(value: Decimal) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{value:.20E}"
