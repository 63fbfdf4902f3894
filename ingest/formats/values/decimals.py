"""DECIMAL: one JSON value, a column of JSON values, a column of Avro. No conversion uses a float."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ingest.formats.connect_schema import SemanticType, SourceType
from tidelake.ingest.formats.values.binaries import base64_bytes
from tidelake.ingest.formats.values.conversion import (
    ArrowConverter,
    ColumnDecoder,
    Conversion,
    TypeRules,
    first_of,
    unflagged,
    unflagged_arrow,
)
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
from tidelake.storage.model.types import MAX_DECIMAL_PRECISION, STRING, AtomicType, DataType, Root, arrow_type, decimal

# More than PostgreSQL's numeric can hold. The limit prevents that 1E+999999999 is expanded to that many digits.
_DIGITS_MAX: Final = 200_000
_EXACT: Final = Context(prec=_DIGITS_MAX, Emax=_DIGITS_MAX, Emin=-_DIGITS_MAX)
_INTEGER_DIGITS: Final = {Root.TINYINT: 3, Root.SMALLINT: 5, Root.INT: 10, Root.BIGINT: 19}
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
_UNSCALED_BYTES_MAX: Final = 16


def _decimal_decoder(conversion: Conversion) -> ValueDecoder:
    """Return a decoder of exact decimals. Trailing zeros of a fraction may exceed the column's scale.

    With `rounds`, numbers are rounded half up to the column's scale, as databases round on assignment.
    """
    source, target, rounds = conversion.source, conversion.target, conversion.rounds

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


# ---------------------------------------------------------------- a column


def _decimal_column_decoder(conversion: Conversion) -> ColumnDecoder | None:
    """Return a decoder of columns. It never rounds."""
    source, target = conversion.source, conversion.target
    match source.semantic_type:
        case SemanticType.PLAIN | SemanticType.DECIMAL:
            return unflagged(Any, _decimals_of_json(source, target))
        case SemanticType.UNSIGNED if target.scale == 0:
            return unflagged(int | None, _unsigned_integers(target))
        case _:
            return None


def _decimals_of_json(source: SourceType, target: AtomicType) -> Callable[[Sequence[Any]], pa.Array]:
    in_memory = arrow_type(target)

    def to_array(values: Sequence[str | bytes | int | None]) -> pa.Array:
        first = first_of(values)
        if (
            source.semantic_type is SemanticType.DECIMAL
            and not isinstance(first, str)
            and str in set(map(type, values))
        ):
            raise BadValue("bytes among numbers")
        if source.semantic_type is not SemanticType.DECIMAL or not isinstance(first, str):
            texts = values if isinstance(first, str) else _with_integer_texts(values)
            return _decimals_of_digits(texts, in_memory)
        if set(map(type, values)) - {str, type(None)}:
            raise BadValue("numbers among bytes")
        if target.scale - source.scale > 38:
            raise BadValue("a scale too far from the column's")
        return _cast_via_decimal256(_unscaled_decimals(values, source.scale), in_memory)

    return to_array


def _with_integer_texts(values: Sequence[Any]) -> Sequence[Any]:
    if int not in (types := set(map(type, values))):
        return values
    if bool in types:
        raise BadValue("no number")
    return [str(value) if type(value) is int else value for value in values]


def _unsigned_integers(target: AtomicType) -> Callable[[Sequence[Any]], pa.Array]:
    in_memory = arrow_type(target)
    return lambda values: pa.array([v + 2**64 if v is not None and v < 0 else v for v in values], in_memory)


def _unscaled_decimals(values: Sequence[Any], scale: int) -> pa.Array:
    """Return decimals of base64 texts of big-endian integers. Refuses integers above 38 digits, and empty texts."""
    given = pa.array(values, pa.string())
    if pc.min(pc.binary_length(given)).as_py() == 0:
        raise BadValue("an empty text is no decimal")
    words = (b"" if v is None else binascii.a2b_base64(v, strict_mode=True) for v in values)
    data = b"".join(int.from_bytes(w, "big", signed=True).to_bytes(16, "little", signed=True) for w in words)
    buffers = [given.buffers()[0], pa.py_buffer(data)]
    column = pa.Array.from_buffers(pa.decimal128(38, scale), len(values), buffers)
    column.validate(full=True)
    return column


def _decimals_of_digits(values: Sequence[Any], in_memory: pa.DataType) -> pa.Array:
    """Return decimals of numbers in text form. Raises ArrowInvalid for a number with more digits than the type."""
    texts = pa.array(values, pa.string())
    if _have_exponents(texts):
        texts = pa.array(_without_exponents(values), pa.string())
    return _decimals_of_plain_texts(texts, in_memory)


def _decimals_of_plain_texts(texts: pa.Array, in_memory: pa.DataType) -> pa.Array:
    digits_max = (pc.max(pc.binary_length(texts)).as_py() or 0) + in_memory.scale
    if digits_max > 76:
        raise BadValue("more digits than fit")
    return texts.cast(in_memory) if digits_max <= 38 else _cast_via_decimal256(texts, in_memory)


def _cast_via_decimal256(column: pa.Array, in_memory: pa.DataType) -> pa.Array:
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


def _decimal_arrow_converter(conversion: Conversion, kind: str) -> ArrowConverter | None:
    source, target = conversion.source, conversion.target
    in_memory = arrow_type(target)
    match kind, source.semantic_type:
        case "bytes" | "fixed", SemanticType.DECIMAL:
            return unflagged_arrow(lambda column: _decimals_of_octets(column, source.scale, target))
        case "string", SemanticType.PLAIN:  # connectors send this with `decimal.handling.mode=string`
            return unflagged_arrow(lambda column: _decimals_of_texts(column, in_memory))
        case "int" | "long", SemanticType.UNSIGNED if target.scale == 0:
            return unflagged_arrow(lambda column: column.view(pa.uint64()).cast(pa.decimal128(20, 0)).cast(in_memory))
        case _:
            return None


def _decimals_of_texts(texts: pa.Array, in_memory: pa.DataType) -> pa.Array:
    """Return decimals of an array of texts. Raises BadValue for a text with an exponent."""
    if _have_exponents(texts):
        raise BadValue("a text with an exponent")
    return _decimals_of_plain_texts(texts, in_memory)


def _decimals_of_octets(octets: pa.Array, scale: int, target: AtomicType) -> pa.Array:
    """Return decimals whose unscaled values are big-endian two's complement integers. scale: their scale."""
    lengths = pc.fill_null(pc.binary_length(octets), 1).to_numpy()
    if len(octets) and (lengths.min() < 1 or lengths.max() > _UNSCALED_BYTES_MAX):
        raise BadValue("no decimal, or one of more digits than fit")
    if not 0 <= scale <= 38 or target.scale - scale > 38:
        raise BadValue("a scale too far from the column's")
    _, positions, data = octets.buffers()
    ends = np.frombuffer(positions, np.int32)[octets.offset + 1 : octets.offset + len(octets) + 1].astype(np.int64)
    valid = octets.is_valid().to_numpy(zero_copy_only=False)
    given = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    words = np.zeros((len(octets), _UNSCALED_BYTES_MAX), np.uint8)
    for byte in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(valid & (lengths > byte))
        words[rows, byte] = given[ends[rows] - 1 - byte]
    signs = np.zeros(len(octets), np.uint8)
    present = np.flatnonzero(valid)
    signs[present] = np.where(given[ends[present] - lengths[present]] & 0x80, 0xFF, 0)
    words = np.where(np.arange(_UNSCALED_BYTES_MAX) < lengths[:, None], words, signs[:, None])
    buffers: Sequence[Any] = [pa.py_buffer(np.packbits(valid, bitorder="little")), pa.py_buffer(words)]
    column = pa.Array.from_buffers(pa.decimal128(38, scale), len(octets), buffers)
    column.validate(full=True)
    return column if column.type == arrow_type(target) else _cast_via_decimal256(column, arrow_type(target))


DECIMAL_RULES: Final = TypeRules(_decimal_decoder, _decimal_column_decoder, _decimal_arrow_converter)
