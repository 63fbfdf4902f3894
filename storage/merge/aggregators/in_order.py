"""Floating-point operations over groups, strictly one row after the other, as Java does them.

NumPy adds in pairs and eight sums at a time, which rounds differently.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from storage.merge.aggregators.base import Groups

_ROUNDS = 32  # a group that is longer is done alone


def reduce_in_order(operation: np.ufunc, values: NDArray[Any], groups: Groups) -> NDArray[Any]:
    """((v0 op v1) op v2) .. of each group. values (n,): in merge order, in the width to compute in.

    In rounds: the second rows of all groups, the third rows, .. Each row is touched once.
    """
    with np.errstate(all="ignore"):  # infinity and NaN are results
        acc = values[groups.starts]
        lengths = groups.lengths
        longest_first = np.argsort(-lengths, kind="stable")
        starts, ascending = groups.starts[longest_first], -lengths[longest_first]
        for step in range(1, min(_ROUNDS, int(lengths.max(initial=0)))):
            alive = int(np.searchsorted(ascending, -step, side="left"))  # groups longer than `step`
            which = longest_first[:alive]
            acc[which] = operation(acc[which], values[starts[:alive] + step])
        for group in np.flatnonzero(lengths > _ROUNDS).tolist():
            start = groups.starts[group]
            acc[group] = operation.accumulate(values[start : start + lengths[group]])[-1]
        return acc
