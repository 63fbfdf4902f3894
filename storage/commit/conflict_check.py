"""Decides whether a snapshot may be published on top of the table's newest one. No other place decides it.

A commit is refused for one of two reasons:

    since the base  Its messages were computed from a state of the table (`CommitBase`), and another commit changed what
                    they rely on since then.
    the content     Its changes don't fit the table's files: a file to be deleted is gone, levels would overlap, a
                    deletion vector would lose its file. `conflicts` has the table of these checks.

    what was computed                         from                       what others may not have changed since
    sequence numbers of new rows              `base.snapshot_id`         their buckets (compactions may)
    buckets of keys that move                 `base.key_index`           any bucket (compactions may)
    buckets by a hash index                   `base.hash_index`          the index of their partition
    columns of older rows                     `base.row_ids`             the files and columns of these rows

The check reads files, but keeps its rules in functions that read none: `conflicts`, `index_changes`, `row_ids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelake.errors import CommitConflict
from tidelake.storage.commit.commit_changes import CommitChanges
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.commit_request import CommitRequest
from tidelake.storage.commit.concurrent_writes import ConcurrentWrites
from tidelake.storage.commit.conflicts import check_base_is_current, check_bucket_counts, check_no_conflict
from tidelake.storage.commit.index_changes import changed_index, check_hash_index, check_vectors
from tidelake.storage.commit.manifests.index_manifest import IndexEntry
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import delta_entries, live_entries_of
from tidelake.storage.commit.row_ids import check_rows_unchanged
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.merge.aggregate_functions import is_order_free
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.format import POSTPONE_BUCKET, CommitKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class CheckedChanges:
    """Changes that may be published on the base they were checked against.

    index: the complete index after them; None: they don't change it.
    """

    changes: CommitChanges
    index: Sequence[IndexEntry] | None


class ConflictCheck:
    """The conflict check of one commit user. It remembers what others wrote, so that most checks read nothing.

    Not thread-safe.
    """

    def __init__(self, context: TableContext, commit_user: str) -> None:
        self.context = context
        self._manifests = context.shared(ManifestStore)
        self._key_types = [f.type for f in context.schema.key_fields]
        self._is_ordered_by_arrival = bool(self._key_types) and not (
            context.options.sequence_fields or is_order_free(context.schema, context.options)
        )
        self._drops_duplicates = context.options.discard_duplicate_files
        self._has_one_index_file_a_bucket = bucket_mode(context.schema, context.options) is not BucketMode.UNAWARE
        self._others = ConcurrentWrites(context.snapshots, self._delta_entries, commit_user, context.name)

    def observe(self, snapshot: Snapshot) -> None:
        """Take each new snapshot, in their order, so that it is not read again."""
        self._others.observe(snapshot)

    def check(self, request: CommitRequest, base: Snapshot | None) -> CheckedChanges:
        """Return what to publish on this base. Raises CommitConflict; StaleSequenceNumbers for new rows out of order.

        base: the table's newest snapshot; None if it has none.
        """
        changes = request.changes(base)
        self._check_since_base(request, base)
        self._check_hash_index(request, changes, base)
        return self._check_content(changes, base)

    # ------------------------------------------------------------ since the state that was read

    def _check_since_base(self, request: CommitRequest, base: Snapshot | None) -> None:
        messages = request.committable.messages
        check_rows_unchanged(messages, base, self.context.snapshots, self._delta_entries, self.context.name)
        if request.is_first:
            self._check_key_index(messages, base)
        if request.adds_rows and self._is_ordered_by_arrival and (read := _sequence_bases(messages)):
            written = self._others.after(min(read.values()), base)
            check_base_is_current(read, written, self._name_partition)

    def _check_key_index(self, messages: Sequence[CommitMessage], base: Snapshot | None) -> None:
        """Check that others added no rows after the snapshot whose key index placed our rows."""
        known = [message.base.key_index for message in messages if message.base.key_index is not None]
        if not known:
            return
        written = self._others.after(min(known), base)
        if any(snapshot_id > min(known) for snapshot_id in written.values()):
            raise CommitConflict(
                f"{self.context.name}: another writer has published snapshot {max(written.values())} since, so a "
                "key could get a row in two partitions. Nothing was published. Open the table again, and write the "
                "uncommitted rows again. Let only one job write to a table whose keys move between partitions"
            )

    def _check_hash_index(self, request: CommitRequest, changes: CommitChanges, base: Snapshot | None) -> None:
        messages = request.committable.messages
        has_index = any(message.base.hash_index is not None for message in messages)
        if has_index and request.is_first and changes.kind is not CommitKind.COMPACT:
            check_hash_index(self._index_of(base), messages, self._name_partition)

    # ------------------------------------------------------------ the table's content

    def _check_content(self, changes: CommitChanges, base: Snapshot | None) -> CheckedChanges:
        drops_duplicates = self._drops_duplicates and changes.kind is CommitKind.APPEND
        if changes.kind is CommitKind.APPEND and not (drops_duplicates and base is not None):
            if base is None:
                check_bucket_counts(changes.entries, self._name_partition)
            return CheckedChanges(changes, self._changed_index(changes, base))
        partitions = {entry.partition for entry in changes.entries} | {entry.partition for entry in changes.index}
        live = live_entries_of(self._manifests, base, partitions, self.context.name)
        if drops_duplicates:
            live_files = {entry.identity for entry in live}
            changes = replace(changes, entries=[e for e in changes.entries if e.identity not in live_files])
        after = check_no_conflict(
            changes.kind,
            live,
            changes.entries,
            self._key_types,
            self._name_partition,
            also={entry.bucket_id for entry in changes.index},
        )
        index = self._changed_index(changes, base)
        if changes.index or (base is not None and base.index_manifest is not None):
            known = self._index_of(base) if index is None else index
            check_vectors(known, changes.index, changes.entries, after, self._name_partition)
        return CheckedChanges(changes, index)

    def _changed_index(self, changes: CommitChanges, base: Snapshot | None) -> Sequence[IndexEntry] | None:
        if not changes.index:
            return None
        return changed_index(
            self._index_of(base),
            changes.index,
            self._name_partition,
            one_file_a_bucket=self._has_one_index_file_a_bucket,
        )

    def _index_of(self, base: Snapshot | None) -> Sequence[IndexEntry]:
        return self._manifests.read_index(base.index_manifest if base is not None else None)

    def _delta_entries(self, snapshot: Snapshot) -> Sequence[ManifestEntry]:
        return delta_entries(self.context, snapshot)

    def _name_partition(self, partition: bytes) -> str:
        directory = partition_directory(self.context, partition)
        return f"{self.context.name}, partition {directory}" if directory else self.context.name


def _sequence_bases(messages: Sequence[CommitMessage]) -> dict[BucketId, int]:
    """Return for each bucket with new rows the snapshot whose sequence numbers they continue (0: none)."""
    bases: dict[BucketId, int] = {}
    for message in messages:
        bucket, base = message.bucket, message.base.snapshot_id or 0
        if message.increment.new_files and bucket.bucket != POSTPONE_BUCKET:  # postponed rows have no numbers
            bases[bucket] = min(base, bases.get(bucket, base))
    return bases
