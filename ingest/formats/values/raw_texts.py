"""Whole columns of JSON values of any kind to STRING. Each value stays as it is in the record, texts without quotes.

Records without a schema have numbers and texts in columns that are STRING in the table. If no value needs its own
treatment, the JSON of the whole column is copied at once. Otherwise the column is decoded value by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.ingest.formats.connect_schema import SemanticType, SourceType
from tidelake.ingest.formats.values.column_decoders import ColumnDecoder, Flags, value_by_value, without
from tidelake.ingest.formats.values.json_text import BadValue, ValueDecoder
from tidelake.ingest.formats.values.unavailable_placeholders import Placeholders
from tidelake.storage.model.types import MAX_LENGTH, STRING_ROOTS, AtomicType, DataType

_SEPARATOR: Final = b"\n"  # occurs in JSON only between tokens of a list or an object
_BLANK: Final = 0x20  # octets below it are separators, or invalid in a JSON text


def any_value_decoder(
    source: SourceType, decode: ValueDecoder, target: DataType, placeholders: Placeholders
) -> ColumnDecoder:
    """Return a column decoder that reads all values that `decode` reads. It exists for any column.

    source: the source type after `completed`.
    decode: the value decoder of `source` in `target`.
    """
    decode_each = value_by_value(decode, target, placeholders)
    if (
        not isinstance(target, AtomicType)
        or target.root not in STRING_ROOTS
        or source.semantic_type is not SemanticType.PLAIN
    ):
        return decode_each
    if source.labels or source.flags:
        return decode_each

    def to_arrow(values: Sequence[msgspec.Raw | None]) -> tuple[pa.Array, Flags | None]:
        return _raw_texts(values, target, placeholders) or decode_each.to_arrow(values)

    return ColumnDecoder(msgspec.Raw, to_arrow)


def _raw_texts(
    values: Sequence[msgspec.Raw | None], target: AtomicType, placeholders: Placeholders
) -> tuple[pa.Array, Flags | None] | None:
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
        column, flags = _texts(data, begins, ends, first, placeholders)
    if target.length != MAX_LENGTH and (pc.max(pc.utf8_length(column)).as_py() or 0) > target.length:
        raise BadValue(f"text too long for {target}")
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


def _texts(
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
