"""Checks whether a sequence of compactions could have made the rows of a key.

A merge engine need not give the same when it merges some rows first, and the result with the rest. What a commit holds
may be the work of several compactions, of which it shows the end only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tests.support.row_merge import Record

Merge: TypeAlias = Callable[[Sequence[Record]], Record | None]


@dataclass(frozen=True)
class CompactionSteps:
    """merges: the ways in which the rows of one key may be merged; None where nothing remains."""

    merges: Sequence[Merge]

    def explain(self, runs: Sequence[Record], versions: Sequence[Record], hidden: int = 1) -> bool:
        """runs: the key's rows that the commit holds, the oldest first. versions: what they were made of, in the order
        of arrival. hidden: compactions at most whose result a later one took in.
        """
        return self._explain(runs, versions, None, hidden)

    def _explain(self, runs: Sequence[Record], versions: Sequence[Record], below: Record | None, hidden: int) -> bool:
        if not runs:
            return not versions
        for merged, rest in self._first_steps(versions, below):
            if _plain(merged) == _plain(runs[0]) and self._explain(runs[1:], rest, merged, hidden):
                return True
            if hidden and self._explain(runs, rest, merged, hidden - 1):
                return True
        return False

    def _first_steps(
        self, versions: Sequence[Record], below: Record | None
    ) -> Iterator[tuple[Record | None, Sequence[Record]]]:
        """What a compaction made of some versions, with and without a lookup below; and those that it left."""
        for count in range(len(versions), 0, -1):
            for known in ([below], []) if below else ([],):
                for merge in self.merges:
                    yield merge([*known, *versions[:count]]), versions[count:]


def _plain(record: Record | None) -> Record | None:
    return record and replace(record, sequence=0)
