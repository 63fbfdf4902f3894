"""Reproduces the order in which Java's hash collections return their elements.

Java writes the arrays of `collect` and `nested_update` to files in this order, so readers see it. With the same order
here, an array merged by Java equals an array merged by Tidelake.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.storage.merge.values.linked_list import LinkedList
from tidelake.storage.merge.values.wide_ints import to_wide_ints
from tidelake.storage.model.binary_row import hash_bytes
from tidelake.storage.model.types.arrow_buffers import fixed_width_values

T = TypeVar("T")

_TICKS_PER_MILLI: Final = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}


def table_size(most: int) -> int:
    """Return the number of bins of a `HashMap` or `HashSet`.

    most: the number of entries when the table last checked whether to grow.
    """
    size = 16
    while most * 4 > size * 3:
        size *= 2
    return size


class _HashTable(NamedTuple):
    """A hash table into which the items at places [begin, end) were put.

    size: the number of bins.
    is_turned: whether the list was reversed at that time.
    """

    size: int
    begin: int
    end: int
    is_turned: bool


class HashOrderedList(LinkedList[T]):
    """An array that Java puts into a new hash table for each row. It then has the order of that table.

    Entries of one bin keep their order. So after many tables the array is ordered by the bins of the last table; within
    a bin, by the bins of the newest larger table before it; and so on, down to the order of arrival. The list stores
    the order of arrival, and the tables that were larger than all later ones. `pop` must not be called, because places
    identify the items of a table.

    hash_of: returns Java's `hashCode()` of an item's name.
    newest_first: whether items are inserted by `computeIfAbsent`, which puts them before the others of their bin. Then
        each table reverses the order within its bins. This does not hold for bins of eight or more entries, which Java
        stores as a tree.
    """

    __slots__ = ("_hash_of", "_is_turned", "_newest_first", "_tables")

    def __init__(
        self, name_of: Callable[[T], Hashable], hash_of: Callable[[T], int], *, newest_first: bool = False
    ) -> None:
        super().__init__(name_of)
        self._hash_of = hash_of
        self._newest_first = newest_first
        self._is_turned = False
        self._tables: list[_HashTable] = []  # in descending order of size

    def append(self, item: T) -> None:
        if self._is_turned:
            super().prepend(item)
        else:
            super().append(item)

    def prepend(self, item: T) -> None:
        if self._is_turned:
            super().append(item)
        else:
            super().prepend(item)

    def rebuild(self, most: int) -> None:
        """Put all items into a new table.

        most: see `table_size`.
        """
        size = table_size(most)
        self._is_turned ^= self._newest_first
        while self._tables and self._tables[-1].size <= size:
            self._tables.pop()
        self._tables.append(_HashTable(size, self._begin, self._end, self._is_turned))

    def in_order(self) -> list[T]:
        items: list[T] = []
        begin = end = 0
        for table in self._tables:
            items = [*self._items_between(table.begin, begin), *items, *self._items_between(end, table.end)]
            begin, end = table.begin, table.end
            bins = self._bins(items, table.size)
            # the items of a bin keep their order, even if the bins are in reverse order
            items = [items[at] for at in sorted(range(len(items)), key=bins.__getitem__, reverse=table.is_turned)]
        items = [*self._items_between(self._begin, begin), *items, *self._items_between(end, self._end)]
        return items[::-1] if self._is_turned else items

    def _bins(self, items: list[T], size: int) -> list[int]:
        codes = map(self._hash_of, items)
        return [(code ^ (code & 0xFFFFFFFF) >> 16) & (size - 1) for code in codes]


def hash_codes(values: pa.Array) -> list[int]:
    """Return the `hashCode()` of Paimon's objects for values that are not nested; 0 for null. Not for bytes."""
    kind = values.type
    if pa.types.is_string(kind):
        codes: NDArray[Any] = hash_bytes(values)
    elif pa.types.is_boolean(kind):
        codes = np.where(values.fill_null(False).to_numpy(zero_copy_only=False), 1231, 1237)
    elif pa.types.is_decimal(kind):
        codes = np.array([_decimal_hash(number, kind.scale) for number in to_wide_ints(values).to_ints()], np.int64)
    elif pa.types.is_timestamp(kind):
        ticks, per_milli = fixed_width_values(values, np.int64), _TICKS_PER_MILLI[kind.unit]
        millis = ticks // per_milli if per_milli >= 1 else ticks * 1000
        nanos = (ticks - millis * per_milli) * (1_000_000 // per_milli) if per_milli >= 1 else 0
        codes = _folded(millis) * 31 + nanos
    elif kind.bit_width < 64:
        codes = fixed_width_values(_with_one_nan(values), np.dtype(f"i{kind.bit_width // 8}"))
    else:
        codes = _folded(fixed_width_values(_with_one_nan(values), np.int64))
    hashes: list[int] = np.where(values.is_valid(), codes.astype(np.int64).astype(np.int32), 0).tolist()
    return hashes


def _folded(longs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Compute `Long.hashCode` in the lower 32 bits, from both halves of a number."""
    return longs ^ longs >> 32


def _with_one_nan(values: pa.Array) -> pa.Array:
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)


def _decimal_hash(unscaled: int, scale: int) -> int:
    """Compute `BigDecimal.hashCode`, before it is truncated to 32 bits."""
    code, rest = 0, abs(unscaled)
    for shift in range(96, -1, -32):
        code = (code * 31 + (rest >> shift & 0xFFFFFFFF)) & 0xFFFFFFFF
    return 31 * (-code if unscaled < 0 else code) + scale
