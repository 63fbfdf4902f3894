"""Sorting rows by key, choosing among rows of one key: NumPy over order words.

Everywhere: `keys` are the words of the key, `sequences` words that order rows of equal keys (user-defined sequence
fields first, then the sequence number); n rows, most significant word first (`storage.merge.normalized_keys`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from storage.merge.normalized_keys import KeyWords, Word

RowIndices = NDArray[np.intp]


def merge_order(keys: KeyWords, sequences: Sequence[Word] = ()) -> tuple[RowIndices, NDArray[np.bool_]]:
    """Rows in merge order: by key, then by sequence, then as they came.

    Returns (order (n,), is_last (n,)): row indices, and which positions of `order` end a group of equal keys.
    The stable sort is why "as they came" holds: callers lay older rows before newer ones.
    """
    if len(keys) == 1 and not sequences:
        order = np.argsort(keys[0], kind="stable")
    else:
        order = np.lexsort((*reversed(tuple(sequences)), *reversed(keys)))
    return order, group_ends(keys, order)


def group_ends(keys: KeyWords, order: RowIndices) -> NDArray[np.bool_]:
    """Which positions of `order` are the last of their key; `order` sorts by key."""
    ends = np.zeros(len(order), np.bool_)
    if len(order):
        ends[-1] = True
    for word in keys:
        ordered = word[order]
        ends[:-1] |= ordered[1:] != ordered[:-1]
    return ends
