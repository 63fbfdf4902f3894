"""Checks whether a sequence of compactions could have made the rows of a key.

Some merge engines give another result if they merge some rows first, and the result with the others. A commit may
contain the result of several compactions, of which only the last is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tests.support.row_merge import Record

Merge: TypeAlias = Callable[[Sequence[Record]], Record | None]


@dataclass(frozen=True)
class CompactionSteps:
    """The check for one table.

    merges: the functions that may merge the rows of a key. They return None if no row remains.
    """

    merges: Sequence[Merge]

    def explain(self, runs: Sequence[Record], versions: Sequence[Record], hidden: int = 1) -> bool:
        """Returns whether compactions could have made the key's rows.

        runs: the key's rows in the commit, oldest first.
        versions: the rows before the compactions, in their order of arrival.
        hidden: maximum number of compactions whose result was compacted again.
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
        """Yields possible results of the first compaction, with and without a lookup, and the remaining versions."""
        for count in range(len(versions), 0, -1):
            for known in ([below], []) if below else ([],):
                for merge in self.merges:
                    yield merge([*known, *versions[:count]]), versions[count:]


def _plain(record: Record | None) -> Record | None:
    return record and replace(record, sequence=0)
