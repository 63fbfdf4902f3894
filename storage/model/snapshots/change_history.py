"""What holds a table's changes: its snapshots, and changelogs that outlive their snapshots.

`changelog/changelog-N` has the content of snapshot-N. An id is first looked up among the snapshots. Expiry writes
`changelog-N` before it deletes `snapshot-N`, so a reader always finds one of them. Java looks for changelogs only if
the options say so. Here existing changelogs are always found, because the options may have changed.

Source: Java `utils/NextSnapshotFetcher.java`, `utils/ChangelogManager.java`, `Changelog.java`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.paths import TablePaths, parse_changelog_id
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore, read_hint, write_durable_hint


class ChangelogStore:
    def __init__(self, io: FileIO, paths: TablePaths) -> None:
        self._io = io
        self._paths = paths

    def ids(self) -> list[int]:
        """List the directory. Returns the ids in ascending order."""
        entries = self._io.list_directory(self._paths.changelog_directory)
        return sorted(found for entry in entries if (found := parse_changelog_id(entry.name)) is not None)

    def earliest_id(self) -> int | None:
        """Return None without changelogs. As for snapshots, a hint is used if the changelog that it names exists."""
        ids = self.ids()
        hint = self.earliest_hint() if ids else None
        return hint if hint in ids else min(ids, default=None)

    def earliest_hint(self) -> int | None:
        """Return the hint as it is stored, even if the changelog that it names does not exist."""
        return read_hint(self._io, self._paths.changelog_earliest_hint)

    def find(self, changelog_id: int) -> Snapshot | None:
        """Return None for a missing changelog. Raises CorruptFile."""
        path = self._paths.changelog(changelog_id)
        try:
            return Snapshot.from_json(self._io.read(path), path).named(changelog_id, path)
        except FileNotFoundError:
            return None

    def keep(self, snapshots: Sequence[Snapshot]) -> None:
        """Write changelogs for snapshots that will be deleted, oldest first. Existing changelogs are no error."""
        for snapshot in snapshots:
            self._io.write(self._paths.changelog(snapshot.id), snapshot.to_json().encode())
        if snapshots:
            self._io.write(self._paths.changelog_latest_hint, str(snapshots[-1].id).encode(), durable=False)

    def delete(self, changelog_id: int) -> None:
        self._io.delete(self._paths.changelog(changelog_id))

    def hint_earliest(self, changelog_id: int) -> None:
        """Write the hint durably, as for snapshots."""
        latest_hint = self._paths.changelog_latest_hint
        write_durable_hint(self._io, self._paths.changelog_earliest_hint, changelog_id, instead_of=latest_hint)


class ChangeHistory:
    """The history of one branch. It caches nothing: every call reads the files. Raises CorruptFile."""

    def __init__(self, io: FileIO, paths: TablePaths, snapshots: SnapshotStore) -> None:
        self._io = io
        self._paths = paths
        self.snapshots = snapshots
        self._changelogs = ChangelogStore(io, paths)

    def find(self, snapshot_id: int) -> Snapshot | None:
        """Return the snapshot or its changelog, which has the same content; None if neither exists now."""
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
        """Return the first snapshot of this time or later, by binary search.

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
        """Return whether the changes of a snapshot still exist and are not about to expire."""
        earliest = self.earliest_id()
        return earliest is not None and earliest <= snapshot_id and self.find(snapshot_id) is not None

    def may_be_without_changelog(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot may have come to this branch from a tag, so that its changelog may have expired before.

        This is possible for the first snapshot: of a branch, and of main after a rollback to a tag, or after a branch
        has replaced it. The tag may be deleted since, so nothing tells that it was there.
        """
        return self.snapshots.earliest_id() == snapshot.id
