"""Finds deletes that remove a whole record: option `partial-update.remove-record-on-sequence-group`.

A delete removes the record if its sequence in one of the option's groups is not older than the record's. The record
then starts again with the sequences of the delete, in all groups. So the rows of a key must be checked one after the
other. Here one row of every key is checked at a time.

Source: Java `mergetree/compact/PartialUpdateMergeFunction.java`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions.sequences import Sequences


def record_deletes(sequences: Sequence[Sequences], deletes: NDArray[np.bool_], groups: Groups) -> NDArray[np.bool_]:
    """(n,): which positions remove the record of their key.

    sequences: the sequences of the groups whose deletes can remove the record.
    deletes (n,): the positions of -D rows, without rows that are returned unchanged.
    """
    removing = np.zeros(len(deletes), np.bool_)
    affected = np.flatnonzero(groups.any(deletes))
    by_length = affected[np.argsort(-groups.lengths[affected], kind="stable")]
    starts, lengths = groups.starts[by_length], groups.lengths[by_length]
    ranks = [s.ranks() for s in sequences]
    newest = [np.full(len(by_length), -1, np.int64) for _ in sequences]
    for step in range(int(lengths.max(initial=0))):
        active_count = int(np.searchsorted(-lengths, -step, side="left"))  # lengths > step come first
        at = starts[:active_count] + step
        accepted = [
            ~s.is_empty[at] & (r[at] >= n[:active_count]) for s, r, n in zip(sequences, ranks, newest, strict=True)
        ]
        removed = deletes[at] & np.logical_or.reduce(accepted)
        for rank, best, is_newer in zip(ranks, newest, accepted, strict=True):
            best[:active_count] = np.where(is_newer | removed, rank[at], best[:active_count])
        removing[at] = removed
    return removing
