"""merge_map and merge_map_with_keytime: maps of all rows in one.

The order of entries is that in which their keys came; Java's is arbitrary.
Source: Java `FieldMergeMapAgg.java`, `FieldMergeMapWithKeyTimeAgg.java`; merge-engines notes 6.3, 6.6.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from storage.aggregate_functions import ColumnAggregation
from storage.merge.aggregators.base import Groups, Steps
from storage.merge.aggregators.containers import Containers, Entries
from storage.merge.aggregators.equality import value_codes
from storage.merge.aggregators.item_fold import ItemFold


class MergeMap:
    """The newest value of each key. A retract removes its keys, whatever their values."""

    def fold(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        maps = Containers.of(values, groups)
        fold = _Merging(value_codes(maps.elements).tolist())
        return maps.of_entries(fold.fold(maps.items(), groups, steps))


@dataclass(frozen=True, slots=True)
class MergeMapWithKeyTime:
    """The value of each key with the greatest time, compared as text. A null value removes the key."""

    aggregation: ColumnAggregation

    def fold(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        maps = Containers.of(values, groups)
        rows = maps.column.items
        times = rows.flatten()[self.aggregation.timestamp_field]
        fold = _MergingByTime(value_codes(maps.elements).tolist(), rows.is_valid().to_pylist(), times.to_pylist())
        return maps.of_entries(fold.fold(maps.items(), groups, steps))


class _Merging(ItemFold[Entries]):
    def __init__(self, keys: list[int]) -> None:
        self._keys = keys

    def agg(self, acc: Entries | None, item: Entries | None) -> Entries | None:
        if acc is None or item is None:
            return item if acc is None else acc
        return list({self._keys[entry]: entry for entry in acc + item}.values())

    def retract(self, acc: Entries | None, item: Entries | None) -> Entries | None:
        if acc is None or not item:
            return acc
        gone = {self._keys[entry] for entry in item}
        return list({self._keys[entry]: entry for entry in acc if self._keys[entry] not in gone}.values())


class _MergingByTime(_Merging):
    def __init__(self, keys: list[int], has_row: list[bool], times: list[str | None]) -> None:
        super().__init__(keys)
        self._has_row = has_row
        self._times = [None if time is None else time.encode("utf-16-be") for time in times]

    def agg(self, acc: Entries | None, item: Entries | None) -> Entries | None:
        if acc is None or item is None:
            return item if acc is None else acc
        merged = {self._keys[entry]: entry for entry in acc}
        for entry in item:
            key = self._keys[entry]
            if not self._has_row[entry]:
                merged.pop(key, None)
            elif (time := self._times[entry]) is not None:
                known = self._times[merged[key]] if key in merged and self._has_row[merged[key]] else None
                if known is None or time > known:
                    merged[key] = entry
        return list(merged.values())
