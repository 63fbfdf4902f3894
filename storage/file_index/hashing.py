"""The 64-bit hash of a value, as Bloom filters of file indexes take it.

Numbers go through Thomas Wang's integer hash. Texts and bytes go through XXH64: many of one length at once, in columns;
what is left (long ones, rare lengths) one by one in `xxhash`.

Source: Java `fileindex/bloomfilter/FastHash.java`; https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from storage.types.arrow_buffers import PaddedBytes, byte_ranges

Hashes = NDArray[np.uint64]

_BLOCK_ROWS: Final = 8_192  # what is worked on stays in the processor's cache, and in memory that is at hand
_COLUMN_LENGTH_MAX: Final = 256  # of a value: longer ones cost more in hashing than in calling
_COLUMN_ROWS_MIN: Final = 64  # of one length, below which a call for each costs less

_PRIME_1: Final = np.uint64(0x9E3779B185EBCA87)
_PRIME_2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3: Final = np.uint64(0x165667B19E3779F9)
_PRIME_4: Final = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5: Final = np.uint64(0x27D4EB2F165667C5)
_LANE_STARTS: Final = (int(_PRIME_1) + int(_PRIME_2), int(_PRIME_2), 0, -int(_PRIME_1))  # of the seed 0


def hash_numbers(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) of (n,)."""
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
    """(n,) of (n,) texts or bytes; arbitrary for nulls.

    seed: of XXH64. Hashes of another seed are others; file indexes have 0.
    """
    data, starts, lengths = byte_ranges(column)
    hashes = np.zeros(len(column), np.uint64)
    if not len(column):
        return hashes.view(np.int64)
    counts = np.bincount(np.minimum(lengths, _COLUMN_LENGTH_MAX + 1))
    many = counts >= _COLUMN_ROWS_MIN
    many[_COLUMN_LENGTH_MAX + 1 :] = False
    if many.sum() == 1 and counts.max() == len(column):
        _hash_one_length(data, starts, int(lengths[0]), hashes, np.arange(len(column)), seed)
        return hashes.view(np.int64)
    order = np.argsort(np.minimum(lengths, _COLUMN_LENGTH_MAX + 1).astype(np.uint16), kind="stable")
    ends = np.cumsum(counts)
    for length in np.flatnonzero(counts).tolist():
        rows = order[ends[length] - counts[length] : ends[length]]
        if many[length]:
            _hash_one_length(data, starts, length, hashes, rows, seed)
        else:
            _hash_one_by_one(data, starts, lengths, hashes, rows, seed)
    return hashes.view(np.int64)


def _hash_one_by_one(
    data: PaddedBytes,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    hashes: Hashes,
    rows: NDArray[np.int64],
    seed: int,
) -> None:
    view = data.data.data
    for row, start, length in zip(rows.tolist(), starts[rows].tolist(), lengths[rows].tolist(), strict=True):
        hashes[row] = xxhash.xxh64_intdigest(view[start : start + length], seed)


def _hash_one_length(
    data: PaddedBytes, starts: NDArray[np.int64], length: int, hashes: Hashes, rows: NDArray[np.int64], seed: int
) -> None:
    for block in _blocks(len(rows)):
        of_block = rows[block]
        hashes[of_block] = _xxh64(data, starts[of_block], length, seed)


def _xxh64(data: PaddedBytes, at: NDArray[np.int64], length: int, seed: int) -> Hashes:
    """XXH64 of `length` bytes from each position."""
    end, offset = length, 0
    if length >= 32:
        lanes = [np.full(len(at), (start + seed) % 2**64, np.uint64) for start in _LANE_STARTS]
        while offset + 32 <= end:
            for number in range(4):
                lanes[number] = _round(lanes[number], data.load(at + (offset + 8 * number), 8))
            offset += 32
        h = _rotated(lanes[0], 1) + _rotated(lanes[1], 7) + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
        for lane in lanes:
            h = (h ^ _first_round(lane)) * _PRIME_1 + _PRIME_4
    else:
        h = np.full(len(at), (int(_PRIME_5) + seed) % 2**64, np.uint64)
    h += np.uint64(length)
    while offset + 8 <= end:
        h ^= _first_round(data.load(at + offset, 8))
        h = _rotated(h, 27)
        h *= _PRIME_1
        h += _PRIME_4
        offset += 8
    if offset < end:
        h = _with_tail(h, data.load(at + offset, end - offset), end - offset)
    h ^= h >> np.uint64(33)
    h *= _PRIME_2
    h ^= h >> np.uint64(29)
    h *= _PRIME_3
    h ^= h >> np.uint64(32)
    return h


def _with_tail(h: Hashes, tail: Hashes, length: int) -> Hashes:
    """tail: the last bytes, less than eight, the first one lowest."""
    if length >= 4:
        h ^= (tail & np.uint64(0xFFFFFFFF)) * _PRIME_1
        h = _rotated(h, 23)
        h *= _PRIME_2
        h += _PRIME_3
        tail = tail >> np.uint64(32)
    for number in range(length % 4):
        h ^= ((tail >> np.uint64(8 * number)) & np.uint64(0xFF)) * _PRIME_5
        h = _rotated(h, 11)
        h *= _PRIME_1
    return h


def _round(lane: Hashes, words: Hashes) -> Hashes:
    return _rotated(lane + words * _PRIME_2, 31) * _PRIME_1


def _first_round(words: Hashes) -> Hashes:
    """Of a lane that is 0."""
    rounded = _rotated(words * _PRIME_2, 31)
    rounded *= _PRIME_1
    return rounded


def _rotated(words: Hashes, count: int) -> Hashes:
    rotated = words << np.uint64(count)
    rotated |= words >> np.uint64(64 - count)
    return rotated


def _blocks(length: int) -> Iterator[slice]:
    for start in range(0, length, _BLOCK_ROWS):
        yield slice(start, start + _BLOCK_ROWS)
