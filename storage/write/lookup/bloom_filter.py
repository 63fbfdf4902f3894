"""A Bloom filter of keys, which excludes most absent keys. Many keys are checked at a time.

All bits of a key are in one word, so that a key needs one access to memory. The filter is only used by this process,
and never stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.merge.normalized_keys import NormalizedKey

Hashes = NDArray[np.uint64]

_WORD_BITS: Final = 64
_MOST_BITS_OF_KEY: Final = 6
_BLOCKED_FILTER_FACTOR: Final = 1.4  # factor of memory for the same share of errors, because words fill unevenly
_TEXT_WORDS: Final = 4  # texts that differ only after these words have the same hash
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class BloomFilter:
    """A Bloom filter.

    count: the number of keys.
    fpp: the approximate share of absent keys that the filter reports as present.
    """

    def __init__(self, count: int, fpp: float) -> None:
        bits_per_key = -math.log(fpp) / math.log(2) ** 2
        self._bits_of_key = min(_MOST_BITS_OF_KEY, max(1, round(bits_per_key * math.log(2))))
        self._words = np.zeros(1 + int(count * bits_per_key * _BLOCKED_FILTER_FACTOR) // _WORD_BITS, np.uint64)

    @property
    def nbytes(self) -> int:
        return self._words.nbytes

    def add(self, hashes: Hashes) -> None:
        np.bitwise_or.at(self._words, self._places(hashes), self._masks(hashes))

    def may_contain(self, hashes: Hashes) -> NDArray[np.bool_]:
        """(m,): False if the key is certainly absent."""
        masks = self._masks(hashes)
        found: NDArray[np.bool_] = self._words[self._places(hashes)] & masks == masks
        return found

    def _places(self, hashes: Hashes) -> NDArray[np.intp]:
        return ((hashes >> np.uint64(36)) % np.uint64(len(self._words))).astype(np.intp)

    def _masks(self, hashes: Hashes) -> NDArray[np.uint64]:
        masks = np.zeros(len(hashes), np.uint64)
        for number in range(self._bits_of_key):
            masks |= np.uint64(1) << ((hashes >> np.uint64(6 * number)) & np.uint64(63))
        return masks


def key_hashes(columns: Sequence[NormalizedKey]) -> Hashes:
    """(m,): the hash of each key. Equal keys have equal hashes, even in different batches."""
    hashes = np.zeros(columns[0].num_rows, np.uint64)
    for column in columns:
        is_text = pa.types.is_string(column.values.type) or pa.types.is_binary(column.values.type)
        for word in column.first(_TEXT_WORDS if is_text else column.width):
            hashes = (hashes ^ word.astype(np.uint64, copy=False)) * _MIX
            hashes ^= hashes >> np.uint64(29)
    return hashes * _MIX
