"""Reads what a writer must know before its first row: the next sequence number of each bucket, and its files.

Source: Java `operation/AbstractFileStoreWrite.java` (restoreFiles, bucket count check),
`io/DataFileMeta.getMaxSequenceNumber`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tidelake.errors import BadInput, SnapshotExpired
from tidelake.storage.commit.manifests.index_manifest import index_files_by_bucket
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import live_entries_of
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import POSTPONE_BUCKET
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import of_latest_snapshot, raise_if_snapshot_expired
from tidelake.storage.write.compactor import RestoredBucket


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """The state of the table when its writer was opened.

    snapshot_id: None for a table without snapshots.
    next_sequence_numbers: for buckets that have files; any other bucket starts at 0.
    total_buckets: number of buckets of each partition with files.
    """

    snapshot_id: int | None = None
    next_sequence_numbers: Mapping[BucketId, int] = field(default_factory=dict)
    total_buckets: Mapping[bytes, int] = field(default_factory=dict)

    def check_total_buckets(self, partition: bytes, total_buckets: int, table_name: str) -> None:
        """Raise BadInput if the partition was written with another number of buckets."""
        found = self.total_buckets.get(partition, total_buckets)
        if found != total_buckets:
            raise BadInput(
                f"{table_name}: option bucket = {total_buckets}, but files of this partition are in {found} buckets; "
                f"a key would be in two buckets. If the table was rescaled, load it again and open a new writer. "
                f"Otherwise set bucket = {found}, or rewrite the partition with an overwrite"
            )


@dataclass(frozen=True, slots=True)
class RestoredState:
    """The state of a table that a writer starts from. It can be pickled, so another process may read it.

    buckets: the content of buckets with files, if it was requested.
    asked_for: the buckets that this state covers; None: all.
    """

    table: RestoredTable = field(default_factory=RestoredTable)
    buckets: Mapping[BucketId, RestoredBucket] = field(default_factory=dict)
    asked_for: frozenset[BucketId] | None = None

    def only(self, keys: Collection[BucketId]) -> RestoredState:
        """Return the state for a writer that writes only to these buckets."""
        numbers = self.table.next_sequence_numbers
        partitions = {key.partition for key in keys}
        table = RestoredTable(
            self.table.snapshot_id,
            {key: numbers[key] for key in keys if key in numbers},
            {partition: total for partition, total in self.table.total_buckets.items() if partition in partitions},
        )
        buckets = {key: self.buckets[key] for key in keys if key in self.buckets}
        return RestoredState(table, buckets, frozenset(keys))

    def covers(self, keys: Collection[BucketId]) -> bool:
        return self.asked_for is None or self.asked_for.issuperset(keys)


def restore_files(
    context: TableContext,
    *,
    with_files: bool = False,
    partitions: Collection[bytes] | None = None,
    known: Snapshot | None = None,
) -> RestoredState:
    """Read the live files of the latest snapshot once.

    with_files: whether to return the content of each bucket, too
    partitions: read only these; None: all
    known: see `SnapshotStore.latest_since`
    """
    return of_latest_snapshot(
        context, lambda snapshot: _state_of(context, snapshot, partitions, with_files=with_files), known
    )


def _state_of(
    context: TableContext, snapshot: Snapshot | None, partitions: Collection[bytes] | None, *, with_files: bool
) -> RestoredState:
    if snapshot is None:
        return RestoredState()
    numbers: dict[BucketId, int] = {}
    totals: dict[bytes, int] = {}
    files: dict[BucketId, list[DataFileMeta]] = defaultdict(list)
    manifests = context.shared(ManifestStore)
    for entry in live_entries_of(manifests, snapshot, partitions, f"{context.name}, snapshot {snapshot.id}"):
        key = entry.bucket_id
        numbers[key] = max(numbers.get(key, 0), entry.file.max_sequence_number + 1)
        if entry.bucket != POSTPONE_BUCKET:  # postponed rows don't define a number of buckets
            totals[entry.partition] = entry.total_buckets
        if with_files:
            files[key].append(entry.file)
    index = manifests.read_index(snapshot.index_manifest) if with_files else ()
    index_files = index_files_by_bucket(index)
    buckets = {key: RestoredBucket(of, index_files.get(key, ())) for key, of in files.items()}
    return RestoredState(RestoredTable(snapshot.id, numbers, totals), buckets)


def restore_bucket(context: TableContext, key: BucketId, known: Snapshot | None) -> RestoredBucket:
    """Return the bucket's files in a snapshot.

    known: this snapshot. None, or one that has expired: the newest one; without any, the bucket is empty.
    """
    if known is not None:
        try:
            with raise_if_snapshot_expired(context, known.id):
                return _bucket_of(context, key, known)
        except SnapshotExpired:  # others have published newer ones; the next commit finds out whether these changed it
            pass
    return of_latest_snapshot(context, lambda latest: _bucket_of(context, key, latest))


def _bucket_of(context: TableContext, key: BucketId, snapshot: Snapshot | None) -> RestoredBucket:
    manifests = context.shared(ManifestStore)
    live = live_entries_of(manifests, snapshot, {key.partition}, context.name)
    index = manifests.read_index(snapshot.index_manifest if snapshot is not None else None)
    return RestoredBucket(
        [entry.file for entry in live if entry.bucket == key.bucket],
        index_files_by_bucket(index).get(key, ()),
    )
