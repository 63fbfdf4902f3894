"""Counts the commits of rows since the last full compaction, from the table's snapshots.

Source: Java `flink/sink/GlobalFullCompactionSinkWrite.java`, which counts its own checkpoints.
"""

from __future__ import annotations

from tidelake.compaction.merge_tree.compact_unit import PickReason
from tidelake.storage.model.format import COMPACTION_REASON_PROPERTY, CommitKind
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore


class DeltaCommitCounter:
    """Counts the delta commits of one watched table; reads each snapshot once."""

    def __init__(self, every: int) -> None:
        self.every = every
        self._counted_to: int | None = None
        self._count = 0

    def is_full_due(self, store: SnapshotStore, latest_id: int) -> bool:
        """Return whether `full-compaction.delta-commits` is reached."""
        if self._counted_to is None or latest_id < self._counted_to:  # at the start, or after a rollback
            self._count = 0
            self._counted_to = max(0, latest_id - 3 * self.every)  # commits of rows and compactions roughly alternate
        for snapshot in store.range(self._counted_to + 1, latest_id):
            if snapshot.commit_kind is CommitKind.APPEND:
                self._count += 1
            elif _is_full(snapshot):
                self._count = 0
        self._counted_to = latest_id
        return self._count >= self.every


def _is_full(snapshot: Snapshot) -> bool:
    return PickReason.FULL in snapshot.properties.get(COMPACTION_REASON_PROPERTY, "")
