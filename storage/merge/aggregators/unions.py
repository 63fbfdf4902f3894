"""Columns of serialised sets, united one after the other: sketches and bitmaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from storage.aggregate_functions import ColumnAggregation
from storage.errors import BadInput
from storage.merge.aggregators.base import Steps
from storage.merge.aggregators.item_fold import ItemFold
from storage.merge.groups import Groups


class United(Protocol):
    """A set that others are added to.

    Bytes that are no such set raise ValueError, or what else their library makes of them: see `_Uniting`.
    """

    def add(self, serialised: bytes) -> None: ...

    def serialised(self) -> bytes:
        """To the byte what Java has after the same sets in the same order, though it serialises after each."""
        ...


@dataclass(frozen=True, slots=True)
class Union:
    """Nulls don't count. A value that meets no other stays as it is, whoever wrote it.

    united_of: of the accumulator. Inputs join one by one, as in Java: sketches of estimates are not associative.
    """

    aggregation: ColumnAggregation
    united_of: Callable[[bytes], United]

    def fold(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        items = values.take(pa.array(groups.rows)).to_pylist()
        return pa.array(_Uniting(self).fold(items, groups, steps), values.type)


class _Uniting(ItemFold[bytes, United]):
    def __init__(self, union: Union) -> None:
        self._union = union

    def agg(self, acc: bytes | United | None, item: bytes | None) -> bytes | United | None:
        if acc is None or item is None:
            return item if acc is None else acc
        try:
            united = self._union.united_of(acc) if isinstance(acc, bytes) else acc
            united.add(item)
        except (ValueError, RuntimeError, IndexError, MemoryError) as e:
            field, function = self._union.aggregation.field, self._union.aggregation.function
            raise BadInput(
                f"column {field.name!r} {field.type}: a value is not what aggregate function {function} unites ({e}); "
                "write values serialised for it"
            ) from None
        return united

    def finish(self, acc: bytes | United) -> bytes:
        return acc if isinstance(acc, bytes) else acc.serialised()
