"""nested_update and nested_partial_update: an ARRAY<ROW> as a table inside the row.

Rows that have a key come out in the order of Java's hash table.
Source: Java `FieldNestedUpdateAgg.java`, `FieldNestedPartialUpdateAgg.java`; merge-engines notes 6.7, 6.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from storage.aggregate_functions import ColumnAggregation, NullKeys, inner_row
from storage.binary_row import hash_rows
from storage.errors import BadInput
from storage.merge.aggregators.base import Groups, Steps
from storage.merge.aggregators.containers import Containers, Entries, rebuilt
from storage.merge.aggregators.equality import NULL, value_codes
from storage.merge.aggregators.hash_order import in_hash_order
from storage.merge.aggregators.item_fold import ItemFold
from storage.merge.order_words import column_words

Key: TypeAlias = tuple[int, ...]  # codes of the fields of `nested-key`
Patch: TypeAlias = tuple[int, tuple[int | None, ...]]  # an entry with its key; what each field comes from, None is null


@dataclass(frozen=True, slots=True)
class NestedUpdate:
    """Without `nested-key` rows are appended, with one they replace the row of their key.

    Null rows of an array vanish. A retract removes equal rows, all of them, or the rows of its keys.
    """

    aggregation: ColumnAggregation

    def fold(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        arrays = Containers.of(values, groups)
        fold: ItemFold[Entries]
        if self.aggregation.nested_key:
            keys = _Keys.of(self.aggregation, arrays.elements)
            fold = _Replacing(keys, _ages(self.aggregation, arrays.elements), self.aggregation.count_limit)
        else:
            fold = _Appending(value_codes(arrays.elements).tolist(), self.aggregation.count_limit)
        return arrays.of_entries(fold.fold(arrays.items(), groups, steps))


@dataclass(frozen=True, slots=True)
class NestedPartialUpdate:
    """Fields that are not null update the row of their key."""

    aggregation: ColumnAggregation

    def fold(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        arrays = Containers.of(values, groups)
        fields = arrays.elements.flatten()
        known = list(zip(*(field.is_valid().to_pylist() for field in fields), strict=True))
        items = [
            None if entries is None else [_patch(entry, known[entry]) for entry in entries]
            for entries in arrays.items()
        ]
        folded = _Patching(_Keys.of(self.aggregation, arrays.elements)).fold(items, groups, steps)
        patches = [patch for row in folded if row is not None for patch in row]
        columns = [
            field.take(pa.array([sources[at] for _, sources in patches], pa.int64())) for at, field in enumerate(fields)
        ]
        is_null = arrays.elements.is_null().take(pa.array([entry for entry, _ in patches], pa.int64()))
        rows = pa.StructArray.from_arrays(columns, fields=list(arrays.elements.type), mask=is_null)
        return rebuilt(values.type, [rows], folded)


def _patch(entry: int, known: tuple[bool, ...]) -> Patch:
    return entry, tuple(entry if is_known else None for is_known in known)


def _ages(aggregation: ColumnAggregation, rows: pa.Array) -> list[tuple[int, ...]] | None:
    """What orders the rows of a key, greater is newer; None where they are ordered as they come. Nulls are oldest."""
    columns = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
    names = aggregation.nested_sequence
    words = [word.tolist() for name in names for word in column_words(columns[name], nullable=True)]
    return list(zip(*words, strict=True)) if names else None


@dataclass(frozen=True, slots=True)
class _Keys:
    """What nested rows have in their fields of `nested-key`: equal codes are equal keys. is_row: false for null."""

    aggregation: ColumnAggregation
    is_row: list[bool]
    codes: list[Key]
    hashes: list[int]

    @classmethod
    def of(cls, aggregation: ColumnAggregation, rows: pa.Array) -> _Keys:
        columns = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
        types = inner_row(aggregation.field.type)
        key = [columns[name] for name in aggregation.nested_key]
        codes = zip(*(value_codes(column).tolist() for column in key), strict=True)
        hashes = hash_rows(key, [types[name] for name in aggregation.nested_key])
        return cls(aggregation, rows.is_valid().to_pylist(), list(codes), hashes.tolist())

    def count(self, entry: int) -> bool:
        """Whether an entry takes part: a row, and then after `nested-key-null-strategy`."""
        if not self.is_row[entry]:
            return False
        strategy = self.aggregation.null_keys
        if strategy is NullKeys.MERGE or NULL not in self.codes[entry]:
            return True
        if strategy is NullKeys.IGNORE:
            return False
        name = self.aggregation.field.name
        raise BadInput(
            f"column {name!r}: a nested row has null in its key ({', '.join(self.aggregation.nested_key)}); mend the "
            f"row, or set fields.{name}.nested-key-null-strategy to merge or ignore"
        )

    def order(self, entries: Entries, most: int, *, newest_first: bool = False) -> list[int]:
        """Indices of the entries, one a key, as `in_hash_order`."""
        return in_hash_order([self.hashes[entry] for entry in entries], most, newest_first=newest_first)


class _Appending(ItemFold[Entries]):
    """codes: NULL for what is no row."""

    def __init__(self, codes: list[int], limit: int) -> None:
        self._codes = codes
        self._limit = limit

    def agg(self, acc: Entries | None, item: Entries | None) -> Entries | None:
        if item is None:
            return acc
        room = self._limit - len(acc or ())
        if acc is not None and room <= 0:
            return acc
        return self._rows(acc or []) + self._rows(item)[: max(0, room)]

    def retract(self, acc: Entries | None, item: Entries | None) -> Entries | None:
        if acc is None or item is None:
            return acc
        gone = {self._codes[entry] for entry in item}
        return [entry for entry in self._rows(acc) if self._codes[entry] not in gone]

    def _rows(self, entries: Entries) -> Entries:
        return [entry for entry in entries if self._codes[entry] != NULL]


class _Replacing(ItemFold[Entries]):
    def __init__(self, keys: _Keys, ages: list[tuple[int, ...]] | None, limit: int) -> None:
        self._keys = keys
        self._ages = ages
        self._limit = limit

    def agg(self, acc: Entries | None, item: Entries | None) -> Entries | None:
        if item is None:
            return acc
        rows: dict[Key, int] = {}
        for entry in acc or ():
            self._add(rows, entry, is_limited=False)
        for entry in item:
            self._add(rows, entry, is_limited=True)
        return self._ordered(rows, len(rows))

    def retract(self, acc: Entries | None, item: Entries | None) -> Entries | None:
        if acc is None or item is None:
            return acc
        rows = {self._keys.codes[entry]: entry for entry in acc if self._keys.count(entry)}
        most = len(rows)
        for entry in item:
            if self._keys.count(entry):
                rows.pop(self._keys.codes[entry], None)
        return self._ordered(rows, most)

    def _add(self, rows: dict[Key, int], entry: int, *, is_limited: bool) -> None:
        if not self._keys.count(entry):
            return
        key = self._keys.codes[entry]
        if key in rows:
            if self._ages is None or self._ages[entry] >= self._ages[rows[key]]:
                rows[key] = entry
        elif not is_limited or len(rows) < self._limit:
            rows[key] = entry

    def _ordered(self, rows: dict[Key, int], most: int) -> Entries:
        entries = list(rows.values())
        return [entries[at] for at in self._keys.order(entries, most)]


class _Patching(ItemFold[list[Patch]]):
    def __init__(self, keys: _Keys) -> None:
        self._keys = keys

    def agg(self, acc: list[Patch] | None, item: list[Patch] | None) -> list[Patch] | None:
        if item is None:
            return acc
        rows: dict[Key, Patch] = {}
        known_before_last = 0
        for entry, sources in (acc or []) + item:
            if self._keys.count(entry):
                known_before_last = len(rows)
                _, older = rows.get(self._keys.codes[entry], (entry, sources))
                merged = tuple(old if new is None else new for old, new in zip(older, sources, strict=True))
                rows[self._keys.codes[entry]] = entry, merged
        patches = list(rows.values())
        order = self._keys.order([entry for entry, _ in patches], known_before_last, newest_first=True)
        return [patches[at] for at in order]
