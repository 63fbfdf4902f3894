"""What holds a table's changes: its snapshots, and the changelogs of those that their changelogs outlived.

An id is looked for among the snapshots first: expiry writes `changelog-N` before it deletes `snapshot-N`, so a reader
finds one or the other at any moment. Java asks the options whether to look for changelogs at all; here it is enough
that they are there, for options may have changed since.

Source: Java `utils/NextSnapshotFetcher.java`, `utils/ChangelogManager.java`.
"""

from __future__ import annotations

from storage.fileio.base import FileIO
from storage.format import DEFAULT_BRANCH
from storage.paths import TablePaths
from storage.snapshots.changelogs import ChangelogStore
from storage.snapshots.snapshot import Snapshot, SnapshotStore
from storage.snapshots.tags import tagged_snapshots


class ChangeHistory:
    """Of one branch. Holds nothing: every call looks at the files. Raises CorruptFile for what can't be read."""

    def __init__(self, io: FileIO, paths: TablePaths, snapshots: SnapshotStore) -> None:
        self._io = io
        self._paths = paths
        self.snapshots = snapshots
        self._changelogs = ChangelogStore(io, paths)

    def find(self, snapshot_id: int) -> Snapshot | None:
        """A changelog holds what its snapshot held. None for one that is not there (yet, or any more)."""
        return (
            self.snapshots.find(snapshot_id)
            or self._changelogs.find(snapshot_id)
            or self.snapshots.find(snapshot_id)  # a snapshot came back to the id: the table was rolled back to a tag
        )

    def latest_id(self) -> int | None:
        return self.snapshots.latest_id()

    def earliest_id(self) -> int | None:
        earliest = self._changelogs.earliest_id()
        snapshot = self.snapshots.earliest_id()
        return snapshot if earliest is None or snapshot is None else min(earliest, snapshot)

    def first_since(self, time_ms: int) -> int:
        """The first snapshot of this time or later, by binary search; the next one when all are older, 1 when there is
        none.
        """
        first, end = self.earliest_id() or 1, (self.latest_id() or 0) + 1
        while first < end:
            middle = (first + end) // 2
            snapshot = self.find(middle)
            if snapshot is None or snapshot.time_ms < time_ms:  # None: it expired while we searched
                first = middle + 1
            else:
                end = middle
        return first

    def has_changes(self, snapshot_id: int) -> bool:
        """Whether what holds the changes of a snapshot is still there, and not about to go."""
        earliest = self.earliest_id()
        return earliest is not None and earliest <= snapshot_id and self.find(snapshot_id) is not None

    def may_be_without_changelog(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot may have come to this branch from a tag: its changelog may have expired before that.

        So the first one of a branch, and of main when it was rolled back to a tag.
        """
        if self.snapshots.earliest_id() != snapshot.id:
            return False
        return self._paths.branch != DEFAULT_BRANCH or snapshot in tagged_snapshots(self._io, self._paths)
