"""collect: arrays of all rows in one.

Source: Java `FieldCollectAgg.java`; merge-engines notes 6.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from storage.aggregate_functions import ColumnAggregation
from storage.merge.aggregators.base import Groups, Mask, Step, Steps, valid_rows
from storage.merge.aggregators.containers import Containers, Entries
from storage.merge.aggregators.equality import value_codes
from storage.merge.aggregators.hash_order import hash_codes, in_hash_order
from storage.merge.aggregators.item_fold import ItemFold


@dataclass(frozen=True, slots=True)
class Collect:
    """One array after the other; `distinct`: each element once.

    A retract removes, for each of its elements, one equal element.
    """

    aggregation: ColumnAggregation

    def fold(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        if not len(groups):
            return values.slice(0, 0)
        if not self.aggregation.distinct and (steps is None or np.isin(steps, (Step.AGG, Step.SKIP)).all()):
            counted = valid_rows(values, groups)
            return _concatenated(values, groups, counted if steps is None else counted & (steps != Step.SKIP))
        rows = Containers.of(values, groups)
        fold = _Collecting(self.aggregation, rows.elements)
        return rows.of_entries(fold.fold(rows.items(), groups, steps))


def _concatenated(values: pa.Array, groups: Groups, counted: Mask) -> pa.Array:
    rows = values.take(pa.array(groups.rows[counted]))
    edges = np.concatenate(([0], np.cumsum(np.add.reduceat(counted.astype(np.int64), groups.starts))))
    is_null = pa.array(edges[1:] == edges[:-1])
    offsets = rows.offsets.to_numpy()[edges]
    return pa.ListArray.from_arrays(pa.array(offsets), rows.values, type=values.type, mask=is_null)


class _Collecting(ItemFold[Entries]):
    def __init__(self, aggregation: ColumnAggregation, elements: pa.Array) -> None:
        self._distinct = aggregation.distinct
        self._codes = value_codes(elements).tolist()
        # Of these Java compares each new one with those it has, and takes the latter for distinct already
        self._compares = pa.types.is_nested(elements.type) or pa.types.is_binary(elements.type)
        self._hashes = [] if self._compares or not self._distinct else hash_codes(elements)
        # Only the bare function knows that an older array need not go in front
        self._reverses = aggregation.ignore_retract

    def agg(self, acc: Entries | None, item: Entries | None) -> Entries | None:
        if not self._distinct or (acc is None and item is None):
            return acc + item if acc is not None and item is not None else item if acc is None else acc
        if self._compares:
            kept = list(acc or ())
            return kept + self._once(item or [], {self._codes[entry] for entry in kept})
        once = self._once([*(acc or ()), *(item or ())], set())
        return [once[at] for at in in_hash_order([self._hashes[entry] for entry in once], len(once))]

    def agg_reversed(self, acc: Entries | None, item: Entries | None) -> Entries | None:
        return self.agg(item, acc) if self._reverses else self.agg(acc, item)

    def retract(self, acc: Entries | None, item: Entries | None) -> Entries | None:
        if acc is None or not item:
            return acc
        gone = [self._codes[entry] for entry in item]
        kept = []
        for entry in acc:
            if self._codes[entry] in gone:
                gone.remove(self._codes[entry])
            else:
                kept.append(entry)
        return kept

    def _once(self, entries: Entries, seen: set[int]) -> Entries:
        once = []
        for entry in entries:
            if self._codes[entry] not in seen:
                seen.add(self._codes[entry])
                once.append(entry)
        return once
