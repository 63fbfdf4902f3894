"""Finds the snapshot that a stream reads next, which may exist, not exist yet, be expired or be another than expected.

Source: Java `utils/NextSnapshotFetcher.java`.
"""

from __future__ import annotations

from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.fileio.requests import is_remote
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.changes.change_reader import ChangeReader
from tidelake.storage.read.changes.position import ChangePosition
from tidelake.storage.read.expired_snapshots import snapshot_expired

_ROUNDS_A_CHECK: Final = 8


class NextSnapshot:
    """Finds the snapshots of one stream, one after the other.

    In an object store, a stream that waits asks for nothing but the next snapshot. Whether this can still come into
    being, or has come and expired meanwhile, takes six requests, and is asked in the first round and each eighth one.
    """

    def __init__(self, context: TableContext, reader: ChangeReader) -> None:
        self._context = context
        self._reader = reader
        self._awaited = 0  # the snapshot that was found to be reachable
        self._rounds = 0  # without that check since then

    def find(self, position: ChangePosition) -> Snapshot | None:
        """Return the next snapshot; None while it does not exist yet.

        Raises SnapshotExpired if it expired. Raises BadInput if it can never exist, because the table was rolled back,
        or dropped and created again.
        """
        snapshot_id = position.next_snapshot_id
        if self._is_awaited(snapshot_id) and self._reader.history.snapshots.find(snapshot_id) is None:
            return None
        if position.is_full:
            return self._find_snapshot(snapshot_id)
        snapshot = self._reader.history.find(snapshot_id)
        if snapshot is None:
            self._check_reachable(snapshot_id)
        else:
            self._check_same_history(position)
        return snapshot

    def _is_awaited(self, snapshot_id: int) -> bool:
        """Return whether the snapshot was missing, but reachable, not long ago."""
        self._rounds += 1
        return snapshot_id == self._awaited and self._rounds < _ROUNDS_A_CHECK

    def _find_snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Find a snapshot that is read in full. A changelog that outlived its snapshot is not enough for this."""
        snapshots = self._reader.history.snapshots
        snapshot = snapshots.find(snapshot_id)
        if snapshot is None and snapshot_id < (snapshots.earliest_id() or 0):
            raise snapshot_expired(self._context, snapshot_id)
        if snapshot is None:
            self._check_reachable(snapshot_id)
        return snapshot

    def _check_reachable(self, snapshot_id: int) -> None:
        latest = self._reader.history.latest_id()
        if latest is None and snapshot_id > 1:
            raise BadInput(
                f"snapshot {snapshot_id} should be read next, but the table has no snapshot: it may have been dropped "
                "and created again"
            )
        if latest is not None and latest >= snapshot_id:
            self._reader.get(snapshot_id)  # raises, unless the snapshot was published just now
        if latest is not None and snapshot_id > latest + 1:
            raise BadInput(
                f"snapshot {snapshot_id} should be read next, but the latest is {latest}: the table may have been "
                f"rolled back. Read it again and follow from {latest + 1}"
            )
        if is_remote(self._context.location):
            self._awaited, self._rounds = snapshot_id, 0

    def _check_same_history(self, position: ChangePosition) -> None:
        """Raise BadInput after a rollback: other snapshots then have the ids of those that were read."""
        if position.after is None:
            return
        before = self._reader.history.find(position.next_snapshot_id - 1)
        if before is not None and before.delta_manifest_list != position.after:
            raise BadInput(
                f"snapshot {before.id} of {self._context.name} is not the snapshot that was read: the table was "
                "rolled back. Read it again with scan(), and follow from the snapshot after that"
            )
