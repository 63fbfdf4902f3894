"""Assigns dynamic buckets: an index maps each key to its bucket, and new buckets are created for new keys as needed.

The index of a partition is read with its first row, and kept in memory while the partition gets rows. A commit writes
the whole index file of each bucket that got new keys. Only one writer at a time may add new keys to a partition: a
commit conflicts if another writer changed the index in the meantime (`tidelake.storage.commit.index_changes`). Others
may write between two of our commits: then the index is read again.

Source: Java `index/HashBucketAssigner.java`, `index/DynamicBucketIndexMaintainer.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tidelake.errors import CommitConflict, UnsupportedFeature
from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import live_entries_of
from tidelake.storage.commit.uncommitted_files import delete_uncommitted_files
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.files.index_file import IndexFileMeta
from tidelake.storage.model.binary_row import hash_rows
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import HASH_INDEX
from tidelake.storage.model.paths import IndexFileNames
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import of_latest_snapshot, raise_if_snapshot_expired
from tidelake.storage.write.assigners.bucket_assigner import AssignedRows, PartitionedRows
from tidelake.storage.write.assigners.hash_index_file import read_hash_file, write_hash_file
from tidelake.storage.write.assigners.partition_index import AssignmentRule, PartitionIndex, assigners_of


@dataclass(frozen=True, slots=True)
class AssignerPart:
    """One of several assigners, in separate tasks, that assign the keys of one commit to buckets.

    snapshot: the snapshot that all of them see; None: a table without snapshots.
    num_assigners: number of assigners that share keys and buckets. A bucket gets new keys only from assigner
        `bucket % num_assigners`.
    owners_of: returns the assigner of each key of a partition (n,), for their hashes (n,)
    own: the numbers of the assigners that this one stands for
    """

    snapshot: Snapshot | None
    num_assigners: int
    owners_of: Callable[[bytes, NDArray[np.int32]], NDArray[np.int32]]
    own: Collection[int]


@dataclass(slots=True, eq=False)
class _Partition:
    """The index of one partition.

    files: the index file of each bucket in the table.
    prepared: the index files of the last prepared commit, which may not be committed.
    is_used: rows were assigned since the last commit was prepared.
    is_outdated: the index in the table differs from this one.
    """

    index: PartitionIndex
    files: dict[int, IndexFileMeta] = field(default_factory=dict)
    prepared: dict[int, IndexFileMeta] = field(default_factory=dict)
    is_used: bool = False
    is_outdated: bool = False


class DynamicBucketAssigner:
    """See `BucketAssigner`. `assign` reads the index of a partition when it gets the first row for it.

    replaces: rows replace all rows of their partitions, so no index is read.
    part: set if this is one of several assigners; it prepares one commit. None: it is the only assigner.
    """

    is_function_of_rows = False
    moves_rows = False  # a key that is assigned again gets the same bucket
    is_ready = True

    def __init__(self, context: TableContext, *, replaces: bool = False, part: AssignerPart | None = None) -> None:
        self._context = context
        self._replaces = replaces
        self._part = part
        self._keys = context.schema.trimmed_primary_keys
        self._key_types = [f.type for f in context.schema.select(self._keys)]
        self._partition_columns = context.schema.partition_keys
        self._partition_types = [f.type for f in context.schema.partition_fields]
        self._rule, self._num_channels = _assignment_rule(context)
        if part is not None:
            self._rule = replace(self._rule, num_assigners=part.num_assigners)
        self._manifests = context.shared(ManifestStore)
        self._names = IndexFileNames()
        self._partitions: dict[bytes, _Partition] = {}
        self._is_checked_since_commit = (
            False  # whether the index was checked for changes by others since the last commit
        )

    def assign(self, rows: PartitionedRows) -> AssignedRows:
        self._mark_outdated_partitions()
        hashes = hash_rows([rows.rows.column(name) for name in self._keys], self._key_types)
        buckets = np.empty(len(hashes), np.int32)
        for number, at in _rows_of_each(rows.partition_ids, len(rows.partitions)):
            state = self._partition(rows.partitions[number])
            state.is_used = True
            of_partition = hashes if at is None else hashes[at]
            assigned = state.index.assign(of_partition, self._assigners(rows, number, at, of_partition))
            if at is None:
                buckets = assigned
            else:
                buckets[at] = assigned
        return AssignedRows(rows, buckets)

    @property
    def reads_files(self) -> bool:
        if self._partition_columns or not self._is_checked_since_commit:
            return True  # the partitions of the next rows are unknown
        only = self._partitions.get(EMPTY_ROW)
        return only is None or only.is_outdated

    def prepare_commit(self, identifier: int) -> list[CommitMessage]:
        messages: list[CommitMessage] = []
        try:
            for partition, state in list(self._partitions.items()):
                if state.is_used:
                    messages += self._written(partition, self._partition(partition))
                elif not state.prepared:
                    del self._partitions[partition]  # a table with one partition per day must not keep all of them
        except BaseException:
            self._discard(messages)
            raise
        for message in messages:
            for file in message.increment.new_index_files:
                self._partitions[message.partition].prepared[message.bucket.bucket] = file
        for state in self._partitions.values():
            state.index.forget_new()
            state.is_used = False
        return messages

    def committed(self, snapshot_id: int) -> None:
        if self._replaces:
            self._partitions = {}
        for state in self._partitions.values():
            state.files |= state.prepared
            state.prepared = {}
        self._is_checked_since_commit = False

    def dropped(self) -> None:
        """Learn that the prepared index was in the table already. It may be in other files there."""
        for state in self._partitions.values():
            state.is_outdated, state.prepared = True, {}
        self._is_checked_since_commit = False

    # ------------------------------------------------------------ reading

    def _mark_outdated_partitions(self) -> None:
        """Check once after each commit whether another process changed the index."""
        if self._is_checked_since_commit or self._replaces or self._part is not None:
            return
        self._is_checked_since_commit = True
        if not self._partitions or any(state.prepared for state in self._partitions.values()):
            return
        files = of_latest_snapshot(self._context, lambda one: _hash_files(self._manifests, one, self._partitions))
        for partition, state in self._partitions.items():
            state.is_outdated |= _names(state.files) != _names(files[partition])

    def _partition(self, partition: bytes) -> _Partition:
        known = self._partitions.get(partition)
        if known is None or known.is_outdated:
            self._partitions[partition] = self._read(partition, known)
        return self._partitions[partition]

    def _read(self, partition: bytes, known: _Partition | None) -> _Partition:
        """Read the index of a partition.

        known: an outdated index whose new keys are kept.
        """
        if self._replaces:
            return _Partition(PartitionIndex(self._rule))
        files, hashes = self._index_of(partition)
        rows = {bucket: file.row_count for bucket, file in files.items()}
        state = _Partition(PartitionIndex(self._rule, hashes, rows), files)
        if known is not None:
            state.is_used = known.is_used
            new, buckets = known.index.new_keys()
            found = state.index.buckets_of(new)
            if np.any((found >= 0) & (found != buckets)):
                raise CommitConflict(
                    f"{self._name(partition)}: another writer assigned keys to other buckets than this writer. "
                    "Nothing was published. Open the table again, and write the uncommitted rows again. Let only one "
                    "job write to a partition with dynamic buckets, or create the table with a fixed number of "
                    "buckets"
                )
            state.index.add(new[found < 0], buckets[found < 0])
        return state

    def _index_of(self, partition: bytes) -> tuple[dict[int, IndexFileMeta], dict[int, NDArray[np.int32]]]:
        """Return by bucket the index file, and its hashes."""

        def read(snapshot: Snapshot | None) -> tuple[dict[int, IndexFileMeta], dict[int, NDArray[np.int32]]]:
            files = _hash_files(self._manifests, snapshot, [partition])[partition]
            self._check_every_bucket_has_one(partition, files, snapshot)
            return files, {bucket: self._own_hashes(partition, bucket, file) for bucket, file in files.items()}

        if self._part is None:
            return of_latest_snapshot(self._context, read)
        if self._part.snapshot is None:
            return read(None)
        with raise_if_snapshot_expired(self._context, self._part.snapshot.id):
            return read(self._part.snapshot)

    def _own_hashes(self, partition: bytes, bucket: int, file: IndexFileMeta) -> NDArray[np.int32]:
        """Return the hashes of those keys that this assigner is responsible for."""
        hashes = read_hash_file(self._context, partition, bucket, file)
        if self._part is None or not len(hashes):
            return hashes
        return hashes[np.isin(self._part.owners_of(partition, hashes), list(self._part.own))]

    def _check_every_bucket_has_one(
        self, partition: bytes, files: Mapping[int, IndexFileMeta], snapshot: Snapshot | None
    ) -> None:
        live = live_entries_of(self._manifests, snapshot, {partition}, self._context.name)
        if lacking := sorted({entry.bucket for entry in live} - files.keys()):
            raise UnsupportedFeature(
                f"{self._name(partition)}: bucket {lacking[0]} has rows and no hash index",
                "its keys would be written to a second bucket. An engine without an index wrote the bucket",
                "Rewrite the partition with an overwrite",
            )

    # ------------------------------------------------------------ writing

    def _written(self, partition: bytes, state: _Partition) -> list[CommitMessage]:
        """Write an index file for buckets with new keys. Without new keys, returns a message with the used index."""
        known_files = state.files | state.prepared
        base = None if self._replaces else _names(known_files)
        new, new_in = state.index.new_keys()
        messages: list[CommitMessage] = []
        try:
            for bucket in np.unique(new_in).tolist():
                name = self._names.next()
                if self._part is None:
                    hashes = state.index.hashes_of(bucket)
                else:  # the index in memory lacks the keys of other assigners
                    known = (
                        [read_hash_file(self._context, partition, bucket, known_files[bucket])]
                        if bucket in known_files
                        else []
                    )
                    hashes = np.concatenate([*known, new[new_in == bucket]])
                file = write_hash_file(self._context, partition, bucket, name, hashes)
                replaced = (known_files[bucket],) if bucket in known_files else ()
                messages.append(
                    CommitMessage(
                        BucketId(partition, bucket),
                        CommitIncrement(new_index_files=(file,), deleted_index_files=replaced),
                        CommitBase(hash_index=base),
                    )
                )
        except BaseException:
            self._discard(messages)
            raise
        return messages or [
            CommitMessage(BucketId(partition, min(known_files, default=0)), base=CommitBase(hash_index=base))
        ]

    def _discard(self, messages: Sequence[CommitMessage]) -> None:
        delete_uncommitted_files(self._context, messages)

    def _assigners(
        self, rows: PartitionedRows, number: int, at: NDArray[np.intp] | None, hashes: NDArray[np.int32]
    ) -> NDArray[np.int32] | int:
        """Return the assigner of each key.

        number: number of the partition
        at: positions of the partition's rows; None: all rows are of this partition
        hashes: the hashes of the keys of these rows
        """
        if self._rule.num_assigners == 1:
            return 0
        if self._part is not None:
            return self._part.owners_of(rows.partitions[number], hashes)
        first = rows.rows.slice(0 if at is None else int(at[0]), 1)
        columns = [first.column(name) for name in self._partition_columns]
        partition_hash = int(hash_rows(columns, self._partition_types)[0]) if columns else 0
        channels = assigners_of(partition_hash, hashes, self._num_channels, self._rule.num_assigners)
        return channels % self._rule.num_assigners

    def _name(self, partition: bytes) -> str:
        directory = partition_directory(self._context, partition)
        return f"{self._context.name}, partition {directory}" if directory else self._context.name


def num_assigners_of(context: TableContext) -> int | None:
    """Return the number of assigners that share the keys of a partition; None if the options don't say it."""
    options = context.options
    given = (options.dynamic_bucket_initial, options.dynamic_bucket_assigner_parallelism)
    if not any(given) and options.dynamic_bucket_max == -1:
        return None
    return _assignment_rule(context)[0].num_assigners


