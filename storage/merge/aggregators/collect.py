"""collect: concatenates the arrays of all rows.

Source: Java `FieldCollectAgg.java`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelake.storage.merge.aggregators.aggregator import Step, Steps, valid_rows
from tidelake.storage.merge.aggregators.row_aggregator import RowAggregator
from tidelake.storage.merge.column_aggregation import ColumnAggregation
from tidelake.storage.merge.equal_keys import Groups, Mask
from tidelake.storage.merge.values.entries import Entries, EntryColumn
from tidelake.storage.merge.values.equality import value_codes
from tidelake.storage.merge.values.hash_order import HashOrderedList, hash_codes
from tidelake.storage.merge.values.linked_list import LinkedList


@dataclass(frozen=True, slots=True)
class Collect:
    """The function collect. With `distinct`, each element is kept once.

    A retract removes, for each of its elements, one equal element.
    """

    aggregation: ColumnAggregation

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        if not len(groups):
            return values.slice(0, 0)
        if not self.aggregation.distinct and (steps is None or np.isin(steps, (Step.AGG, Step.SKIP)).all()):
            counted = valid_rows(values, groups)
            return _concatenated(values, groups, counted if steps is None else counted & (steps != Step.SKIP))
        rows = EntryColumn.of(values, groups)
        aggregator = _CollectAggregator(self.aggregation, rows.elements)
        return rows.of_entries(aggregator.aggregate(rows.items(), groups, steps))


def _concatenated(values: pa.Array, groups: Groups, counted: Mask) -> pa.Array:
    rows = values.take(pa.array(groups.rows[counted]))
    edges = np.concatenate(([0], np.cumsum(groups.reduce(np.add, counted.astype(np.int64)))))
    is_null = pa.array(edges[1:] == edges[:-1])
    offsets = rows.offsets.to_numpy()[edges]
    return pa.ListArray.from_arrays(pa.array(offsets), rows.values, type=values.type, mask=is_null)


class _CollectAggregator(RowAggregator[Entries, LinkedList[int]]):
    def __init__(self, aggregation: ColumnAggregation, elements: pa.Array) -> None:
        self._distinct = aggregation.distinct
        self._codes = value_codes(elements).tolist()
        # For these types Java compares new elements with the existing ones, and assumes that the latter are distinct.
        compares = pa.types.is_nested(elements.type) or pa.types.is_binary(elements.type)
        self._hashes = hash_codes(elements) if self._distinct and not compares else None
        # In Java the function appends an older array; only with ignore-retract it is put in front.
        self._reverses = aggregation.ignore_retract

    def agg(self, acc: Entries | LinkedList[int] | None, item: Entries | None) -> Entries | LinkedList[int] | None:
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

    def agg_reversed(
        self, acc: Entries | LinkedList[int] | None, item: Entries | None
    ) -> Entries | LinkedList[int] | None:
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

    def retract(self, acc: Entries | LinkedList[int] | None, item: Entries | None) -> Entries | LinkedList[int] | None:
        if acc is None or not item:
            return acc
        line = self._line(acc)
        for entry in item:
            if self._codes[entry] in line:
                line.take(self._codes[entry])
        return line

    def finish(self, acc: Entries | LinkedList[int]) -> Entries:
        return acc.in_order() if isinstance(acc, HashOrderedList) else list(acc)

    def _line(self, acc: Entries | LinkedList[int] | None) -> LinkedList[int]:
        if isinstance(acc, LinkedList):
            return acc
        codes = self._codes.__getitem__
        line = LinkedList(codes) if self._hashes is None else HashOrderedList(codes, self._hashes.__getitem__)
        line.extend(acc or ())
        return line

    def _rebuilt(self, line: LinkedList[int]) -> LinkedList[int]:
        """Apply the order of Java's hash table, if elements are made distinct by hash."""
        if isinstance(line, HashOrderedList):
            line.rebuild(len(line))
        return line
