"""The greatest and the least value of a group, in Paimon's order of values.

Source: Java `FieldMaxAgg`, `FieldMinAgg`, `FieldBoolAndAgg`, `FieldBoolOrAgg`, `InternalRowUtils.compare`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.merge.aggregators.base import Groups, Step, Steps, since_last_set, valid_rows
from storage.merge.aggregators.picks import picked
from storage.merge.order_words import Word, column_words


@dataclass(frozen=True, slots=True)
class Extreme:
    """max, or min: `bool_or` and `bool_and` are the same over booleans. Nulls don't count.

    NaN is the greatest, -0.0 less than 0.0; strings compare by their bytes. Equal values are the same, so it doesn't
    matter which of them wins, nor which row is the older.
    """

    greatest: bool

    def fold(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        candidates = valid_rows(values, groups)
        steps = since_last_set(groups, steps)
        if steps is not None:
            candidates &= steps != Step.SKIP
        if not len(groups):
            return values.slice(0, 0)
        for word in _words(values):
            ordered = word[groups.rows]
            if not self.greatest:
                ordered = ~ordered
            best = np.maximum.reduceat(np.where(candidates, ordered, np.iinfo(ordered.dtype).min), groups.starts)
            candidates &= ordered == groups.spread(best)
        return picked(values, groups, groups.first(candidates))


def _words(values: pa.Array) -> Iterable[Word]:
    """Words that compare as the values do. Text may be long: its rank is one word, whatever its length."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return (pc.rank(values, tiebreaker="dense").to_numpy(),)
    return column_words(values, nullable=False)
