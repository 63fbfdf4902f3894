"""Finds what holds a table's changes: its snapshots, and changelogs that outlived their snapshots.

An id is first looked up among the snapshots. Expiry writes `changelog-N` before it deletes `snapshot-N`, so a reader
always finds one of them. Java looks for changelogs only if the options say so. Here existing changelogs are always
found, because the options may have changed.

Source: Java `utils/NextSnapshotFetcher.java`, `utils/ChangelogManager.java`.
"""

from __future__ import annotations

from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.paths import TablePaths
from tidelake.storage.model.snapshots.changelogs import ChangelogStore
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore
from tidelake.storage.model.snapshots.tags import tagged_snapshots


class ChangeHistory:
    """The history of one branch. It caches nothing: every call reads the files. Raises CorruptFile."""

    def __init__(self, io: FileIO, paths: TablePaths, snapshots: SnapshotStore) -> None:
        self._io = io
        self._paths = paths
        self.snapshots = snapshots
        self._changelogs = ChangelogStore(io, paths)

    def find(self, snapshot_id: int) -> Snapshot | None:
        """Returns the snapshot or its changelog, which has the same content; None if neither exists now."""
        return (
            self.snapshots.find(snapshot_id)
            or self._changelogs.find(snapshot_id)
            or self.snapshots.find(snapshot_id)  # a rollback to a tag may just have restored the snapshot
        )

    def latest_id(self) -> int | None:
        return self.snapshots.latest_id()

    def earliest_id(self) -> int | None:
        earliest = self._changelogs.earliest_id()
        snapshot = self.snapshots.earliest_id()
        return snapshot if earliest is None or snapshot is None else min(earliest, snapshot)

    def first_since(self, time_ms: int) -> int:
        """Returns the first snapshot of this time or later, by binary search.

        Returns the next id if all snapshots are older, and 1 if there are none.
        """
        first, end = self.earliest_id() or 1, (self.latest_id() or 0) + 1
        while first < end:
            middle = (first + end) // 2
            snapshot = self.find(middle)
            if snapshot is None or snapshot.time_ms < time_ms:  # None: it expired during the search
                first = middle + 1
            else:
                end = middle
        return first

    def has_changes(self, snapshot_id: int) -> bool:
        """Whether the changes of a snapshot still exist and are not about to expire."""
        earliest = self.earliest_id()
        return earliest is not None and earliest <= snapshot_id and self.find(snapshot_id) is not None

    def may_be_without_changelog(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot may have come to this branch from a tag, so that its changelog may have expired before.

        This is possible for the first snapshot of a branch, and for that of main after a rollback to a tag.
        """
        if self.snapshots.earliest_id() != snapshot.id:
            return False
        return self._paths.branch != DEFAULT_BRANCH or snapshot in tagged_snapshots(self._io, self._paths)
