"""Aggregates ARRAY and MAP columns by moving entries, without converting values to Python objects.

An entry is identified by its index among all entries of the column. Aggregate functions get lists of such indices, and
codes that represent the values to compare. The resulting column is made of the entries with the returned indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from tidelake.storage.merge.equal_keys import Groups

Entries: TypeAlias = list[int]  # indices of entries, in order


@dataclass(frozen=True, slots=True)
class EntryColumn:
    """Arrays or maps in merge order: row i of `column` is at position i."""

    column: pa.Array

    @classmethod
    def of(cls, values: pa.Array, groups: Groups) -> EntryColumn:
        """Take only the rows that are aggregated, so that no other entries are processed."""
        return cls(values.take(pa.array(groups.rows)))

    @property
    def elements(self) -> pa.Array:
        """The elements of arrays, or the keys of maps: one for each entry."""
        return self.column.keys if self.is_map else self.column.values

    @property
    def is_map(self) -> bool:
        return bool(pa.types.is_map(self.column.type))

    def items(self) -> list[Entries | None]:
        """Return the entries of each row; None for null."""
        offsets = self.column.offsets.to_pylist()
        valid = self.column.is_valid().to_pylist()
        bounds = zip(offsets[:-1], offsets[1:], valid, strict=True)
        return [list(range(begin, end)) if is_valid else None for begin, end, is_valid in bounds]

    def of_entries(self, aggregated: Sequence[Entries | None]) -> pa.Array:
        """Return a column of the same type with these entries."""
        taken = pa.array(list(chain.from_iterable(entries or () for entries in aggregated)), pa.int64())
        children = (self.column.keys, self.column.items) if self.is_map else (self.column.values,)
        return rebuilt(self.column.type, [child.take(taken) for child in children], aggregated)


def rebuilt(kind: pa.DataType, children: Sequence[pa.Array], aggregated: Sequence[Sequence[object] | None]) -> pa.Array:
    """Make a list or map column. Row i has as many entries as `aggregated[i]`, and is null for None."""
    offsets = np.concatenate(([0], np.cumsum([0 if row is None else len(row) for row in aggregated], dtype=np.int64)))
    mask = pa.array([row is None for row in aggregated], pa.bool_())
    make = pa.MapArray if pa.types.is_map(kind) else pa.ListArray
    return make.from_arrays(pa.array(offsets, pa.int32()), *children, type=kind, mask=mask)
