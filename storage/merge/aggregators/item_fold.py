"""A function told row by row, for values that no column operation folds: maps, nested rows, sketches, rare cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from storage.merge.aggregators.base import Step, Steps
from storage.merge.groups import Groups

Item = TypeVar("Item")
Grown = TypeVar("Grown")
T = TypeVar("T")


class ItemFold(Generic[Item, Grown]):
    """Methods as in Java's FieldAggregator; None is null. One of these serves one `fold`: it may keep state.

    An accumulator is an item as it came, the first or that of a SET, until another joins it. From then on it may be a
    Grown, which steps change and give back: copies of all that is there already would cost the square of the rows.
    `finish` makes an item of either.
    """

    def reset(self) -> None:
        """A group begins."""

    def agg(self, acc: Item | Grown | None, item: Item | None) -> Item | Grown | None:
        raise NotImplementedError

    def agg_reversed(self, acc: Item | Grown | None, item: Item | None) -> Item | Grown | None:
        return self.agg(item, None if acc is None else self.finish(acc))

    def retract(self, acc: Item | Grown | None, item: Item | None) -> Item | Grown | None:
        raise NotImplementedError

    def finish(self, acc: Item | Grown) -> Item:
        raise NotImplementedError

    def fold(self, items: Sequence[Item | None], groups: Groups, steps: Steps | None) -> list[Item | None]:
        """One item for each group. items (n,): of each position, in merge order."""
        folded = []
        what = None if steps is None else steps.tolist()
        for start, end in zip(groups.starts.tolist(), groups.ends.tolist(), strict=True):
            self.reset()
            acc: Item | Grown | None = None
            if what is None:
                for item in items[start:end]:
                    acc = self.agg(acc, item)
            else:
                for item, step in zip(items[start:end], what[start:end], strict=True):
                    acc = self._next(acc, item, step)
            folded.append(None if acc is None else self.finish(acc))
        return folded

    def _next(self, acc: Item | Grown | None, item: Item | None, step: int) -> Item | Grown | None:
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


class PlainFold(ItemFold[T, T]):
    """Its accumulator is an item at every step."""

    def finish(self, acc: T) -> T:
        return acc
