"""JSON texts to BINARY, VARBINARY, BYTES and BLOB."""

from __future__ import annotations

import binascii
from typing import Final

from tidelake.ingest.formats.connect_schema import VARYING, SemanticType, SourceType
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


def binary_decoder(source: SourceType, target: AtomicType) -> ValueDecoder:
    """Return a decoder of bytes from base64 (both alphabets), hex, or a text.

    Bits become big-endian bytes: `bit(10)` becomes two bytes. The decoder refuses more bytes than the column's length.
    """

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
