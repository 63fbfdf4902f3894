"""collect: arrays of all rows in one.

Source: Java `FieldCollectAgg.java`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from storage.aggregate_functions import ColumnAggregation
from storage.merge.aggregators.base import Step, Steps, valid_rows
from storage.merge.aggregators.containers import Containers, Entries
from storage.merge.aggregators.equality import value_codes
from storage.merge.aggregators.hash_order import HashLine, hash_codes
from storage.merge.aggregators.item_fold import ItemFold
from storage.merge.aggregators.line import Line
from storage.merge.groups import Groups, Mask


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
    edges = np.concatenate(([0], np.cumsum(groups.reduce(np.add, counted.astype(np.int64)))))
    is_null = pa.array(edges[1:] == edges[:-1])
    offsets = rows.offsets.to_numpy()[edges]
    return pa.ListArray.from_arrays(pa.array(offsets), rows.values, type=values.type, mask=is_null)


class _Collecting(ItemFold[Entries, Line[int]]):
    def __init__(self, aggregation: ColumnAggregation, elements: pa.Array) -> None:
        self._distinct = aggregation.distinct
        self._codes = value_codes(elements).tolist()
        # Of these Java compares each new one with those it has, and takes the latter for distinct already
        compares = pa.types.is_nested(elements.type) or pa.types.is_binary(elements.type)
        self._hashes = hash_codes(elements) if self._distinct and not compares else None
        # Only the bare function knows that an older array need not go in front
        self._reverses = aggregation.ignore_retract

    def agg(self, acc: Entries | Line[int] | None, item: Entries | None) -> Entries | Line[int] | None:
        if not self._distinct and (acc is None or item is None):
            return item if acc is None else acc
        if acc is None and item is None:
            return None
        line = self._line(acc)
        if not self._distinct:
            line.extend(item or ())
            return line
        if self._hashes is not None:
            line.take_repeated()
        for entry in item or ():
            if self._codes[entry] not in line:
                line.append(entry)
        return self._rebuilt(line)

    def agg_reversed(self, acc: Entries | Line[int] | None, item: Entries | None) -> Entries | Line[int] | None:
        if not self._reverses:
            return self.agg(acc, item)
        if acc is None or (item is None and not self._distinct):
            return self.agg(item, None) if acc is None else acc
        line = self._line(acc)
        if self._distinct:
            line.take_repeated()
            for entry in item or ():
                line.take_all(self._codes[entry])
        line.prepend_all(item or [])
        if self._hashes is not None:
            line.take_repeated()
        return self._rebuilt(line)

    def retract(self, acc: Entries | Line[int] | None, item: Entries | None) -> Entries | Line[int] | None:
        if acc is None or not item:
            return acc
        line = self._line(acc)
        for entry in item:
            if self._codes[entry] in line:
                line.take(self._codes[entry])
        return line

    def finish(self, acc: Entries | Line[int]) -> Entries:
        return acc.in_order() if isinstance(acc, HashLine) else list(acc)

    def _line(self, acc: Entries | Line[int] | None) -> Line[int]:
        if isinstance(acc, Line):
            return acc
        codes = self._codes.__getitem__
        line = Line(codes) if self._hashes is None else HashLine(codes, self._hashes.__getitem__)
        line.extend(acc or ())
        return line

    def _rebuilt(self, line: Line[int]) -> Line[int]:
        """What is distinct by hash goes through a hash table."""
        if isinstance(line, HashLine):
            line.rebuild(len(line))
        return line
