"""JSON to CHAR, VARCHAR and STRING."""

from __future__ import annotations

from tidelake.ingest.formats.connect_schema import SemanticType, SourceType
from tidelake.ingest.formats.values.binaries import bit_number_as_digits, bits_as_digits
from tidelake.ingest.formats.values.decimals import exact_decimal, plain_text, unsigned
from tidelake.ingest.formats.values.json_text import JsonKind, TooNarrow, ValueDecoder, kind_of, read_text, shown
from tidelake.ingest.formats.values.temporals import date_text, interval_text, timestamp_text
from tidelake.storage.model.types import STRING, AtomicType


def text_decoder(source: SourceType, target: AtomicType) -> ValueDecoder:
    """Return a decoder for a text column.

    A text stays unchanged. Another value is printed as the type in the schema requires: a date of epoch days becomes
    `2024-03-01`, a decimal in bytes becomes its digits, bits become zeros and ones. Bytes stay base64. A value without
    such a type becomes its JSON text. The decoder refuses a text with more characters than the column's length.
    """

    def decode(raw: bytes) -> str:
        text = _printed(raw, source)
        if len(text) > target.length:
            raise TooNarrow(f"{len(text)} characters {shown(raw)} are too long for {target}", target, STRING)
        return text

    return decode


def _printed(raw: bytes, source: SourceType) -> str:
    kind = kind_of(raw)
    match source.semantic_type:
        case SemanticType.DECIMAL if kind in (JsonKind.TEXT, JsonKind.NUMBER):
            return plain_text(exact_decimal(raw, source))
        case SemanticType.VARIABLE_DECIMAL if kind is JsonKind.OBJECT:
            return plain_text(exact_decimal(raw, source))
        case SemanticType.BITS if kind is JsonKind.TEXT:
            return bits_as_digits(raw, source.length)
        case SemanticType.BIT_NUMBER if kind in (JsonKind.TEXT, JsonKind.NUMBER):
            return bit_number_as_digits(read_text(raw) if kind is JsonKind.TEXT else raw.decode(), source.length)
        case SemanticType.ESCAPED_ENUM if kind is JsonKind.TEXT:
            return read_text(raw).replace(r"\,", ",")
        case SemanticType.UNSIGNED if raw.lstrip(b"-").isdigit():
            return str(unsigned(int(raw)))
        case SemanticType.DATE if raw.lstrip(b"-").isdigit():
            return date_text(int(raw))
        case SemanticType.TIME if raw.lstrip(b"-").isdigit():
            return interval_text(int(raw), source.per_second)
        case SemanticType.TIMESTAMP if raw.lstrip(b"-").isdigit():
            return timestamp_text(int(raw), source.per_second)
    return read_text(raw) if kind is JsonKind.TEXT else raw.decode()
