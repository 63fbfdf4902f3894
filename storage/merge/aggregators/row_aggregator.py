"""Aggregation row by row, for values that no column operation covers: maps, nested rows, sketches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from storage.merge.aggregators.base import Step, Steps
from storage.merge.equal_keys import Groups

Item = TypeVar("Item")
Accumulator = TypeVar("Accumulator")
T = TypeVar("T")


class RowAggregator(ABC, Generic[Item, Accumulator]):
    """Methods as in Java's FieldAggregator; None is null. One of these serves one `aggregate`: it may keep state.

    acc: the group's first item, or that of a SET, as it came. Once another item joins it, it may be an Accumulator,
        which each step changes in place: a copy at each step would be quadratic in the rows. `finish` takes either.
    """

    def reset(self) -> None:
        """A group begins."""

    @abstractmethod
    def agg(self, acc: Item | Accumulator | None, item: Item | None) -> Item | Accumulator | None: ...

    def agg_reversed(self, acc: Item | Accumulator | None, item: Item | None) -> Item | Accumulator | None:
        return self.agg(item, None if acc is None else self.finish(acc))

    def retract(self, acc: Item | Accumulator | None, item: Item | None) -> Item | Accumulator | None:
        """Never called of a function `WithoutRetract`."""
        raise AssertionError(f"{type(self).__name__} takes no retract")

    @abstractmethod
    def finish(self, acc: Item | Accumulator) -> Item:
        """The group's item."""

    def aggregate(self, items: Sequence[Item | None], groups: Groups, steps: Steps | None) -> list[Item | None]:
        """One item for each group.

        items (n,): of each position, in merge order.
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
    """Its accumulator is an item at every step."""

    def finish(self, acc: T) -> T:
        return acc
