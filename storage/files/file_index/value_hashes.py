"""Computes the 64-bit hashes of values for the Bloom filters of file indexes.

Numbers are hashed with Thomas Wang's integer hash, and texts and bytes with XXH64. Many texts of one length are hashed
together, in columns. The others (long texts, rare lengths) are hashed one by one, with `xxhash`.

Source: Java `fileindex/bloomfilter/FastHash.java`; https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from tidelake.storage.model.types.arrow_buffers import text_buffers, value_lengths

Hashes = NDArray[np.uint64]

_BLOCK_ROWS: Final = 8_192  # so that a block stays in the processor's cache, and in memory that is allocated already
# Values of one length are hashed in columns if that is faster than a call for each value.
_COLUMN_LENGTH_MAX: Final = 256
_COLUMN_ROWS_MIN: Final = 200
_COLUMN_ROWS_PER_BYTE: Final = 8
# Arrow's default pool starts a huge page for each buffer of a block, which takes up to 5 ms for a new page.
_BLOCK_MEMORY: Final = pa.system_memory_pool()

_PRIME_1: Final = np.uint64(0x9E3779B185EBCA87)
_PRIME_2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3: Final = np.uint64(0x165667B19E3779F9)
_PRIME_4: Final = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5: Final = np.uint64(0x27D4EB2F165667C5)
_LANE_STARTS: Final = (int(_PRIME_1) + int(_PRIME_2), int(_PRIME_2), 0, -int(_PRIME_1))  # for seed 0
_LANE_ROTATIONS: Final = (1, 7, 12, 18)


def hash_numbers(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,): the hash of each number."""
    hashes = np.empty(len(values), np.int64)
    for block in _blocks(len(values)):
        hashes[block] = _hash_block(values[block])
    return hashes


def _hash_block(h: NDArray[np.int64]) -> NDArray[np.int64]:
    h = ~h + (h << 21)
    h ^= h >> 24
    h = h + (h << 3) + (h << 8)
    h ^= h >> 14
    h = h + (h << 2) + (h << 4)
    h ^= h >> 28
    h += h << 31
    return h


def hash_texts(column: pa.Array, seed: int = 0) -> NDArray[np.int64]:
    """(n,): the hash of each text or bytes value; arbitrary for nulls.

    seed: the seed of XXH64. File indexes use 0.
    """
    hashes = np.empty(len(column), np.int64)
    for rows, of_rows in hash_text_blocks(column, seed):
        hashes[rows] = of_rows
    return hashes


def hash_text_blocks(column: pa.Array, seed: int = 0) -> Iterator[tuple[NDArray[np.intp], NDArray[np.int64]]]:
    """Like `hash_texts`, in blocks. Yields (m,) rows in any order, and their (m,) hashes. Each row is in one block."""
    lengths = value_lengths(column)
    length_groups = np.minimum(lengths, _COLUMN_LENGTH_MAX + 1).astype(np.uint16)
    counts = np.bincount(length_groups)
    order = np.argsort(length_groups, kind="stable")
    ends = np.cumsum(counts)
    rest = []
    for length in np.flatnonzero(counts).tolist():
        rows = order[ends[length] - counts[length] : ends[length]]
        if length > _COLUMN_LENGTH_MAX or len(rows) < _COLUMN_ROWS_MIN + _COLUMN_ROWS_PER_BYTE * length:
            rest.append(rows)
            continue
        for block in _blocks(len(rows)):
            yield rows[block], _xxh64(_SameLength.of(column, rows[block], length), seed).view(np.int64)
    if rest:
        rows = np.concatenate(rest)
        for block in _blocks(len(rows)):
            yield rows[block], _hash_one_by_one(column, lengths, rows[block], seed).view(np.int64)


def _hash_one_by_one(column: pa.Array, lengths: NDArray[np.integer[Any]], rows: NDArray[np.intp], seed: int) -> Hashes:
    offsets, data = text_buffers(column)
    view = memoryview(data)
    ranges = zip(offsets[rows].tolist(), lengths[rows].tolist(), strict=True)
    return np.array([xxhash.xxh64_intdigest(view[start : start + length], seed) for start, length in ranges], np.uint64)


@dataclass(frozen=True, slots=True)
class _SameLength:
    """Values of one length, stored one after the other.

    data: the bytes.
    start: the offset of the first value in `data`.
    length: the length of each value in bytes.
    count: the number of values.
    """

    data: pa.Buffer
    start: int
    length: int
    count: int

    @classmethod
    def of(cls, column: pa.Array, rows: NDArray[np.intp], length: int) -> _SameLength:
        values = pc.take(column, pa.array(rows), boundscheck=False, memory_pool=_BLOCK_MEMORY)
        offsets, data = text_buffers(values)
        return cls(data, int(offsets[0]), length, len(rows))

    def words(self, at: int, dtype: str) -> NDArray[Any]:
        """(count,): a view of the word at this byte of each value."""
        return np.ndarray((self.count,), dtype, self.data, self.start + at, (self.length,))


def _xxh64(values: _SameLength, seed: int) -> Hashes:
    """(count,): the hashes. Computed in place where possible: new memory takes more time than the arithmetic."""
    at, end = 0, values.length
    if end >= 32:
        lanes = [np.full(values.count, (start + seed) % 2**64, np.uint64) for start in _LANE_STARTS]
        while at + 32 <= end:
            for number, lane in enumerate(lanes):
                _round(lane, values.words(at + 8 * number, "<u8"))
            at += 32
        h = _merged(lanes)
        h += np.uint64(end)
    else:
        h = np.full(values.count, (int(_PRIME_5) + seed + end) % 2**64, np.uint64)
    while at + 8 <= end:
        h ^= _first_round(values.words(at, "<u8"))
        _rotate(h, 27)
        h *= _PRIME_1
        h += _PRIME_4
        at += 8
    if at + 4 <= end:
        h ^= values.words(at, "<u4") * _PRIME_1
        _rotate(h, 23)
        h *= _PRIME_2
        h += _PRIME_3
        at += 4
    while at < end:
        h ^= values.words(at, "<u1") * _PRIME_5
        _rotate(h, 11)
        h *= _PRIME_1
        at += 1
    h ^= h >> np.uint64(33)
    h *= _PRIME_2
    h ^= h >> np.uint64(29)
    h *= _PRIME_3
    h ^= h >> np.uint64(32)
    return h


def _merged(lanes: Sequence[Hashes]) -> Hashes:
    h = np.zeros(len(lanes[0]), np.uint64)
    for lane, count in zip(lanes, _LANE_ROTATIONS, strict=True):
        rotated = lane.copy()
        _rotate(rotated, count)
        h += rotated
    for lane in lanes:
        h ^= _first_round(lane)
        h *= _PRIME_1
        h += _PRIME_4
    return h


def _round(lane: Hashes, words: NDArray[Any]) -> None:
    """Apply a round of XXH64 to the lane, in place."""
    lane += words * _PRIME_2
    _rotate(lane, 31)
    lane *= _PRIME_1


def _first_round(words: NDArray[Any]) -> Hashes:
    """Return the result of a round for a lane that is 0."""
    lane: Hashes = words * _PRIME_2
    _rotate(lane, 31)
    lane *= _PRIME_1
    return lane


def _rotate(words: Hashes, count: int) -> None:
    """Rotate to the left, in place."""
    low = words >> np.uint64(64 - count)
    words <<= np.uint64(count)
    words |= low


def _blocks(length: int) -> Iterator[slice]:
    for start in range(0, length, _BLOCK_ROWS):
        yield slice(start, start + _BLOCK_ROWS)
