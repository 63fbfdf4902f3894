"""Primary keys as one or two 64-bit words: equal keys have equal words, and unlike keys unlike ones.

A key of numbers that fits into one or two words stays exact; of two, the first is mixed with the other, for keys are
found by it alone. Of any other key two hashes are taken, 128 bits: among a thousand million keys two share them with a
probability of 10^-21.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.file_index.hashing import hash_numbers, hash_texts
from storage.merge.normalized_keys import NormalizedKey, normalize_column

IndexWords: TypeAlias = tuple[NDArray[np.uint64], ...]

_SEEDS: Final = (0, 0x9E3779B97F4A7C15)
_TEXTS: Final = (pa.types.is_string, pa.types.is_binary)


def index_words(columns: Sequence[pa.Array]) -> IndexWords:
    """One or two arrays (n,), as many for every batch of a table.

    columns: of the primary key, none of them null.
    """
    if not any(is_text(column.type) for column in columns for is_text in _TEXTS):
        words = [word for column in columns for word in _number_words(normalize_column(column, nullable=False))]
        if len(words) == 1:
            return (words[0],)
        if len(words) == 2:
            first, second = words
            return _mixed(_mixed(np.zeros(len(first), np.uint64), first), second), second
    return tuple(_hashes(columns, seed) for seed in _SEEDS)


def _number_words(column: NormalizedKey) -> list[NDArray[np.uint64]]:
    return [word.view(np.uint64) for word in column.first(column.width)]


def _hashes(columns: Sequence[pa.Array], seed: int) -> NDArray[np.uint64]:
    hashes = np.full(len(columns[0]), seed, np.uint64)
    for column in columns:
        if any(is_text(column.type) for is_text in _TEXTS):
            hashes = _mixed(hashes, hash_texts(column, seed).view(np.uint64))
        else:
            for word in _number_words(normalize_column(column, nullable=False)):
                hashes = _mixed(hashes, word)
    return hashes


def _mixed(hashes: NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Of either one a bijection, for any value of the other."""
    return hash_numbers((hashes + np.uint64(_SEEDS[1]) ^ words).view(np.int64)).view(np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class RowsByKey:
    """The rows of a batch (n,) by their keys.

    order (n,): rows, those of a key side by side in order of arrival.
    is_first (n,): of `order`: where a key begins.
    group (n,): of `order`: which of the m keys.
    keys (m,): each once, sorted by the first word.
    """

    order: NDArray[np.intp]
    is_first: NDArray[np.bool_]
    group: NDArray[np.intp]
    keys: IndexWords

    @classmethod
    def of(cls, words: IndexWords) -> RowsByKey:
        order = np.argsort(words[0])
        ordered = words[0][order]
        if len(order) > 1 and (ordered[1:] == ordered[:-1]).any():  # then arrival, and the second word, matter
            order = np.lexsort(words[::-1])  # stable
        is_first = np.zeros(len(order), np.bool_)
        is_first[:1] = True
        for word in words:
            ordered = word[order]
            is_first[1:] |= ordered[1:] != ordered[:-1]
        starts = order[is_first]
        return cls(order, is_first, np.cumsum(is_first) - 1, tuple(word[starts] for word in words))
