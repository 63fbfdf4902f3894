"""JSON texts to BINARY, VARBINARY, BYTES and BLOB."""

from __future__ import annotations

import binascii

from ingest.formats.connect_schema import VARYING, Meaning, SourceType
from ingest.formats.values.json_text import (
    BadValue,
    JsonKind,
    TooNarrow,
    ValueDecoder,
    kind_of,
    read_text,
    shown,
    wrong_kind,
)
from storage.types import BYTES, AtomicType, Root


def binary_decoder(source: SourceType, target: AtomicType) -> ValueDecoder:
    """base64 (both alphabets) or hex; bits become big-endian, `bit(10)` two bytes. Refuses more bytes than declared."""

    def decode(raw: bytes) -> bytes:
        if kind_of(raw) is not JsonKind.TEXT:
            raise wrong_kind(raw, str(target))
        text = read_text(raw)
        data = hex_bytes(text) if source.meaning is Meaning.HEX else base64_bytes(text)
        if source.meaning is Meaning.BITS:
            data = data[::-1]
        if target.root is not Root.BLOB and len(data) > target.length:
            raise TooNarrow(f"{len(data)} bytes {shown(raw)} are too long for {target}", target, BYTES)
        return data

    return decode


def base64_bytes(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text.replace("-", "+").replace("_", "/"), strict_mode=True)
    except (binascii.Error, ValueError) as e:  # ValueError: not ASCII
        raise BadValue(f"text {shown(text.encode())!r} is no base64 ({e})") from None


def hex_bytes(text: str) -> bytes:
    try:
        return binascii.a2b_hex(text)
    except (binascii.Error, ValueError) as e:
        raise BadValue(f"text {shown(text.encode())!r} is no hex ({e}); is binary_handling_mode right?") from None


def bits_as_int(raw: bytes) -> int:
    """Debezium's little-endian bits as a number."""
    return int.from_bytes(base64_bytes(read_text(raw)), "little")


def bits_as_digits(raw: bytes, length: int) -> str:
    """Zeros and ones, as many as were declared. A `bit varying` has lost its leading zeros on the way."""
    value = bits_as_int(raw)
    if length == VARYING:
        return f"{value:b}" if read_text(raw) else ""
    return f"{value:0{length or 8 * len(base64_bytes(read_text(raw)))}b}"
