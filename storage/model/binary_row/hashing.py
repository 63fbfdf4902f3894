"""Java's hash of a BinaryRow, which determines the bucket of a row, and Java's hash of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.model.binary_row.encode import Column, EncodedField, Words, fields_of, header_of
from tidelake.storage.model.format import RowKind
from tidelake.storage.model.types import DataType
from tidelake.storage.model.types.arrow_buffers import byte_ranges

_SEED: Final = 42
_BLOCK_ROWS: Final = 1 << 14  # the arrays of one block fit into the processor's cache


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
    for number in range(int(lengths.max(initial=0)) // 4):
        rows = np.flatnonzero(lengths // 4 > number)
        hashes[rows] = _mix_half(hashes[rows], data.load(starts[rows] + 4 * number, 4).astype(np.uint32))
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
            for number in range(int(field.variable_part.counts.max(initial=0))):
                rows = np.flatnonzero(field.variable_part.counts > number)
                hashes[rows] = _mix(hashes[rows], field.variable_part.load(rows, number))
    return _finish(hashes ^ row_bytes.astype(np.uint32)).view(np.int32)


def _mix(hashes: NDArray[np.uint32], words: Words) -> NDArray[np.uint32]:
    """Mix both halves of each word into the hashes, the lower half first.

    hashes: (n,) or (1,).
    words: (n,) or (1,).
    """
    return _mix_half(_mix_half(hashes, words.astype(np.uint32)), (words >> 32).astype(np.uint32))


def _mix_half(hashes: NDArray[np.uint32], half: NDArray[np.uint32]) -> NDArray[np.uint32]:
    mixed = _rotated_left(half * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated_left(hashes ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated_left(values: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def _finish(hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
