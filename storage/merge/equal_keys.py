"""Groups rows of equal keys, and reduces each group to one value.

A group usually has two or three rows, and NumPy's `reduceat` spends as much time on each group as on thirty rows. So
short groups are processed in rounds instead: the first rows of all groups, then the second rows, and so on. The groups
are ordered by length, longest first, so that each round updates one slice of the results so far:

    groups   a b b b c c        round 0   b a c  ->  longest first: b c a
    rows     0 1 2 3 4 5        round 1   b c
                                round 2   b
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidelake.storage.merge.normalized_keys import RowIndices

_ROUNDS: Final = 32  # further rows of a group are processed group by group
_SHORT_MEAN_ROWS: Final = 6  # if groups have more rows than this on average, `reduceat` is as fast

T = TypeVar("T", bound=np.generic)
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Groups:
    """Rows in merge order, divided into groups of equal keys. A *position* is an index into `rows`.

    rows (n,): indices into the aggregated column, oldest first within a key. A row occurs twice if it is applied in two
        steps (a retract that first fills the row).
    starts (g,): the position where each group begins, strictly ascending from 0. So no group is empty.
    """

    rows: RowIndices
    starts: RowIndices

    @classmethod
    def of(cls, order: RowIndices, is_last: Mask) -> Groups:
        """Make groups from the result of `sort_order.merge_order`."""
        ends = np.flatnonzero(is_last)
        return cls(order, np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends)

    @classmethod
    def singles(cls, count: int) -> Groups:
        """Make one group of each row, for the rows of a sorted run."""
        return cls(np.arange(count), np.arange(count))

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def ends(self) -> RowIndices:
        """(g,): the position after the last one of each group."""
        return np.append(self.starts[1:], len(self.rows)) if len(self.starts) else self.starts

    @cached_property
    def lengths(self) -> RowIndices:
        return self.ends - self.starts

    @cached_property
    def numbers(self) -> RowIndices:
        """(n,): the number of the group that contains each position."""
        if len(self.rows) == len(self.starts):
            return np.arange(len(self))
        begins = np.zeros(len(self.rows), np.intp)
        begins[self.starts[1:]] = 1
        return np.cumsum(begins)

    def broadcast(self, of_groups: NDArray[T]) -> NDArray[T]:
        """(g,) -> (n,): repeats the value of each group at all its positions."""
        return of_groups[self.numbers]  # faster than `np.repeat`, whose cost grows with the number of groups

    def select(self, chosen: Mask) -> tuple[Groups, RowIndices]:
        """Return only the chosen groups, and the previous positions of their rows.

        chosen (g,): which groups to keep.
        """
        positions = np.flatnonzero(self.broadcast(chosen))
        ends = np.cumsum(self.lengths[chosen])
        return Groups(self.rows[positions], ends - self.lengths[chosen]), positions

    def keep(self, wanted: Mask) -> Groups:
        """Return groups of the wanted positions only. A group without wanted positions is removed.

        wanted (n,): which positions to keep.
        """
        counts = self.reduce(np.add, wanted.astype(np.intp))
        starts = np.cumsum(counts) - counts
        return Groups(self.rows[wanted], starts[counts > 0])

    def first(self, wanted: Mask) -> RowIndices:
        """(g,): the first wanted position of each group, -1 if it has none."""
        return self._places(np.flatnonzero(wanted)[::-1])

    def last(self, wanted: Mask) -> RowIndices:
        """(g,): the last wanted position of each group, -1 if it has none."""
        return self._places(np.flatnonzero(wanted))

    def precedes_last(self, wanted: Mask) -> Mask:
        """(n,): which positions have a wanted one after them in their group."""
        return np.arange(len(self.rows)) < self.broadcast(self.last(wanted))

    def any(self, wanted: Mask) -> Mask:
        """(g,): whether each group has a wanted position."""
        if len(self.rows) == len(self.starts) or self._are_long:
            return self.reduce(np.logical_or, wanted)
        found = np.zeros(len(self), np.bool_)
        found[self.numbers[wanted]] = True
        return found

    def _places(self, positions: RowIndices) -> RowIndices:
        """(g,): for each group, the last one of these positions in the order given, -1 if it has none."""
        found = np.full(len(self), -1, np.intp)
        found[self.numbers[positions]] = positions  # NumPy assigns in order, so the last position stays
        return found

    def reduce(self, operation: np.ufunc, values: NDArray[T]) -> NDArray[T]:
        """(n,) -> (g,): reduces each group, for operations that don't depend on the order of rows. Keeps the dtype."""
        if len(self.rows) == len(self.starts):
            return values.copy()
        if self._are_long:
            reduced: NDArray[T] = operation.reduceat(values, self.starts, dtype=values.dtype)
            return reduced
        rounds = self._rounds
        found = rounds.of_short(operation, values)
        if len(rounds.long):
            edges = np.stack((self.starts[rounds.long] + _ROUNDS, self.ends[rounds.long]), axis=1).ravel()
            inner = edges[:-1] if edges[-1] == len(values) else edges
            rest = operation.reduceat(values, inner, dtype=values.dtype)[::2]
            found[rounds.long] = operation(found[rounds.long], rest)
        return found

    def reduce_in_order(self, operation: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        """(n,) -> (g,): computes ((v0 op v1) op v2) .. for each group, row by row, so that it rounds like Java.

        NumPy's own reductions add values in pairs, and compute eight sums at a time.

        values (n,): values of the dtype to compute in.
        """
        with np.errstate(all="ignore"):  # infinity and NaN are results
            found = self._rounds.of_short(operation, values)
            for group in self._rounds.long.tolist():
                found[group] = operation.accumulate(values[self.starts[group] : self.ends[group]])[-1]
            return found

    @property
    def _are_long(self) -> bool:
        return len(self.rows) > _SHORT_MEAN_ROWS * len(self.starts)

    @cached_property
    def _rounds(self) -> _Rounds:
        lengths = np.minimum(self.lengths, _ROUNDS + 1).astype(np.int8)
        longest_first = np.argsort(-lengths, kind="stable")
        place = np.empty(len(self), np.intp)
        place[longest_first] = np.arange(len(self))
        starts = self.starts[longest_first]
        longer_than = len(self) - np.cumsum(np.bincount(lengths, minlength=_ROUNDS + 2))
        positions = [starts[:count] + step for step, count in enumerate(longer_than[:_ROUNDS].tolist()) if count]
        return _Rounds(positions, place, np.flatnonzero(lengths > _ROUNDS))


@dataclass(frozen=True, slots=True)
class _Rounds:
    """The order in which the rows of short groups are reduced.

    positions: for round k, the position of the k-th row of each group that has one; the longest group first.
    place (g,): the place of each group in that order.
    long: the groups that have more rows than rounds exist, ascending.
    """

    positions: list[RowIndices]
    place: RowIndices
    long: RowIndices

    def of_short(self, operation: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        """(g,): the reduced values. Those of `long` groups contain only the first rows."""
        if not self.positions:
            return values[:0]
        found = values[self.positions[0]]
        for positions in self.positions[1:]:
            previous = found[: len(positions)]
            operation(previous, values[positions], out=previous)
        result: NDArray[Any] = found[self.place]
        return result
