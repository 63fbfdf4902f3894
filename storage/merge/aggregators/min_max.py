"""Finds the greatest or the least value of a group, in Paimon's order of values.

Source: Java `FieldMaxAgg`, `FieldMinAgg`, `FieldBoolAndAgg`, `FieldBoolOrAgg`, `InternalRowUtils.compare`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.merge.aggregators.aggregator import Step, Steps, since_last_set, valid_rows
from tidelake.storage.merge.aggregators.first_last import take_positions
from tidelake.storage.merge.equal_keys import Groups, Mask
from tidelake.storage.merge.normalized_keys import Word, normalize_column
from tidelake.storage.merge.values.wide_ints import WideInts, from_wide_ints, is_integer_like


@dataclass(frozen=True, slots=True)
class MinMaxAggregator:
    """The functions max and min. On booleans they are `bool_or` and `bool_and`. Nulls don't count.

    NaN is the greatest value, and -0.0 is less than 0.0. Strings are compared by their bytes. Equal values are
    identical, so the order of rows does not matter.
    """

    greatest: bool

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        candidates = valid_rows(values, groups)
        steps = since_last_set(groups, steps)
        if steps is not None:
            candidates &= steps != Step.SKIP
        if not len(groups):
            return values.slice(0, 0)
        if is_integer_like(values.type):
            return self._whole_number(values, groups, candidates)
        for word in _words(values):
            ordered = word[groups.rows]
            if not self.greatest:
                ordered = ~ordered
            best = groups.reduce(np.maximum, np.where(candidates, ordered, np.iinfo(ordered.dtype).min))
            candidates &= ordered == groups.broadcast(best)
        return take_positions(values, groups, groups.first(candidates))

    def _whole_number(self, values: pa.Array, groups: Groups, candidates: Mask) -> pa.Array:
        """Aggregate the words directly: they are the values, so the row need not be found."""
        (word,) = normalize_column(values, nullable=False)
        numbers = word[groups.rows]
        worst = np.iinfo(numbers.dtype).min if self.greatest else np.iinfo(numbers.dtype).max
        best = groups.reduce(np.maximum if self.greatest else np.minimum, np.where(candidates, numbers, worst))
        return from_wide_ints(WideInts(best), groups.any(candidates), values.type)


def _words(values: pa.Array) -> Iterable[Word]:
    """Return words with the order of the values. Text may be long, so its only word is its rank."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return (pc.rank(values, tiebreaker="dense").to_numpy(),)
    return normalize_column(values, nullable=False)
