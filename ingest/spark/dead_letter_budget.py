"""The number of dead letters that one run of a query may keep (`errors.tolerance`), counted in the driver.

Tasks have no common counter. So the dead letters of a batch are counted after its files are written, and before its
first commit. A batch with too many is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidelake.errors import RecordRefused
from tidelake.storage.base import env


class DeadLetterBudget:
    """Counts the dead letters of a run. Its methods may be called from any thread.

    allowed: how many records a run may keep as dead letters. Each start counts from 0.
    """

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._kept = 0
        self._lock = env.Lock()

    def check(self, lines: Sequence[str]) -> None:
        """Raise RecordRefused if the run must not keep these dead letters of a batch, too.

        lines: lines of JSON. They are not counted.
        """
        left = self._allowed - self._kept
        if len(lines) <= left:
            return
        letters = sorted(
            (msgspec.json.decode(line) for line in lines),
            key=lambda one: (one["topic"], one["partition"], one["offset"]),
        )
        first = letters[max(left, 0)]
        raise RecordRefused(
            f"topic {first['topic']}, partition {first['partition']}, offset {first['offset']}: {first['reason']}. Fix "
            f"the source, or raise the number of `errors.tolerance`: it allows {self._allowed}, this run has kept "
            f"{self._kept} as dead letters, and this batch has {len(lines)}. Nothing of the batch was written; the "
            "next start reads it again, and counts from 0"
        )

    def keep(self, count: int) -> None:
        """Count the dead letters of a table that is committed."""
        with self._lock:
            self._kept += count
