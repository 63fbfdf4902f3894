"""Encodes primary keys as one or two 64-bit words. Equal keys have equal words, and different keys different words.

A key of numbers that fits into one or two words is encoded exactly. With two words, the first is mixed with the second,
because lookups search by the first word only. Any other key becomes two hashes of 128 bits together. With a thousand
million keys, the probability that two keys have the same hashes is 10^-21.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.files.file_index.value_hashes import hash_numbers, hash_texts
from tidelake.storage.merge.normalized_keys import NormalizedKey, normalize_column

IndexWords: TypeAlias = tuple[NDArray[np.uint64], ...]

_SEEDS: Final = (0, 0x9E3779B97F4A7C15)
_TEXTS: Final = (pa.types.is_string, pa.types.is_binary)


def index_words(columns: Sequence[pa.Array]) -> IndexWords:
    """Return one or two arrays (n,). Their number is the same for every batch of a table.

    columns: the columns of the primary key, without nulls.
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
    """Mix two words. For a fixed value of one argument, it is a bijection of the other."""
    return hash_numbers((hashes + np.uint64(_SEEDS[1]) ^ words).view(np.int64)).view(np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class RowsByKey:
    """The rows of a batch (n,), grouped by their keys.

    order (n,): row numbers; rows of a key are neighbours, in order of arrival.
    is_first (n,): for each entry of `order`: whether it is the first row of its key.
    group (n,): for each entry of `order`: the number of its key among the m keys.
    keys (m,): the distinct keys, sorted by the first word.
    """

    order: NDArray[np.intp]
    is_first: NDArray[np.bool_]
    group: NDArray[np.intp]
    keys: IndexWords

    @classmethod
    def of(cls, words: IndexWords) -> RowsByKey:
        order = np.argsort(words[0])
        ordered = words[0][order]
        if len(order) > 1 and (ordered[1:] == ordered[:-1]).any():  # only then arrival and the second word matter
            order = np.lexsort(words[::-1])  # a stable sort
        is_first = np.zeros(len(order), np.bool_)
        is_first[:1] = True
        for word in words:
            ordered = word[order]
            is_first[1:] |= ordered[1:] != ordered[:-1]
        starts = order[is_first]
        return cls(order, is_first, np.cumsum(is_first) - 1, tuple(word[starts] for word in words))
