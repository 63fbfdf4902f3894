"""CHAR, VARCHAR and STRING: one JSON value, a column of JSON values, a column of Avro."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.ingest.formats.connect_schema import JSON_VALUE, SemanticType, SourceType
from tidelake.ingest.formats.values.binaries import bit_number_as_digits, bits_as_digits
from tidelake.ingest.formats.values.conversion import (
    ArrowConverter,
    ColumnDecoder,
    Conversion,
    Flags,
    TypeRules,
    without,
)
from tidelake.ingest.formats.values.decimals import exact_decimal, plain_text, unsigned
from tidelake.ingest.formats.values.json_text import (
    BadValue,
    JsonKind,
    TooNarrow,
    ValueDecoder,
    kind_of,
    read_text,
    shown,
)
from tidelake.ingest.formats.values.temporals import date_text, interval_text, timestamp_text
from tidelake.ingest.formats.values.unavailable_placeholders import Placeholders
from tidelake.storage.model.types import MAX_LENGTH, STRING, AtomicType

_TEXT_WORDS: Final = ("", JSON_VALUE.connect, "string", "bytes")
_LABEL_DIGITS_MAX: Final = 20  # decimal digits of a 64-bit integer
_SEPARATOR: Final = b"\n"  # occurs in JSON only between tokens of a list or an object
_BLANK: Final = 0x20  # octets below it are separators, or invalid in a JSON text


def _text_decoder(conversion: Conversion) -> ValueDecoder:
    """Return a decoder for a text column.

    A text stays unchanged. Another value is printed as the type in the schema requires: a date of epoch days becomes
    `2024-03-01`, a decimal in bytes becomes its digits, bits become zeros and ones. Bytes stay base64. A value without
    such a type becomes its JSON text. The decoder refuses a text with more characters than the column's length.
    """
    source, target = conversion.source, conversion.target

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


def label_only(decode: ValueDecoder) -> ValueDecoder:
    """Return a decoder of labels of an ENUM or SET. It refuses numbers, as their labels are unknown."""

    def decoded(raw: bytes) -> object:
        text = read_text(raw) if kind_of(raw) is JsonKind.TEXT else raw.decode()
        if text.isascii() and text.isdigit():
            raise BadValue(
                f"{shown(raw)} is the number of a label, and the record's type has no labels. For the number, declare "
                "an INT column; for the label, let the producer send it, or its type with labels: enum('a','b')"
            )
        return decode(raw)

    return decoded


def by_name(source: SourceType, decode: ValueDecoder) -> ValueDecoder:
    """Return a decoder that replaces numbers by the labels of MySQL's ENUM or SET, and passes the result to `decode`.

    The binlog has the numbers.

    The number of an ENUM becomes its label. The bits of a SET become its labels, separated by commas. A text that is
    not a number is assumed to contain labels already. ENUM 0 is the empty text that MySQL stores for a refused value.
    """

    def named(raw: bytes) -> object:
        text = read_text(raw) if kind_of(raw) is JsonKind.TEXT else raw.decode()
        if not (text.isascii() and text.isdigit()) or len(text) > _LABEL_DIGITS_MAX:
            return decode(raw)
        number = int(text)
        label = _flags(number, source.flags, raw) if source.flags else _label(number, source.labels, raw)
        return decode(msgspec.json.encode(label))

    return named


def _label(number: int, labels: Sequence[str], raw: bytes) -> str:
    if number > len(labels):
        raise BadValue(f"{shown(raw)} is not the number of a label: the ENUM has {len(labels)} labels")
    return labels[number - 1] if number else ""


def _flags(number: int, flags: Sequence[str], raw: bytes) -> str:
    if number >> len(flags):
        raise BadValue(f"{shown(raw)} has more bits than the SET has labels, {len(flags)}")
    return ",".join(flag for i, flag in enumerate(flags) if number >> i & 1)


# ---------------------------------------------------------------- a column


def _text_column_decoder(conversion: Conversion) -> ColumnDecoder | None:
    source = conversion.source
    if source.semantic_type not in (SemanticType.PLAIN, SemanticType.BASE64) or source.connect not in _TEXT_WORDS:
        return None
    return ColumnDecoder(str | None, lambda values: _checked(pa.array(values, pa.string()), conversion))


def _text_arrow_converter(conversion: Conversion, kind: str) -> ArrowConverter | None:
    if kind != "string" or conversion.source.semantic_type is not SemanticType.PLAIN:
        return None
    return lambda column: _checked(column, conversion)


def _checked(texts: pa.Array, conversion: Conversion) -> tuple[pa.Array, Flags | None]:
    """Return the texts without placeholders, and the flags of the placeholders. Raises BadValue for a text too long."""
    flags = conversion.placeholders.in_texts(texts)
    if flags is not None:
        texts = without(texts, flags)
    _check_lengths(texts, conversion.target)
    return texts, flags


def _check_lengths(texts: pa.Array, target: AtomicType) -> None:
    if target.length != MAX_LENGTH and (pc.max(pc.utf8_length(texts)).as_py() or 0) > target.length:
        raise BadValue(f"text too long for {target}")


# ---------------------------------------------------------------- a column of any JSON values


def raw_text_column_decoder(conversion: Conversion, decode_each: ColumnDecoder) -> ColumnDecoder:
    """Return a decoder of columns with JSON values of any kind. Each value stays as it is, texts without quotes.

    Records without a schema have numbers and texts in columns that are STRING in the table. If no value needs its own
    treatment, the JSON of the whole column is copied at once. Otherwise the column is decoded value by value.

    decode_each: decodes value by value.
    """

    def to_arrow(values: Sequence[msgspec.Raw | None]) -> tuple[pa.Array, Flags | None]:
        return _raw_texts(values, conversion) or decode_each.to_arrow(values)

    return ColumnDecoder(msgspec.Raw, to_arrow)


def _raw_texts(values: Sequence[msgspec.Raw | None], conversion: Conversion) -> tuple[pa.Array, Flags | None] | None:
    """Return the column and its flags; None if the column must be decoded value by value.

    Raises ValueError for a value that is not UTF-8, or too long.
    """
    n = len(values)
    try:
        data = _SEPARATOR.join(values)  # type: ignore[arg-type]
    except TypeError:  # `join` refuses None
        data = _SEPARATOR.join([b"null" if value is None else value for value in values])
    octets = np.frombuffer(data, np.uint8)
    ends = np.append(np.flatnonzero(octets < _BLANK), len(data))
    if len(ends) != n or not n or data.count(_SEPARATOR) != n - 1 or b"\\" in data:
        return None
    begins = np.concatenate([[0], ends[:-1] + 1])
    first = octets[begins]
    if np.all((first <= ord("9")) & (first > ord('"'))) and data.isascii():
        column, flags = _numbers(octets, ends), None
    elif np.any((first == ord("[")) | (first == ord("{"))):  # it may be a placeholder
        return None
    else:
        column, flags = _unquoted(data, begins, ends, first, conversion.placeholders)
    _check_lengths(column, conversion.target)
    return column, flags


def _numbers(octets: NDArray[np.uint8], ends: NDArray[np.int64]) -> pa.StringArray:
    """Return the texts of n numbers.

    octets: the numbers with one separator between each two.
    ends (n,): where the numbers end.
    """
    n = len(ends)
    offsets = np.zeros(n + 1, np.int32)
    offsets[1:] = ends - np.arange(n)
    data = octets[octets >= _BLANK]
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(data))


def _unquoted(
    data: bytes,
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    first: NDArray[np.uint8],
    placeholders: Placeholders,
) -> tuple[pa.StringArray, Flags | None]:
    """Return the texts of n values that are no lists and no objects, without quotes, and their flags.

    data: the values with one separator between each two.
    begins (n,): where the values begin.
    ends (n,): where the values end.
    first (n,): the first octet of each value.
    """
    n = len(ends)
    is_text = first == ord('"')
    positions = np.empty(2 * n, np.int32)
    positions[0::2] = begins + is_text
    positions[1::2] = ends - is_text
    # Values alternate with the separators and quotes between them.
    parts = pa.BinaryArray.from_buffers(pa.binary(), 2 * n - 1, [None, pa.py_buffer(positions), pa.py_buffer(data)])
    column = parts.take(pa.array(np.arange(0, 2 * n, 2), mask=first == ord("n"))).cast(pa.string())
    flags = placeholders.in_texts(column)
    if flags is not None:
        flags &= is_text
        column = without(column, flags)
        flags = flags if flags.any() else None
    return column, flags


TEXT_RULES: Final = TypeRules(_text_decoder, _text_column_decoder, _text_arrow_converter)
