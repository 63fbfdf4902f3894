"""merge_map and merge_map_with_keytime: merge the maps of all rows.

The entries are in the order in which their keys arrived. Java's order is arbitrary.

Source: Java `FieldMergeMapAgg.java`, `FieldMergeMapWithKeyTimeAgg.java`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from tidelake.storage.merge.aggregators.aggregator import Steps
from tidelake.storage.merge.aggregators.row_aggregator import RowAggregator
from tidelake.storage.merge.column_aggregation import ColumnAggregation
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.values.entries import Entries, EntryColumn
from tidelake.storage.merge.values.equality import value_codes

Merged: TypeAlias = OrderedDict[int, int]  # entries by the codes of their keys


class MergeMap:
    """The function merge_map: the newest value of each key. A retract removes its keys, regardless of their values."""

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        maps = EntryColumn.of(values, groups)
        aggregator = _MergeMapAggregator(value_codes(maps.elements).tolist())
        return maps.of_entries(aggregator.aggregate(maps.items(), groups, steps))


@dataclass(frozen=True, slots=True)
class MergeMapWithKeyTime:
    """The function merge_map_with_keytime: for each key, the value with the greatest time.

    Times are compared as text. A null value removes the key.
    """

    aggregation: ColumnAggregation

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        maps = EntryColumn.of(values, groups)
        rows = maps.column.items
        times = rows.flatten()[self.aggregation.timestamp_field]
        aggregator = _MergingByTime(value_codes(maps.elements).tolist(), rows.is_valid().to_pylist(), times.to_pylist())
        return maps.of_entries(aggregator.aggregate(maps.items(), groups, steps))


class _MergeMapAggregator(RowAggregator[Entries, Merged]):
    """Merges maps in time that is linear in the number of entries, including retracts and older rows.

    A retract removes keys, and an older row puts its keys in front of the others.
    """

    def __init__(self, keys: list[int]) -> None:
        self._keys = keys

    def agg(self, acc: Entries | Merged | None, item: Entries | None) -> Entries | Merged | None:
        if acc is None or item is None:
            return item if acc is None else acc
        merged = self._merged(acc)
        for entry in item:
            merged[self._keys[entry]] = entry
        return merged

    def agg_reversed(self, acc: Entries | Merged | None, item: Entries | None) -> Entries | Merged | None:
        if acc is None or item is None:
            return item if acc is None else acc
        merged = self._merged(acc)
        for key, entry in reversed(self._merged(item).items()):
            merged.setdefault(key, entry)
            merged.move_to_end(key, last=False)
        return merged

    def retract(self, acc: Entries | Merged | None, item: Entries | None) -> Entries | Merged | None:
        if acc is None or not item:
            return acc
        merged = self._merged(acc)
        for entry in item:
            merged.pop(self._keys[entry], None)
        return merged

    def finish(self, acc: Entries | Merged) -> Entries:
        return acc if isinstance(acc, list) else list(acc.values())

    def _merged(self, acc: Entries | Merged) -> Merged:
        return OrderedDict((self._keys[entry], entry) for entry in acc) if isinstance(acc, list) else acc


class _MergingByTime(_MergeMapAggregator):
    def __init__(self, keys: list[int], has_row: list[bool], times: list[str | None]) -> None:
        super().__init__(keys)
        self._has_row = has_row
        self._times = [None if time is None else time.encode("utf-16-be") for time in times]
        # Keys of the oldest map whose entries may have no row or no time. In a newer map such entries would remove the
        # key, or do nothing.
        self._keys_without_time: set[int] = set()

    def agg(self, acc: Entries | Merged | None, item: Entries | None) -> Entries | Merged | None:
        if acc is None or item is None:
            return item if acc is None else acc
        merged = self._oldest(acc) if isinstance(acc, list) else acc
        for entry in item:
            key = self._keys[entry]
            if not self._has_row[entry]:
                merged.pop(key, None)
            elif self._is_newer(entry, merged.get(key)):
                merged[key] = entry
        return merged

    def agg_reversed(self, acc: Entries | Merged | None, item: Entries | None) -> Entries | Merged | None:
        if acc is None or item is None:
            return item if acc is None else acc
        if isinstance(acc, list):
            return self.agg(item, acc)
        untimed = {key: acc.pop(key) for key in self._keys_without_time if key in acc and self._times[acc[key]] is None}
        older = self._oldest(item)
        for key, entry in untimed.items():
            if not self._has_row[entry]:
                older.pop(key, None)
        for key, entry in reversed(older.items()):
            known = acc.get(key)
            if known is None or not self._is_newer(known, entry):
                acc[key] = entry
            acc.move_to_end(key, last=False)
        return acc

    def _oldest(self, entries: Entries) -> Merged:
        merged = self._merged(entries)
        self._keys_without_time = {key for key, entry in merged.items() if self._times[entry] is None}
        return merged

    def _is_newer(self, entry: int, known: int | None) -> bool:
        """Return whether the entry has a time that is greater than that of the known entry."""
        time = self._times[entry]
        known_time = None if known is None else self._times[known]
        return time is not None and (known_time is None or time > known_time)
