"""Finds the buckets that other writers changed, and the newest snapshot that changed each.

Compactions are ignored: they change neither rows nor sequence numbers. See `conflict_check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidelake.errors import CommitConflict
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore


class ConcurrentWrites:
    """Remembers what the snapshots of one range of ids wrote. `observe` and `after` extend the range. Not thread-safe.

    delta_entries: returns what a snapshot added and deleted.
    """

    def __init__(
        self,
        store: SnapshotStore,
        delta_entries: Callable[[Snapshot], Iterable[ManifestEntry]],
        commit_user: str,
        table_name: str,
    ) -> None:
        self._store = store
        self._delta_entries = delta_entries
        self._commit_user = commit_user
        self._table_name = table_name
        self._first = self._end = 0  # snapshots from _first up to, not including, _end are known
        self._newest: dict[BucketId, int] = {}

    def observe(self, snapshot: Snapshot) -> None:
        """Add a snapshot that follows the range, so that it is not read again."""
        if snapshot.id == self._end:
            self._add(snapshot)
            self._end += 1

    def after(self, base_id: int, latest: Snapshot | None) -> Mapping[BucketId, int]:
        """Return for each bucket the newest snapshot that changed it. Complete from base_id + 1 to the latest.

        Raises CommitConflict if a snapshot of that range expired: then it is unknown who wrote.
        """
        if not self._first or base_id >= self._end:
            self._first = self._end = base_id + 1
            self._newest = {}
        for snapshot_id in range(self._first - 1, base_id, -1):
            self._add(self._get(snapshot_id, base_id))
            self._first = snapshot_id
        for snapshot_id in range(self._end, latest.id + 1 if latest is not None else 0):
            self._add(self._get(snapshot_id, base_id))
            self._end = snapshot_id + 1
        return self._newest

    def _get(self, snapshot_id: int, base_id: int) -> Snapshot:
        snapshot = self._store.find(snapshot_id)
        if snapshot is None:
            raise CommitConflict(
                f"{self._table_name}: the sequence numbers of this commit continue those of snapshot {base_id}, but "
                f"snapshot {snapshot_id} has expired since, so it is unknown whether another writer committed rows "
                "meanwhile. Nothing was published. Open the table and write again; keep snapshots longer than a "
                "writer is idle"
            )
        return snapshot

    def _add(self, snapshot: Snapshot) -> None:
        if snapshot.commit_user == self._commit_user or snapshot.commit_kind is CommitKind.COMPACT:
            return
        for entry in self._delta_entries(snapshot):
            bucket = entry.bucket_id
            self._newest[bucket] = max(snapshot.id, self._newest.get(bucket, 0))
