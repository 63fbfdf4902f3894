"""Columns of serialised sets, united two at a time: sketches and bitmaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from storage.aggregate_functions import ColumnAggregation
from storage.errors import BadInput
from storage.merge.aggregators.base import Steps
from storage.merge.aggregators.item_fold import PlainFold
from storage.merge.groups import Groups

Unite = Callable[[bytes, bytes], bytes]


@dataclass(frozen=True, slots=True)
class Union:
    """Nulls don't count. A value that meets no other stays as it is, whoever wrote it.

    unite: (accumulator, input) -> their union. Two at a time, as in Java: sketches of estimates are not associative.
    """

    aggregation: ColumnAggregation
    unite: Unite

    def fold(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        items = values.take(pa.array(groups.rows)).to_pylist()
        return pa.array(_Uniting(self).fold(items, groups, steps), values.type)


class _Uniting(PlainFold[bytes]):
    def __init__(self, union: Union) -> None:
        self._union = union

    def agg(self, acc: bytes | None, item: bytes | None) -> bytes | None:
        if acc is None or item is None:
            return item if acc is None else acc
        try:
            return self._union.unite(acc, item)
        except (ValueError, RuntimeError, IndexError, MemoryError) as e:
            field, function = self._union.aggregation.field, self._union.aggregation.function
            raise BadInput(
                f"column {field.name!r} {field.type}: a value is not what aggregate function {function} unites ({e}); "
                "write values serialised for it"
            ) from None
