"""Aggregates row by row, for values without suitable column operations: maps, nested rows, sketches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from tidelake.storage.merge.aggregators.aggregator import Step, Steps
from tidelake.storage.merge.equal_keys import Groups

Item = TypeVar("Item")
Accumulator = TypeVar("Accumulator")
T = TypeVar("T")


class RowAggregator(ABC, Generic[Item, Accumulator]):
    """An aggregation with the methods of Java's FieldAggregator. None is null.

    An instance is used for one call of `aggregate`, so it may have state.

    acc: the unchanged item of the group's first row, or of a SET. After another item was added, it may be an
        Accumulator, which each step changes in place: copies would take quadratic time. `finish` accepts both.
    """

    def reset(self) -> None:
        """Start a group."""

    @abstractmethod
    def agg(self, acc: Item | Accumulator | None, item: Item | None) -> Item | Accumulator | None: ...

    def agg_reversed(self, acc: Item | Accumulator | None, item: Item | None) -> Item | Accumulator | None:
        return self.agg(item, None if acc is None else self.finish(acc))

    def retract(self, acc: Item | Accumulator | None, item: Item | None) -> Item | Accumulator | None:
        """Retract an item. Never called for a function that is `WithoutRetract`."""
        raise AssertionError(f"{type(self).__name__} takes no retract")

    @abstractmethod
    def finish(self, acc: Item | Accumulator) -> Item:
        """Return the resulting item of a group."""

    def aggregate(self, items: Sequence[Item | None], groups: Groups, steps: Steps | None) -> list[Item | None]:
        """Return one item for each group.

        items (n,): the item of each position, in merge order.
        """
        aggregated = []
        what = None if steps is None else steps.tolist()
        for start, end in zip(groups.starts.tolist(), groups.ends.tolist(), strict=True):
            self.reset()
            acc: Item | Accumulator | None = None
            if what is None:
                for item in items[start:end]:
                    acc = self.agg(acc, item)
            else:
                for item, step in zip(items[start:end], what[start:end], strict=True):
                    acc = self._next(acc, item, step)
            aggregated.append(None if acc is None else self.finish(acc))
        return aggregated

    def _next(self, acc: Item | Accumulator | None, item: Item | None, step: int) -> Item | Accumulator | None:
        match step:
            case Step.AGG:
                return self.agg(acc, item)
            case Step.AGG_REVERSED:
                return self.agg_reversed(acc, item)
            case Step.RETRACT:
                return self.retract(acc, item)
            case Step.SET:
                return item
            case _:
                return acc


class SimpleRowAggregator(RowAggregator[T, T]):
    """A `RowAggregator` whose accumulator is always an item."""

    def finish(self, acc: T) -> T:
        return acc
