"""BINARY, VARBINARY, BYTES and BLOB: one JSON text, a column of JSON texts, a column of Avro."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ingest.formats.connect_schema import VARYING, SemanticType, SourceType
from tidelake.ingest.formats.values.conversion import (
    ArrowConverter,
    ColumnDecoder,
    Conversion,
    Flags,
    TypeRules,
    without,
)
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
from tidelake.storage.model.types import BYTES, AtomicType, Root

_BIT_DIGITS_MAX: Final = 20  # decimal digits of a 64-bit integer


def _binary_decoder(conversion: Conversion) -> ValueDecoder:
    """Return a decoder of bytes from base64 (both alphabets), hex, or a text.

    Bits become big-endian bytes: `bit(10)` becomes two bytes. The decoder refuses more bytes than the column's length.
    """
    source, target = conversion.source, conversion.target

    def decode(raw: bytes) -> bytes:
        if kind_of(raw) is not JsonKind.TEXT and source.semantic_type is not SemanticType.BIT_NUMBER:
            raise wrong_kind_error(raw, str(target))
        data = _bytes(read_text(raw) if kind_of(raw) is JsonKind.TEXT else raw.decode(), source)
        if target.root is not Root.BLOB and len(data) > target.length:
            raise TooNarrow(f"{len(data)} bytes {shown(raw)} are too long for {target}", target, BYTES)
        return data

    return decode


def _bytes(text: str, source: SourceType) -> bytes:
    match source.semantic_type:
        case SemanticType.HEX:
            return hex_bytes(text)
        case SemanticType.BITS:
            return base64_bytes(text)[::-1]
        case SemanticType.UTF8:
            return text.encode()
        case SemanticType.LATIN1:
            try:
                return text.encode("latin-1")
            except UnicodeEncodeError:
                raise BadValue(f"text {shown(text.encode())!r} has characters that are not bytes") from None
        case SemanticType.BIT_NUMBER:
            return _bit_number(text).to_bytes((source.length + 7) // 8, "big")
        case _:
            return base64_bytes(text)


def _bit_number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _BIT_DIGITS_MAX:
        raise BadValue(f"{shown(text.encode())!r} is not a number of bits")
    return int(text)


def bit_number_as_digits(text: str, length: int) -> str:
    """Return the bits of a decimal number as `length` zeros and ones."""
    return f"{_bit_number(text):0{length}b}"


def base64_bytes(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text.replace("-", "+").replace("_", "/"), strict_mode=True)
    except (binascii.Error, ValueError) as e:  # ValueError: not ASCII
        raise BadValue(f"text {shown(text.encode())!r} is not base64 ({e})") from None


def hex_bytes(text: str) -> bytes:
    try:
        return binascii.a2b_hex(text)
    except (binascii.Error, ValueError) as e:
        raise BadValue(f"text {shown(text.encode())!r} is not hexadecimal ({e}); check binary_handling_mode") from None


def bits_as_int(raw: bytes) -> int:
    """Return Debezium's little-endian bits as a number."""
    return int.from_bytes(base64_bytes(read_text(raw)), "little")


def bits_as_digits(raw: bytes, length: int) -> str:
    """Return the bits as zeros and ones.

    length: number of digits; 0 if it is not declared. Of a `bit varying` the digits begin with the first one, because
        Debezium does not send its leading zeros.
    """
    value = bits_as_int(raw)
    if length == VARYING:
        return f"{value:b}" if read_text(raw) else ""
    return f"{value:0{length or 8 * len(base64_bytes(read_text(raw)))}b}"


# ---------------------------------------------------------------- a column


def _binary_column_decoder(conversion: Conversion) -> ColumnDecoder | None:
    semantic_type, placeholders = conversion.source.semantic_type, conversion.placeholders
    read = _READ_STRICTLY.get(semantic_type)
    if read is None:
        return None

    def to_arrow(values: Sequence[str | None]) -> tuple[pa.Array, Flags | None]:
        flags = placeholders.in_texts(pa.array(values, pa.string()))
        if flags is not None:
            values = [None if flag else value for value, flag in zip(values, flags.tolist(), strict=True)]
        data = [None if value is None else read(value) for value in values]
        if semantic_type is SemanticType.BITS:
            data = [None if value is None else value[::-1] for value in data]
        column = pa.array(data, pa.binary())
        _check_lengths(column, conversion.target)
        return column, flags

    return ColumnDecoder(str | None, to_arrow)


def _latin1(text: str) -> bytes:
    return text.encode("latin-1")


def _strict_base64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


_READ_STRICTLY: Final[Mapping[SemanticType, Callable[[str], bytes]]] = {
    SemanticType.BASE64: _strict_base64,
    SemanticType.BITS: _strict_base64,
    SemanticType.HEX: binascii.a2b_hex,
    SemanticType.LATIN1: _latin1,
}


def _binary_arrow_converter(conversion: Conversion, kind: str) -> ArrowConverter | None:
    if kind not in ("bytes", "fixed") or conversion.source.semantic_type is not SemanticType.BASE64:
        return None

    def convert(octets: pa.Array) -> tuple[pa.Array, Flags | None]:
        flags = conversion.placeholders.in_octets(octets)
        if flags is not None:
            octets = without(octets, flags)
        _check_lengths(octets, conversion.target)
        return octets, flags

    return convert


def _check_lengths(column: pa.Array, target: AtomicType) -> None:
    if target.root is not Root.BLOB and (pc.max(pc.binary_length(column)).as_py() or 0) > target.length:
        raise BadValue(f"bytes too long for {target}")


BINARY_RULES: Final = TypeRules(_binary_decoder, _binary_column_decoder, _binary_arrow_converter)
