"""nested_update and nested_partial_update: an ARRAY<ROW> is updated like a table.

Rows with a key are returned in the order of Java's hash table.

Source: Java `FieldNestedUpdateAgg.java`, `FieldNestedPartialUpdateAgg.java`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.merge.aggregators.aggregator import Steps
from tidelake.storage.merge.aggregators.row_aggregator import RowAggregator
from tidelake.storage.merge.column_aggregation import ColumnAggregation, NullKeys, inner_row
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.normalized_keys import normalize_column
from tidelake.storage.merge.values.entries import Entries, EntryColumn, rebuilt
from tidelake.storage.merge.values.equality import NULL, value_codes
from tidelake.storage.merge.values.hash_order import HashOrderedList, table_size
from tidelake.storage.merge.values.linked_list import LinkedList
from tidelake.storage.model.binary_row import hash_rows

Key: TypeAlias = tuple[int, ...]  # codes of the fields of `nested-key`
Patch: TypeAlias = tuple[int, tuple[int | None, ...]]  # an entry with the key; the source entry of each field or None


@dataclass(frozen=True, slots=True)
class NestedUpdate:
    """The function nested_update. Without `nested-key` rows are appended; with it they replace the row of their key.

    Null rows of an array are removed. A retract removes all rows that are equal to its rows; with `nested-key`, the
    rows of its keys.
    """

    aggregation: ColumnAggregation

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        arrays = EntryColumn.of(values, groups)
        aggregator: RowAggregator[Entries, Any]
        if self.aggregation.nested_key:
            keys = _NestedKeys.of(self.aggregation, arrays.elements)
            aggregator = _NestedUpdateAggregator(
                keys, _ages(self.aggregation, arrays.elements), self.aggregation.count_limit
            )
        else:
            aggregator = _AppendAggregator(value_codes(arrays.elements).tolist(), self.aggregation.count_limit)
        return arrays.of_entries(aggregator.aggregate(arrays.items(), groups, steps))


@dataclass(frozen=True, slots=True)
class NestedPartialUpdate:
    """The function nested_partial_update: fields that are not null update the row of their key."""

    aggregation: ColumnAggregation

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        arrays = EntryColumn.of(values, groups)
        fields = arrays.elements.flatten()
        known = list(zip(*(field.is_valid().to_pylist() for field in fields), strict=True))
        items = [
            None if entries is None else [_patch(entry, known[entry]) for entry in entries]
            for entries in arrays.items()
        ]
        aggregated = _PartialUpdateAggregator(_NestedKeys.of(self.aggregation, arrays.elements)).aggregate(
            items, groups, steps
        )
        patches = [patch for row in aggregated if row is not None for patch in row]
        columns = [
            field.take(pa.array([sources[at] for _, sources in patches], pa.int64())) for at, field in enumerate(fields)
        ]
        is_null = arrays.elements.is_null().take(pa.array([entry for entry, _ in patches], pa.int64()))
        rows = pa.StructArray.from_arrays(columns, fields=list(arrays.elements.type), mask=is_null)
        return rebuilt(values.type, [rows], aggregated)


def _patch(entry: int, known: tuple[bool, ...]) -> Patch:
    return entry, tuple(entry if is_known else None for is_known in known)


def _ages(aggregation: ColumnAggregation, rows: pa.Array) -> list[tuple[int, ...]] | None:
    """Return the age of each nested row: the greater, the newer. Nulls are oldest.

    None if `nested-sequence-field` is not set: then rows are ordered by arrival.
    """
    columns = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
    names = aggregation.nested_sequence
    words = [word.tolist() for name in names for word in normalize_column(columns[name], nullable=True)]
    return list(zip(*words, strict=True)) if names else None


@dataclass(frozen=True, slots=True)
class _NestedKeys:
    """The keys of nested rows (`nested-key`).

    is_row: for each row, False if it is null.
    codes: for each row, the codes of its key. Equal codes mean equal keys.
    hashes: for each row, Java's hash of its key.
    """

    aggregation: ColumnAggregation
    is_row: list[bool]
    codes: list[Key]
    hashes: list[int]

    @classmethod
    def of(cls, aggregation: ColumnAggregation, rows: pa.Array) -> _NestedKeys:
        columns = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
        types = inner_row(aggregation.field.type)
        key = [columns[name] for name in aggregation.nested_key]
        codes = zip(*(value_codes(column).tolist() for column in key), strict=True)
        hashes = hash_rows(key, [types[name] for name in aggregation.nested_key])
        return cls(aggregation, rows.is_valid().to_pylist(), list(codes), hashes.tolist())

    def count(self, entry: int) -> bool:
        """Return whether an entry counts: it must be a row, and `nested-key-null-strategy` must accept its key."""
        if not self.is_row[entry]:
            return False
        strategy = self.aggregation.null_keys
        if strategy is NullKeys.MERGE or NULL not in self.codes[entry]:
            return True
        if strategy is NullKeys.IGNORE:
            return False
        name = self.aggregation.field.name
        raise BadInput(
            f"column {name!r}: a nested row has null in its key ({', '.join(self.aggregation.nested_key)}); correct "
            f"the row, or set fields.{name}.nested-key-null-strategy to merge or ignore"
        )


class _AppendAggregator(RowAggregator[Entries, LinkedList[int]]):
    """Appends rows.

    codes: the code of each row; NULL for null.
    limit: the maximum number of rows.
    """

    def __init__(self, codes: list[int], limit: int) -> None:
        self._codes = codes
        self._limit = limit

    def agg(self, acc: Entries | LinkedList[int] | None, item: Entries | None) -> Entries | LinkedList[int] | None:
        if item is None:
            return acc
        room = self._limit - (0 if acc is None else len(acc))
        if acc is not None and room <= 0:
            return acc
        line = self._line(acc)
        line.extend(self._rows(item)[: max(0, room)])
        return line

    def agg_reversed(
        self, acc: Entries | LinkedList[int] | None, item: Entries | None
    ) -> Entries | LinkedList[int] | None:
        room = self._limit - len(item or ())
        if acc is None or (item is not None and room <= 0):
            return item
        line = self._line(acc)
        while len(line) > max(0, room):
            line.pop()
        line.prepend_all(self._rows(item or []))
        return line

    def retract(self, acc: Entries | LinkedList[int] | None, item: Entries | None) -> Entries | LinkedList[int] | None:
        if acc is None or item is None:
            return acc
        line = self._line(acc)
        for entry in item:
            line.take_all(self._codes[entry])
        return line

    def finish(self, acc: Entries | LinkedList[int]) -> Entries:
        return list(acc)

    def _line(self, acc: Entries | LinkedList[int] | None) -> LinkedList[int]:
        if isinstance(acc, LinkedList):
            return acc
        line: LinkedList[int] = LinkedList(self._codes.__getitem__)
        line.extend(self._rows(acc or []))
        return line

    def _rows(self, entries: Entries) -> Entries:
        return [entry for entry in entries if self._codes[entry] != NULL]


class _NestedUpdateAggregator(RowAggregator[Entries, HashOrderedList[int]]):
    def __init__(self, keys: _NestedKeys, ages: list[tuple[int, ...]] | None, limit: int) -> None:
        self._keys = keys
        self._ages = ages
        self._limit = limit

    def agg(
        self, acc: Entries | HashOrderedList[int] | None, item: Entries | None
    ) -> Entries | HashOrderedList[int] | None:
        if item is None:
            return acc
        rows = acc if isinstance(acc, HashOrderedList) else self._table(acc or [])
        for entry in filter(self._keys.count, item):
            key = self._keys.codes[entry]
            if key in rows:
                if self._is_not_older(entry, rows[key]):
                    rows.replace(entry)
            elif len(rows) < self._limit:
                rows.append(entry)
        rows.rebuild(len(rows))
        return rows

    def agg_reversed(
        self, acc: Entries | HashOrderedList[int] | None, item: Entries | None
    ) -> Entries | HashOrderedList[int] | None:
        if acc is None or not isinstance(acc, HashOrderedList):
            return self.agg(item, acc)
        older = self._table(item or [])
        keys = [self._keys.codes[entry] for entry in older]
        if len(acc) + sum(key not in acc for key in keys) > self._limit:  # the order decides which fit
            return self.agg(item or [], self.finish(acc))
        for key in reversed(keys):
            entry = older[key]
            if key in acc and self._is_not_older(known := acc.take(key), entry):
                entry = known
            acc.prepend(entry)
        acc.rebuild(len(acc))
        return acc

    def retract(
        self, acc: Entries | HashOrderedList[int] | None, item: Entries | None
    ) -> Entries | HashOrderedList[int] | None:
        if acc is None or item is None:
            return acc
        rows = acc if isinstance(acc, HashOrderedList) else self._table(acc, by_age=False)
        most = len(rows)
        for entry in filter(self._keys.count, item):
            rows.take_all(self._keys.codes[entry])
        rows.rebuild(most)
        return rows

    def finish(self, acc: Entries | HashOrderedList[int]) -> Entries:
        return acc.in_order() if isinstance(acc, HashOrderedList) else acc

    def _table(self, entries: Entries, *, by_age: bool = True) -> HashOrderedList[int]:
        """Return a table with the newest row of each key, or the last one if by_age is False."""
        rows: HashOrderedList[int] = HashOrderedList(self._keys.codes.__getitem__, self._keys.hashes.__getitem__)
        for entry in filter(self._keys.count, entries):
            key = self._keys.codes[entry]
            if key not in rows:
                rows.append(entry)
            elif not by_age or self._is_not_older(entry, rows[key]):
                rows.replace(entry)
        return rows

    def _is_not_older(self, entry: int, known: int) -> bool:
        return self._ages is None or self._ages[entry] >= self._ages[known]


class _PartialUpdateAggregator(RowAggregator[list[Patch], HashOrderedList[Patch]]):
    def __init__(self, keys: _NestedKeys) -> None:
        self._keys = keys

    def agg(
        self, acc: list[Patch] | HashOrderedList[Patch] | None, item: list[Patch] | None
    ) -> list[Patch] | HashOrderedList[Patch] | None:
        if item is None:
            return acc
        rows, patches = (acc, item) if isinstance(acc, HashOrderedList) else (self._table(), (acc or []) + item)
        known_before_last = max(0, len(rows) - 1)
        for patch in self._counted(patches):
            known_before_last = len(rows)
            self._put(rows, patch)
        rows.rebuild(known_before_last)
        return rows

    def agg_reversed(
        self, acc: list[Patch] | HashOrderedList[Patch] | None, item: list[Patch] | None
    ) -> list[Patch] | HashOrderedList[Patch] | None:
        if acc is None or not isinstance(acc, HashOrderedList):
            return self.agg(item, acc)
        older = self._table()
        for patch in self._counted(item or []):
            self._put(older, patch)
        keys = [self._key(patch) for patch in older]
        new = [key for key in keys if key not in acc]
        count = len(acc) + len(new)
        if not len(acc) or (len(new) < len(keys) and table_size(count) != table_size(count - 1)):
            # The growth of the table depends on whether its last row is among the older ones.
            return self.agg(item or [], self.finish(acc))
        for key in reversed(keys):
            acc.prepend(_patched(older[key], acc.take(key)) if key in acc else older[key])
        acc.rebuild(count - 1)
        return acc

    def finish(self, acc: list[Patch] | HashOrderedList[Patch]) -> list[Patch]:
        return acc.in_order() if isinstance(acc, HashOrderedList) else acc

    def _counted(self, patches: list[Patch]) -> Iterator[Patch]:
        return (patch for patch in patches if self._keys.count(patch[0]))

    def _put(self, rows: HashOrderedList[Patch], patch: Patch) -> None:
        key = self._key(patch)
        if key in rows:
            rows.replace(_patched(rows[key], patch))
        else:
            rows.append(patch)

    def _table(self) -> HashOrderedList[Patch]:
        return HashOrderedList(self._key, self._hash, newest_first=True)

    def _key(self, patch: Patch) -> Key:
        return self._keys.codes[patch[0]]

    def _hash(self, patch: Patch) -> int:
        return self._keys.hashes[patch[0]]


def _patched(older: Patch, newer: Patch) -> Patch:
    entry, sources = newer
    return entry, tuple(old if new is None else new for old, new in zip(older[1], sources, strict=True))
