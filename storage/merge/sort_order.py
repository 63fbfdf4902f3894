"""Sorts rows by key, and finds the last row of each key, with NumPy and order words.

Parameters of all functions, for n rows (`tidelake.storage.merge.normalized_keys`):

keys: the words of the key, most significant first.
sequences: the words that order rows of equal keys: user-defined sequence fields first, then the sequence number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tidelake.storage.merge.normalized_keys import KeyWords, Word

RowIndices = NDArray[np.intp]


def merge_order(keys: KeyWords, sequences: Sequence[Word] = ()) -> tuple[RowIndices, NDArray[np.bool_]]:
    """Sorts rows by key, then by sequence, then in the order given. Callers must pass older rows before newer ones.

    Returns (order (n,), is_last (n,)): row indices, and which positions of `order` end a group of equal keys.
    """
    if len(keys) == 1 and not sequences:
        order = np.argsort(keys[0], kind="stable")
    else:
        order = np.lexsort((*reversed(tuple(sequences)), *reversed(keys)))
    return order, group_ends(keys, order)


def group_ends(keys: KeyWords, order: RowIndices) -> NDArray[np.bool_]:
    """(n,): which positions of `order` are the last of their key.

    order (n,): row indices that sort by key.
    """
    ends = np.zeros(len(order), np.bool_)
    if len(order):
        ends[-1] = True
    for word in keys:
        ordered = word[order]
        ends[:-1] |= ordered[1:] != ordered[:-1]
    return ends
