"""Whole columns of JSON values of any kind to STRING, each as it stands in the record, texts without their quotes.

A source without a schema has numbers and texts in columns that are STRING here. Their JSON is copied at once where no
value needs to be looked at; otherwise the column goes value by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.formats.connect_schema import SemanticType, SourceType
from ingest.formats.values.column_decoders import ColumnDecoder, Flags, value_by_value, without
from ingest.formats.values.json_text import BadValue, ValueDecoder
from ingest.formats.values.unavailable_placeholders import Placeholders
from storage.types import MAX_LENGTH, STRING_ROOTS, AtomicType, DataType

_SEPARATOR: Final = b"\n"  # in JSON there is none but between tokens of a list or an object
_BLANK: Final = 0x20  # below it are separators and what no JSON text has


def any_value_decoder(
    source: SourceType, decode: ValueDecoder, target: DataType, placeholders: Placeholders
) -> ColumnDecoder:
    """For any column. decode: the value decoder of `source` (as `completed`) in `target`."""
    one_by_one = value_by_value(decode, target, placeholders)
    if (
        not isinstance(target, AtomicType)
        or target.root not in STRING_ROOTS
        or source.semantic_type is not SemanticType.PLAIN
    ):
        return one_by_one
    if source.labels or source.flags:
        return one_by_one

    def to_arrow(values: Sequence[msgspec.Raw | None]) -> tuple[pa.Array, Flags | None]:
        return _raw_texts(values, target, placeholders) or one_by_one.to_arrow(values)

    return ColumnDecoder(msgspec.Raw, to_arrow)


def _raw_texts(
    values: Sequence[msgspec.Raw | None], target: AtomicType, placeholders: Placeholders
) -> tuple[pa.Array, Flags | None] | None:
    """None where a value must be looked at. Raises ValueError for what is not UTF-8, or too long."""
    n = len(values)
    try:
        data = _SEPARATOR.join(values)  # type: ignore[arg-type]
    except TypeError:  # a None is no bytes
        data = _SEPARATOR.join([b"null" if value is None else value for value in values])
    octets = np.frombuffer(data, np.uint8)
    ends = np.append(np.flatnonzero(octets < _BLANK), len(data))
    if len(ends) != n or not n or data.count(_SEPARATOR) != n - 1 or b"\\" in data:
        return None
    begins = np.concatenate([[0], ends[:-1] + 1])
    first = octets[begins]
    if np.all((first <= ord("9")) & (first > ord('"'))) and data.isascii():
        column, flags = _numbers(octets, ends), None
    elif np.any((first == ord("[")) | (first == ord("{"))):  # one may stand for an old value
        return None
    else:
        column, flags = _texts(data, begins, ends, first, placeholders)
    if target.length != MAX_LENGTH and (pc.max(pc.utf8_length(column)).as_py() or 0) > target.length:
        raise BadValue(f"text too long for {target}")
    return column, flags


def _numbers(octets: NDArray[np.uint8], ends: NDArray[np.int64]) -> pa.StringArray:
    """n numbers, a separator behind each but the last, at `ends`: all that is left out to have them."""
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
    """Values of any kind but lists and objects, texts without their quotes. first: the octet that each begins with."""
    n = len(ends)
    is_text = first == ord('"')
    positions = np.empty(2 * n, np.int32)
    positions[0::2] = begins + is_text
    positions[1::2] = ends - is_text
    by_turns = pa.BinaryArray.from_buffers(pa.binary(), 2 * n - 1, [None, pa.py_buffer(positions), pa.py_buffer(data)])
    column = by_turns.take(pa.array(np.arange(0, 2 * n, 2), mask=first == ord("n"))).cast(pa.string())
    flags = placeholders.in_texts(column)
    if flags is not None:
        flags &= is_text
        column = without(column, flags)
        flags = flags if flags.any() else None
    return column, flags
