"""The number of dead letters that one run of a query may keep (`errors.tolerance`), counted in the driver.

Tasks have no common counter. So the dead letters of a batch are counted after its files are written, and before its
first commit. A batch with too many is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from tidelake.errors import RecordRefused
from tidelake.storage.base import env

_Place: TypeAlias = tuple[str, int, int]  # topic, partition, offset


class DeadLetterBudget:
    """Counts the dead letters of a run. Its methods may be called from any thread.

    A record with dead letters for several tables counts once.

    allowed: how many records a run may keep as dead letters. Each start counts from 0.
    """

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._kept: set[_Place] = set()
        self._lock = env.Lock()

    def check(self, lines: Sequence[str]) -> None:
        """Raise RecordRefused if the run must not keep these dead letters of a batch, too.

        lines: lines of JSON. They are not counted.
        """
        letters = {place: letter for place, letter in _by_place(lines).items() if place not in self._kept}
        left = self._allowed - len(self._kept)
        if len(letters) <= left:
            return
        first = letters[sorted(letters)[max(left, 0)]]
        raise RecordRefused(
            f"topic {first['topic']}, partition {first['partition']}, offset {first['offset']}: {first['reason']}. Fix "
            f"the source, or raise the number of `errors.tolerance`: it allows {self._allowed}, this run has kept "
            f"{len(self._kept)} as dead letters, and this batch has {len(letters)}. Nothing of the batch was written; "
            "the next start reads it again, and counts from 0"
        )

    def keep(self, lines: Sequence[str]) -> None:
        """Count the dead letters of tables that are committed.

        lines: lines of JSON.
        """
        with self._lock:
            self._kept |= _by_place(lines).keys()


def _by_place(lines: Sequence[str]) -> dict[_Place, dict[str, Any]]:
    found = (msgspec.json.decode(line) for line in lines)
    return {(one["topic"], one["partition"], one["offset"]): one for one in found}
