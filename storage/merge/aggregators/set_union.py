"""Unites serialised sets: sketches and bitmaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tidelake.storage.base.errors import BadInput
from tidelake.storage.merge.aggregate_functions import ColumnAggregation
from tidelake.storage.merge.aggregators.base import Steps
from tidelake.storage.merge.aggregators.row_aggregator import RowAggregator
from tidelake.storage.merge.equal_keys import Groups


class UnionAccumulator(Protocol):
    """A set to which others are added.

    Bytes that are not such a set raise ValueError, or an error of the library; `_UnionRowAggregator` handles both.
    """

    def add(self, serialised: bytes) -> None: ...

    def serialised(self) -> bytes:
        """Returns the same bytes as Java after the same sets in the same order. Java serialises after each set."""
        ...


@dataclass(frozen=True, slots=True)
class UnionAggregator:
    """A function that unites sets. Nulls don't count. A single value stays unchanged.

    Sets are added one by one, as in Java, because the union of sketches is not associative.

    new_accumulator: makes an accumulator from the bytes of the first set.
    """

    aggregation: ColumnAggregation
    new_accumulator: Callable[[bytes], UnionAccumulator]

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        items = values.take(pa.array(groups.rows)).to_pylist()
        return pa.array(_UnionRowAggregator(self).aggregate(items, groups, steps), values.type)


class _UnionRowAggregator(RowAggregator[bytes, UnionAccumulator]):
    def __init__(self, union: UnionAggregator) -> None:
        self._union = union

    def agg(self, acc: bytes | UnionAccumulator | None, item: bytes | None) -> bytes | UnionAccumulator | None:
        if acc is None or item is None:
            return item if acc is None else acc
        try:
            united = self._union.new_accumulator(acc) if isinstance(acc, bytes) else acc
            united.add(item)
        except (ValueError, RuntimeError, IndexError, MemoryError) as e:
            field, function = self._union.aggregation.field, self._union.aggregation.function
            raise BadInput(
                f"column {field.name!r} {field.type}: a value is not in the serialised form that aggregate function "
                f"{function} needs ({e}); write values in this form"
            ) from None
        return united

    def finish(self, acc: bytes | UnionAccumulator) -> bytes:
        return acc if isinstance(acc, bytes) else acc.serialised()
