"""Searches many keys in sorted keys, by order words (`tidelake.storage.merge.normalized_keys`).

Source: Java `mergetree/LookupUtils.java`; vectors `lookup_file_search.json`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelake.storage.merge.normalized_keys import KeyWords, Word


def first_not_less(sorted_keys: KeyWords, asked: KeyWords) -> NDArray[np.intp]:
    """(m,): for each key, the position of the first sorted key that is not less; n if none exists.

    Takes O(m log n): one binary search by the first word. Keys that are still undecided are searched further, all at
    once.

    sorted_keys: the words of n sorted keys.
    asked: the words of m keys.
    """
    low = np.searchsorted(sorted_keys[0], asked[0], side="left")
    if len(sorted_keys) == 1:
        return low
    high = np.searchsorted(sorted_keys[0], asked[0], side="right")
    open_keys = np.flatnonzero(low < high)
    while len(open_keys):
        middle = (low[open_keys] + high[open_keys]) // 2
        less = _is_less(sorted_keys, middle, asked, open_keys)
        low[open_keys[less]] = middle[less] + 1
        high[open_keys[~less]] = middle[~less]
        open_keys = open_keys[low[open_keys] < high[open_keys]]
    return low


def equal_keys(sorted_keys: KeyWords, places: NDArray[np.intp], asked: KeyWords) -> NDArray[np.bool_]:
    """(m,): whether each key equals the sorted key at its place.

    places (m,): the result of `first_not_less`.
    """
    inside = np.minimum(places, len(sorted_keys[0]) - 1)
    equal = places < len(sorted_keys[0])
    for word, wanted in zip(sorted_keys, asked, strict=True):
        equal &= word[inside] == wanted
    return equal


def _is_less(
    sorted_keys: KeyWords, places: NDArray[np.intp], asked: KeyWords, rows: NDArray[np.intp]
) -> NDArray[np.bool_]:
    less = np.zeros(len(places), np.bool_)
    for word, wanted in zip(reversed(sorted_keys), reversed(asked), strict=True):
        one: Word = word[places]
        other: Word = wanted[rows]
        less = (one < other) | ((one == other) & less)
    return less
