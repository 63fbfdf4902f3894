"""A Bloom filter over keys, asked for many at a time: of most keys that are not there it says so.

It is of this process only and never stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint32]


class BloomFilter:
    """`add` all keys, `seal`, then ask. count: of keys. fpp: share of absent keys that it takes for present ones."""

    def __init__(self, count: int, fpp: float) -> None:
        size = max(64, math.ceil(-count * math.log(fpp) / math.log(2) ** 2))
        self._size = -(-size // 8) * 8
        self._probes = max(1, round(size / max(1, count) * math.log(2)))
        self._flags = np.zeros(self._size, np.bool_)  # a byte each, until it is sealed
        self._bits = np.zeros(0, np.uint8)

    @property
    def nbytes(self) -> int:
        return self._size // 8

    def add(self, hashes: Hashes) -> None:
        for places in self._places(hashes):
            self._flags[places] = True

    def seal(self) -> None:
        self._bits = np.packbits(self._flags)
        self._flags = self._flags[:0]

    def may_contain(self, hashes: Hashes) -> NDArray[np.bool_]:
        """(m,): False where the key is surely absent."""
        found = np.ones(len(hashes), np.bool_)
        for places in self._places(hashes):
            found &= (self._bits[places >> 3] << (places & 7).astype(np.uint8)) & 0x80 != 0
        return found

    def _places(self, hashes: Hashes) -> Iterator[NDArray[np.int64]]:
        mixed = hashes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        first, step = mixed >> np.uint64(32), (mixed & np.uint64(0xFFFFFFFF)) | np.uint64(1)
        for probe in range(self._probes):
            yield ((first + np.uint64(probe) * step) % np.uint64(self._size)).astype(np.int64)
