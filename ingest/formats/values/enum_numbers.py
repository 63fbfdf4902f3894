"""Decodes values of MySQL's ENUM and SET that are sent as numbers, as they are in the binlog."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidelake.ingest.formats.connect_schema import SourceType
from tidelake.ingest.formats.values.json_text import BadValue, JsonKind, ValueDecoder, kind_of, read_text, shown

_DIGITS_MAX = 20  # decimal digits of a 64-bit integer


def by_name(source: SourceType, decode: ValueDecoder) -> ValueDecoder:
    """Return a decoder that replaces numbers by labels and passes the result to `decode`.

    The number of an ENUM becomes its label. The bits of a SET become its labels, separated by commas. A text that is
    not a number is assumed to contain labels already. ENUM 0 is the empty text that MySQL stores for a refused value.
    """

    def named(raw: bytes) -> object:
        text = read_text(raw) if kind_of(raw) is JsonKind.TEXT else raw.decode()
        if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
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
