"""A function told row by row, for values that no column operation folds: maps, nested rows, sketches, rare cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from storage.merge.aggregators.base import Groups, Step, Steps

T = TypeVar("T")


class ItemFold(Generic[T]):
    """Methods as in Java's FieldAggregator; None is null. One of these serves one `fold`: it may keep state."""

    def reset(self) -> None:
        """A group begins."""

    def agg(self, acc: T | None, item: T | None) -> T | None:
        raise NotImplementedError

    def agg_reversed(self, acc: T | None, item: T | None) -> T | None:
        return self.agg(item, acc)

    def retract(self, acc: T | None, item: T | None) -> T | None:
        raise NotImplementedError

    def fold(self, items: Sequence[T | None], groups: Groups, steps: Steps | None) -> list[T | None]:
        """One item for each group. items (n,): of each position, in merge order."""
        folded = []
        what = None if steps is None else steps.tolist()
        for start, end in zip(groups.starts.tolist(), groups.ends.tolist(), strict=True):
            self.reset()
            acc: T | None = None
            if what is None:
                for item in items[start:end]:
                    acc = self.agg(acc, item)
            else:
                for item, step in zip(items[start:end], what[start:end], strict=True):
                    acc = self._next(acc, item, step)
            folded.append(acc)
        return folded

    def _next(self, acc: T | None, item: T | None, step: int) -> T | None:
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