def _assignment_rule(context: TableContext) -> tuple[AssignmentRule, int]:
    """Return the rule for new keys and the number of channels, as `dynamic-bucket.assigner-parallelism` says.

    All channels are in this writer. The number of assigners is limited: one without a bucket could assign no key.
    """
    options = context.options
    buckets_max = None if options.dynamic_bucket_max == -1 else options.dynamic_bucket_max
    num_channels = max(options.dynamic_bucket_initial or 1, options.dynamic_bucket_assigner_parallelism or 1)
    num_assigners = min(options.dynamic_bucket_initial or num_channels, num_channels, buckets_max or num_channels)
    return AssignmentRule(options.dynamic_bucket_target_rows, buckets_max, num_assigners), num_channels


def _hash_files(
    manifests: ManifestStore, snapshot: Snapshot | None, partitions: Iterable[bytes]
) -> dict[bytes, dict[int, IndexFileMeta]]:
    """Return the index file of each bucket, by partition."""
    found: dict[bytes, dict[int, IndexFileMeta]] = {partition: {} for partition in partitions}
    for entry in manifests.read_index(snapshot.index_manifest if snapshot is not None else None):
        if entry.partition in found and entry.file.index_type == HASH_INDEX:
            found[entry.partition][entry.bucket] = entry.file
    return found


def _names(files: Mapping[int, IndexFileMeta]) -> frozenset[str]:
    return frozenset(file.file_name for file in files.values())


def _rows_of_each(
    partition_ids: NDArray[np.int64], num_partitions: int
) -> Iterator[tuple[int, NDArray[np.intp] | None]]:
    """Yield the number of each partition and the positions of its rows, in their order; None: all rows."""
    if num_partitions == 1:
        yield 0, None
        return
    order = np.argsort(partition_ids, kind="stable")
    ids = partition_ids[order]
    edges = np.flatnonzero(np.diff(ids, prepend=-1, append=-1))
    for start, stop in pairwise(edges.tolist()):
        yield int(ids[start]), order[start:stop]
