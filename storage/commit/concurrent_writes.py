"""Finds what other committers changed: the newest snapshot that changed each bucket, and its number of buckets.

Others are all but the object that asks, also those with its commit user: a second writer, or a delete. It knows its own
snapshots by their ids (`OwnSnapshots`). A writer that is opened again starts from a newer state, so it needs no memory
of earlier ones. Compactions are ignored: they change neither rows nor sequence numbers. See `conflict_check`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidelake.errors import CorruptFile, HistoryExpired
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import CommitKind, FileKind
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot, SnapshotStore


class OwnSnapshots:
    """The ids of the snapshots that one object published, as ranges: a table's only writer needs one range."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, snapshot_id: int) -> None:
        """Add an id above all ids before it. An id that is known has no effect."""
        if snapshot_id in self:
            return
        if self._ends and self._ends[-1] == snapshot_id:
            self._ends[-1] += 1
        else:
            self._starts.append(snapshot_id)
            self._ends.append(snapshot_id + 1)

    def __contains__(self, snapshot_id: int) -> bool:
        position = bisect_right(self._starts, snapshot_id) - 1
        return position >= 0 and snapshot_id < self._ends[position]


@dataclass(frozen=True, slots=True)
class OthersWrites:
    """What others wrote.

    newest: for each bucket the newest snapshot that changed it.
    bucket_counts: for each partition with fixed buckets the newest snapshot that added files, and the number of buckets
        that these files have.
    """

    newest: dict[BucketId, int] = field(default_factory=dict)
    bucket_counts: dict[bytes, tuple[int, int]] = field(default_factory=dict)


class ConcurrentWrites:
    """Remembers what the snapshots of one range of ids wrote. `observe` and `after` extend the range. Not thread-safe.

    delta_entries: returns what a snapshot added and deleted.
    own: the snapshots of the object that asks.
    """

    def __init__(
        self,
        store: SnapshotStore,
        delta_entries: Callable[[Snapshot], Iterable[ManifestEntry]],
        own: OwnSnapshots,
        table_name: str,
    ) -> None:
        self._store = store
        self._delta_entries = delta_entries
        self._own = own
        self._table_name = table_name
        self._first = self._end = FIRST_SNAPSHOT_ID  # snapshots from _first up to, not including, _end are known
        self._found = OthersWrites()

    def observe(self, snapshot: Snapshot) -> None:
        """Add a snapshot that follows the range, so that it is not read again."""
        if snapshot.id != self._end:
            return
        try:
            self._add(snapshot)
        except (CorruptFile, FileNotFoundError):
            if not self.has_expired(snapshot.id):
                raise
            # Whoever needs to know what it wrote asks `after`, which then says so.
            self._first, self._found = snapshot.id + 1, OthersWrites()
        self._end = snapshot.id + 1

    def after(self, base_id: int, latest: Snapshot | None) -> OthersWrites:
        """Return what others wrote. Complete from base_id + 1 to the latest.

        Raises HistoryExpired if a snapshot of that range expired: then it is unknown who wrote.
        """
        if base_id >= self._end:
            self._first = self._end = base_id + 1
            self._found = OthersWrites()
        for snapshot_id in range(self._first - 1, base_id, -1):
            self._read(snapshot_id, base_id)
            self._first = snapshot_id
        if latest is not None:
            for snapshot_id in range(self._end, latest.id + 1):
                self._read(snapshot_id, base_id)
                self._end = snapshot_id + 1
        return self._found

    def _read(self, snapshot_id: int, base_id: int) -> None:
        snapshot, cause = self._store.find(snapshot_id), None
        if snapshot is not None:
            try:
                self._add(snapshot)
                return
            except (CorruptFile, FileNotFoundError) as error:
                if not self.has_expired(snapshot_id):
                    raise
                cause = error
        raise HistoryExpired(
            f"{self._table_name}: the sequence numbers of this commit continue those of snapshot {base_id}, but "
            f"snapshot {snapshot_id} has expired since, so it is unknown whether another writer committed rows "
            "meanwhile. Nothing was published. Open the table and write again; keep snapshots longer than a "
            "writer is idle"
        ) from cause

    def has_expired(self, snapshot_id: int) -> bool:
        """Return whether it is gone, or below the hint: then its files are being deleted, and its own is the last."""
        earliest = self._store.earliest_hint()
        return not self._store.exists(snapshot_id) or (earliest is not None and snapshot_id < earliest)

    def _add(self, snapshot: Snapshot) -> None:
        if snapshot.id in self._own or snapshot.commit_kind is CommitKind.COMPACT:
            return
        newest, counts = self._found.newest, self._found.bucket_counts
        for entry in self._delta_entries(snapshot):
            bucket, partition = entry.bucket_id, entry.partition
            newest[bucket] = max(snapshot.id, newest.get(bucket, snapshot.id))
            if entry.kind is FileKind.ADD and entry.total_buckets > 0:
                count = snapshot.id, entry.total_buckets
                counts[partition] = max(count, counts.get(partition, count))
