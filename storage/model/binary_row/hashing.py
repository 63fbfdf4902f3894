"""Java's hash of a BinaryRow, which determines the bucket of a row, and Java's hash of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.model.binary_row.encode import (
    Column,
    EncodedField,
    VariablePart,
    Words,
    fields_of,
    header_of,
)
from tidelake.storage.model.format import RowKind
from tidelake.storage.model.types import DataType
from tidelake.storage.model.types.arrow_buffers import byte_ranges

LoadHalves: TypeAlias = Callable[[Any, Any], NDArray[np.uint32]]

_SEED: Final = 42
_BLOCK_ROWS: Final = 1 << 14  # the arrays of one block fit into the processor's cache
_VECTOR_ROWS_MIN: Final = 256  # for fewer rows, NumPy's calls cost more than Python's integers
_PART_HALVES: Final = 1 << 16  # of one long value, that are integers of Python at once


def hash_rows(columns: Sequence[Column], types: Sequence[DataType]) -> NDArray[np.int32]:
    """Return Java's `BinaryRow.hashCode()` of each row. Arguments and errors are those of `encode_rows`."""
    if not columns or not len(columns[0]):
        return _hash(fields_of(columns, types))
    blocks = range(0, len(columns[0]), _BLOCK_ROWS)
    return np.concatenate([_hash(fields_of([c.slice(at, _BLOCK_ROWS) for c in columns], types)) for at in blocks])


def hash_bytes(column: pa.Array) -> NDArray[np.int32]:
    """Return Java's `BinaryString.hashCode()` of each text; arbitrary for nulls."""
    data, starts, lengths = byte_ranges(column)
    hashes = np.full(len(column), _SEED, np.uint32)

    def load(rows: Any, number: Any) -> NDArray[np.uint32]:
        return data.load(starts[rows] + 4 * number, 4).astype(np.uint32)

    _mix_all(hashes, lengths // 4, load)
    for number in range(3):  # the rest of less than a word is mixed byte by byte, as signed bytes
        rows = np.flatnonzero(lengths % 4 > number)
        last = data.load(starts[rows] + lengths[rows] // 4 * 4 + number, 1).astype(np.int8)
        hashes[rows] = _mix_half(hashes[rows], last.astype(np.uint32))
    return _finish(hashes ^ lengths.astype(np.uint32)).view(np.int32)


def _hash(fields: Sequence[EncodedField]) -> NDArray[np.int32]:
    """Return the 32-bit murmur3 of the words of each row. Rows are not assembled: the words are mixed in one by one."""
    header = header_of(fields, RowKind.INSERT)
    hashes = np.array([_SEED], np.uint32)
    for word in header:
        hashes = _mix(hashes, word)
    row_bytes = np.array([8 * (len(header) + len(fields))])
    for field in fields:
        hashes = _mix(hashes, field.slots_at(row_bytes))
        if field.variable_part is not None:
            row_bytes = row_bytes + 8 * field.variable_part.counts
    for field in fields:
        if field.variable_part is not None:
            _mix_all(hashes, 2 * field.variable_part.counts, partial(_half_word, field.variable_part))
    return _finish(hashes ^ row_bytes.astype(np.uint32)).view(np.int32)


def _mix(hashes: NDArray[np.uint32], words: Words) -> NDArray[np.uint32]:
    """Mix both halves of each word into the hashes, the lower half first.

    hashes: (n,) or (1,).
    words: (n,) or (1,).
    """
    return _mix_half(_mix_half(hashes, words.astype(np.uint32)), (words >> 32).astype(np.uint32))


def _half_word(words: VariablePart, rows: Any, number: Any) -> NDArray[np.uint32]:
    """Return the 32 bits at this position of each row. The lower half of a word comes first."""
    return (words.load(rows, number // 2) >> np.uint64(32) * np.asarray(number % 2, np.uint64)).astype(np.uint32)


def _mix_all(hashes: NDArray[np.uint32], counts: NDArray[np.int64], load: LoadHalves) -> None:
    """Mix all 32-bit parts of each row into its hash, in place.

    Each part is mixed into the result of the part before it. So only rows can be processed at once, not the parts of a
    row: while many rows have a further part, NumPy mixes it into all their hashes; the rest of a few long rows is mixed
    with Python's integers. The cost is proportional to the number of parts.

    hashes (n,).
    counts (n,): the number of parts of each row.
    load(rows, k): returns part k of each of the rows, which must have it. k is one number, or one per row.
    """
    rows = np.flatnonzero(counts)
    number = 0
    while len(rows) >= _VECTOR_ROWS_MIN:
        hashes[rows] = _mixed(hashes[rows], _scrambled(load(rows, number)))
        number += 1
        rows = rows[counts[rows] > number]
    for row in rows.tolist():
        value, count = int(hashes[row]), int(counts[row])
        for begin in range(number, count, _PART_HALVES):
            numbers = np.arange(begin, min(begin + _PART_HALVES, count))
            for half in _scrambled(load(np.full(len(numbers), row), numbers)).tolist():
                value ^= half
                value = ((value << 13 | value >> 19) * 5 + 0xE6546B64) & 0xFFFFFFFF  # the rotation's upper bits vanish
        hashes[row] = value


def _mix_half(hashes: NDArray[np.uint32], half: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return _mixed(hashes, _scrambled(half))


def _scrambled(half: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return _rotated_left(half * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _mixed(hashes: NDArray[np.uint32], scrambled: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return _rotated_left(hashes ^ scrambled, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated_left(values: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def _finish(hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
