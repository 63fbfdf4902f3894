"""Rows of equal keys, side by side, and what a group of them comes to.

A group is two or three rows as a rule, and NumPy's `reduceat` pays for each group what it pays for thirty rows. So
groups that are short are gone through in rounds instead: the first rows of all groups, the second rows, .. Groups lie
longest first, so that a round is one slice of what was found so far:

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

from storage.merge.sort_order import RowIndices

_ROUNDS: Final = 32  # what a group has beyond these rows is gone through alone
_SHORT_MEAN_ROWS: Final = 6  # where groups have more rows than this, `reduceat` is as fast

T = TypeVar("T", bound=np.generic)
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Groups:
    """Rows in merge order, cut where the key changes. A *position* is an index into `rows`.

    rows (n,): indices into the aggregated column, oldest first within a key. A row may occur twice, with two steps (a
        retract that first fills the row).
    starts (g,): positions where groups begin; strictly ascending from 0, so no group is empty.
    """

    rows: RowIndices
    starts: RowIndices

    @classmethod
    def of(cls, order: RowIndices, is_last: Mask) -> Groups:
        """From what `sort_order.merge_order` returns."""
        ends = np.flatnonzero(is_last)
        return cls(order, np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends)

    @classmethod
    def singles(cls, count: int) -> Groups:
        """Every row is a group by itself: those of a sorted run."""
        return cls(np.arange(count), np.arange(count))

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def ends(self) -> RowIndices:
        """One past the last position of each group."""
        return np.append(self.starts[1:], len(self.rows)) if len(self.starts) else self.starts

    @cached_property
    def lengths(self) -> RowIndices:
        return self.ends - self.starts

    @cached_property
    def numbers(self) -> RowIndices:
        """(n,): which group each position is in."""
        if len(self.rows) == len(self.starts):
            return np.arange(len(self))
        begins = np.zeros(len(self.rows), np.intp)
        begins[self.starts[1:]] = 1
        return np.cumsum(begins)

    def spread(self, of_groups: NDArray[T]) -> NDArray[T]:
        """(g,) -> (n,): what holds for a group, at each of its positions."""
        return of_groups[self.numbers]  # `np.repeat` takes its time for each group

    def select(self, chosen: Mask) -> tuple[Groups, RowIndices]:
        """The chosen groups (g,) alone, and the positions that their rows had."""
        positions = np.flatnonzero(self.spread(chosen))
        ends = np.cumsum(self.lengths[chosen])
        return Groups(self.rows[positions], ends - self.lengths[chosen]), positions

    def keep(self, wanted: Mask) -> Groups:
        """Only the wanted positions (n,); a group of which none is wanted is gone."""
        counts = self.reduce(np.add, wanted.astype(np.intp))
        starts = np.cumsum(counts) - counts
        return Groups(self.rows[wanted], starts[counts > 0])

    def first(self, wanted: Mask) -> RowIndices:
        """(g,): the first wanted position of each group, -1 where there is none."""
        return self._places(np.flatnonzero(wanted)[::-1])

    def last(self, wanted: Mask) -> RowIndices:
        """(g,): the last wanted position of each group, -1 where there is none."""
        return self._places(np.flatnonzero(wanted))

    def any(self, wanted: Mask) -> Mask:
        """(g,): which groups have a wanted position."""
        if len(self.rows) == len(self.starts) or self._are_long:
            return self.reduce(np.logical_or, wanted)
        found = np.zeros(len(self), np.bool_)
        found[self.numbers[wanted]] = True
        return found

    def _places(self, positions: RowIndices) -> RowIndices:
        """(g,): of each group the one of these positions that comes last, -1 where there is none."""
        found = np.full(len(self), -1, np.intp)
        found[self.numbers[positions]] = positions  # NumPy writes them one after the other
        return found

    def reduce(self, operation: np.ufunc, values: NDArray[T]) -> NDArray[T]:
        """(n,) -> (g,): for operations to which the order of the rows is all the same. Dtypes stay."""
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
        """((v0 op v1) op v2) .. of each group, strictly one row after the other: as Java rounds.

        values (n,): in the width to compute in. NumPy's own reductions add in pairs and eight sums at a time.
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
    """positions: of round k, the k-th row of each group that has one, the longest group first.

    place (g,): where a group is among them.
    long: ascending, the groups of which there are more rows than rounds.
    """

    positions: list[RowIndices]
    place: RowIndices
    long: RowIndices

    def of_short(self, operation: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        """(g,): right but for `long` groups, of which only the first rows are in."""
        if not self.positions:
            return values[:0]
        found = values[self.positions[0]]
        for positions in self.positions[1:]:
            so_far = found[: len(positions)]
            operation(so_far, values[positions], out=so_far)
        result: NDArray[Any] = found[self.place]
        return result
