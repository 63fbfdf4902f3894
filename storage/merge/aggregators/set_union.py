"""Columns of serialised sets, united one after the other: sketches and bitmaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from storage.errors import BadInput
from storage.merge.aggregate_functions import ColumnAggregation
from storage.merge.aggregators.base import Steps
from storage.merge.aggregators.row_aggregator import RowAggregator
from storage.merge.equal_keys import Groups


class UnionAccumulator(Protocol):
    """A set that others are added to.

    Bytes that are no such set raise ValueError, or what else their library makes of them: see `_UnionRowAggregator`.
    """

    def add(self, serialised: bytes) -> None: ...

    def serialised(self) -> bytes:
        """To the byte what Java has after the same sets in the same order, though it serialises after each."""
        ...


@dataclass(frozen=True, slots=True)
class UnionAggregator:
    """Nulls don't count. A value without another to merge with stays unchanged, of any writer.

    new_accumulator: of the accumulator. Inputs join one by one, as in Java: sketches of estimates are not associative.
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
                f"column {field.name!r} {field.type}: a value is not what aggregate function {function} unites ({e}); "
                "write values serialised for it"
            ) from None
        return united

    def finish(self, acc: bytes | UnionAccumulator) -> bytes:
        return acc if isinstance(acc, bytes) else acc.serialised()
