"""Finds the row of each key that has the newest sequence of a sequence group, in columns.

Rows whose sequence fields are all null don't count. Sequences are compared field by field; nulls are smallest. Of equal
sequences the later row is the newer one. All arrays here are in merge order: n positions, in groups of equal keys.

Source: Java `mergetree/compact/PartialUpdateMergeFunction.java`, `utils/UserDefinedSeqComparator.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.normalized_keys import Word, normalize_column
from tidelake.storage.merge.sort_order import RowIndices


@dataclass(frozen=True, slots=True)
class Sequences:
    """The sequences of one sequence group.

    words: the words by which the sequences are compared.
    is_empty (n,): which rows have only nulls in the sequence fields.
    """

    words: tuple[Word, ...]
    is_empty: NDArray[np.bool_]

    @classmethod
    def of(cls, columns: Sequence[pa.Array], order: RowIndices) -> Sequences:
        words = tuple(word[order] for column in columns for word in normalize_column(column, nullable=True))
        is_empty = np.ones(len(order), np.bool_)
        for column in columns:
            is_empty &= column.is_null().to_numpy(zero_copy_only=False)[order]
        return cls(words, is_empty)

    def newest(self, candidates: NDArray[np.bool_], groups: Groups) -> RowIndices:
        """(m,): the position of the newest candidate of each group; -1 if it has none."""
        best = candidates
        for word in self.words:
            greatest = groups.reduce(np.maximum, np.where(best, word, np.iinfo(word.dtype).min))
            best = best & (word == groups.broadcast(greatest))
        return groups.last(best)

    def ranks(self) -> NDArray[np.int64]:
        """(n,): numbers from 0 with the order of the sequences. Equal sequences have equal ranks."""
        order = np.lexsort(tuple(reversed(self.words)))
        differs = np.zeros(len(order), np.bool_)
        for word in self.words:
            ordered = word[order]
            differs[1:] |= ordered[1:] != ordered[:-1]
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.cumsum(differs)
        return ranks


def not_older(
    ranks: NDArray[np.int64], counted: NDArray[np.bool_], segment_starts: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """(n,): which positions have a sequence at least as new as all counted ones before them in their segment.

    ranks (n,): see `Sequences.ranks`.
    counted (n,): which positions count.
    segment_starts (n,): which positions start a segment; position 0 must be one.
    """
    span = int(ranks.max(initial=0)) + 2
    levels = (np.cumsum(segment_starts) - 1) * span + np.where(counted, ranks + 1, 0)
    accepted: NDArray[np.bool_] = levels == np.maximum.accumulate(levels)
    return accepted
