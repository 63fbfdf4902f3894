"""Decides whether a snapshot may be published on top of the table's newest one. No other place decides it.

A commit is refused for one of two reasons:

    since the base  Its messages were computed from a state of the table (`CommitBase`), and another commit changed what
                    they rely on since then.
    the content     Its changes don't fit the table's files: a file to be deleted is gone, levels would overlap, a
                    deletion vector would lose its file. `conflicts` has the table of these checks.

    what was computed                         from                       what others may not have changed since
    sequence numbers of new rows              `base.snapshot_id`         their buckets (compactions may)
    keys of new rows                          the schema                 the key, its types, and the definition of
                                                                         all files
    rows that a rewrite copied                the schema (its fence)     any row, until the rewrite ends
    buckets of new rows, if fixed             `base.total_buckets`       the number of buckets of their partition, or
                                                                         that of the table for a new partition
    buckets of keys that move                 `base.key_index`           any bucket (compactions may)
    buckets by a hash index                   `base.hash_index`          the index of their partition
    columns of older rows                     `base.row_ids`             the files and columns of these rows
    merges with rows that were looked up      `compacted.relied_on`      the files above level 0 of their bucket

Others are all but this object, also those with its commit user. A compaction that is refused loses only work: it is
computed again from the newest files.

The check reads files, but keeps its rules in functions that read none: `conflicts`, `index_changes`, `row_ids`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tidelake.errors import BadInput, CommitConflict, HistoryExpired
from tidelake.storage.commit.commit_changes import CommitChanges
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.commit_request import CommitRequest
from tidelake.storage.commit.concurrency_rules import ConcurrencyRules
from tidelake.storage.commit.concurrent_writes import ConcurrentWrites, OwnSnapshots
from tidelake.storage.commit.conflicts import (
    check_base_is_current,
    check_bucket_counts,
    check_buckets_unchanged,
    check_no_conflict,
    check_relied_on,
)
from tidelake.storage.commit.index_changes import changed_index, check_hash_index, check_vectors
from tidelake.storage.commit.manifests.index_manifest import IndexEntry
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import (
    delta_entries,
    entries_of_older_definition,
    live_entries_of,
    may_have_older_files,
)
from tidelake.storage.commit.row_ids import check_rows_unchanged
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import Bucketing, BucketMode, bucket_mode
from tidelake.storage.model.definition import fenced_until_ms
from tidelake.storage.model.format import POSTPONE_BUCKET, CommitKind, FileKind
from tidelake.storage.model.messages import rewrite_command
from tidelake.storage.model.options.option_changes import check_altered_with_rows
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
    """The conflict check of one committer. It remembers what others wrote, so that most checks read nothing.

    own: the snapshots that the committer published, as far as they are known. It may add to them at any time.
    Not thread-safe.
    """

    def __init__(self, context: TableContext, own: OwnSnapshots) -> None:
        self.context = context
        self._manifests = context.shared(ManifestStore)
        self._key_types = [f.type for f in context.schema.key_fields]
        self._rules = ConcurrencyRules.of(context.schema, context.options)
        self._has_one_definition = False  # until it is known
        self._checked = context.schema  # options up to this one could change under the writer's rows
        self._drops_duplicates = context.options.discard_duplicate_files
        self._has_one_index_file_a_bucket = bucket_mode(context.schema, context.options) is not BucketMode.UNAWARE
        self._others = ConcurrentWrites(context.snapshots, self._delta_entries, own, context.name)

    def observe(self, snapshot: Snapshot) -> None:
        """Take each new snapshot, in their order, so that it is not read again."""
        self._others.observe(snapshot)

    def has_expired(self, snapshot: Snapshot) -> bool:
        """Return whether the snapshot is gone, or is going: its files may be deleted already."""
        return self._others.has_expired(snapshot.id)

    def check(self, request: CommitRequest, base: Snapshot | None, schema_id: int) -> CheckedChanges:
        """Return what to publish on this base. Raises CommitConflict; StaleSequenceNumbers for new rows out of order.

        base: the table's newest snapshot; None if it has none.
        schema_id: the table's latest schema.
        """
        changes = request.changes(base)
        self._check_fence(changes, schema_id)
        if schema_id != self.context.schema.id and request.adds_rows:
            self._check_keys(schema_id)
            self._check_options(schema_id)
        if not self._has_one_definition:
            self._check_rewrite_is_finished(changes, base)
        self._check_since_base(request, base, schema_id)
        self._check_hash_index(request, changes, base)
        return self._check_content(request.committable.messages, changes, base, schema_id)

    # ------------------------------------------------------------ since the state that was read

    def _check_since_base(self, request: CommitRequest, base: Snapshot | None, schema_id: int) -> None:
        messages = request.committable.messages
        check_rows_unchanged(messages, base, self.context.snapshots, self._delta_entries, self.context.name)
        if request.is_first:
            self._check_key_index(messages, base)
        if request.adds_rows and (read := _sequence_bases(messages)):
            if self._rules.has_bucket_count:
                self._check_buckets(messages, read, base, schema_id)
            if self._rules.rows_have_order:
                written = self._others.after(min(read.values()), base)
                check_base_is_current(read, written.newest, self._name_partition)

    def _check_fence(self, changes: CommitChanges, schema_id: int) -> None:
        """Check that no rewrite of the table is about to replace all rows by copies that it made before."""
        if changes.kind is CommitKind.COMPACT or not (changes.entries or changes.index):
            return
        schema = self.context.schema if schema_id == self.context.schema.id else self.context.schemas.get(schema_id)
        until_ms = fenced_until_ms(schema.options)
        if until_ms is not None:
            until = datetime.fromtimestamp(until_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            raise CommitConflict(
                f"{self.context.name}: a rewrite of the table is about to end, and rows can't change until then. "
                "Nothing was published. Load the table again after it, open a new writer, and write the uncommitted "
                f"rows again. If the rewrite was interrupted, rows can change again from {until} on, or when "
                "`tidelake table rewrite` was called again"
            )

    def _check_keys(self, schema_id: int) -> None:
        """Check that the keys of the rows have the columns and types that the table's keys have since a rewrite."""
        if not self.context.schema.has_same_keys(self.context.schemas.get(schema_id)):
            raise CommitConflict(
                f"{self.context.name}: the table was rewritten with another key or with other types of its key "
                "columns, so rows with the old ones can't be added. Nothing was published. Load the table again, open "
                "a new writer, and write the uncommitted rows again"
            )

    def _check_options(self, schema_id: int) -> None:
        """Check that since the writer was opened only such options were changed as may change in a table with rows.

        A table without rows, and a rewrite, may get any other: then rows of the old ones would join those of the new
        ones.
        """
        before = self._checked if self._checked.id > self.context.schema.id else self.context.schema
        for number in range(before.id + 1, schema_id + 1):
            after = self.context.schemas.get(number)
            try:
                check_altered_with_rows(before.options, after.options)
            except BadInput as error:
                raise CommitConflict(
                    f"{self.context.name}: the table was rewritten, or altered while it had no rows, and this writer "
                    f"was opened before ({error}). Nothing was published. Load the table again, open a new writer, and "
                    "write the uncommitted rows again"
                ) from error
            before = after
        self._checked = before

    def _check_rewrite_is_finished(self, changes: CommitChanges, base: Snapshot | None) -> None:
        """Check that the table keeps no files that were written under another definition than the new ones.

        It has such files after a rewrite that published its schema, but not its rows. They may lie in buckets where
        their keys don't belong any more, so that a key would get a second row, and a compaction would leave it there.
        """
        if base is None or not may_have_older_files(self.context):
            self._has_one_definition = True
            return
        if not any(entry.kind is FileKind.ADD for entry in changes.entries):
            return
        live = live_entries_of(self._manifests, base, None, self.context.name)
        old = {entry.identity for entry in entries_of_older_definition(self.context, live)}
        if not old:
            self._has_one_definition = True
            return
        if changes.kind is CommitKind.OVERWRITE:
            old -= {entry.identity for entry in changes.entries if entry.kind is FileKind.DELETE}
        if old:
            raise CommitConflict(
                f"{self.context.name}: a rewrite for another key, other types of its columns, other buckets or another "
                "merge engine did not finish, so nothing can be added yet. Nothing was published. Finish it with "
                f"`{rewrite_command(self.context.name, self.context.location)}`, open a new writer, and write the "
                "uncommitted rows again"
            )

    def _check_buckets(
        self, messages: Sequence[CommitMessage], read: Mapping[BucketId, int], base: Snapshot | None, schema_id: int
    ) -> None:
        """Check that the partitions of new rows still have the number of buckets that the rows were placed into."""
        default = Bucketing.of(self.context.schema, self.context.options).total_buckets
        counts_of = {m.partition: m.base.total_buckets for m in messages if m.bucket in read}
        placed = {partition: default if count is None else count for partition, count in counts_of.items()}
        totals = {partition: count for partition, count in placed.items() if count > 0}
        if not totals:
            return
        if schema_id != self.context.schema.id:
            self._check_new_partitions(totals, base, schema_id)
        try:
            counts = self._others.after(min(read.values()), base).bucket_counts
        except HistoryExpired:
            check_buckets_unchanged(totals, self._bucket_counts(totals, base), self._name_partition)
            return
        since: dict[bytes, int] = {}
        for bucket, base_id in read.items():
            since[bucket.partition] = min(base_id, since.get(bucket.partition, base_id))
        found = {partition: count for partition, (at, count) in counts.items() if at > since.get(partition, at)}
        check_buckets_unchanged(totals, found, self._name_partition)

    def _check_new_partitions(self, totals: Mapping[bytes, int], base: Snapshot | None, schema_id: int) -> None:
        """Check that partitions without files get the table's number of buckets, which may have changed since."""
        table_total = self._total_buckets(schema_id)
        differing = {partition for partition, total in totals.items() if 1 <= table_total != total}
        for partition in sorted(differing - set(self._bucket_counts(differing, base))):
            raise CommitConflict(
                f"{self._name_partition(partition)}: the table has bucket = {table_total} since, but the rows of this "
                f"commit are for {totals[partition]} buckets. Nothing was published. Load the table again, open a new "
                "writer, and write the uncommitted rows again"
            )

    def _bucket_counts(self, partitions: Collection[bytes], base: Snapshot | None) -> dict[bytes, int]:
        """Return the number of buckets of those partitions that have files."""
        if not partitions:
            return {}
        live = live_entries_of(self._manifests, base, set(partitions), self.context.name)
        return {entry.partition: entry.total_buckets for entry in live if entry.total_buckets > 0}

    def _total_buckets(self, schema_id: int) -> int:
        schema = self.context.schemas.get(schema_id)
        return Bucketing.of(schema, self.context.with_schema(schema).options).total_buckets

    def _check_key_index(self, messages: Sequence[CommitMessage], base: Snapshot | None) -> None:
        """Check that others added no rows after the snapshot whose key index placed our rows."""
        known = [message.base.key_index for message in messages if message.base.key_index is not None]
        if not known:
            return
        written = self._others.after(min(known), base)
        newest = max(written.newest.values(), default=0)
        if newest > min(known):
            raise CommitConflict(
                f"{self.context.name}: another writer has published snapshot {newest} since, so a "
                "key could get a row in two partitions. Nothing was published. Open the table again, and write the "
                "uncommitted rows again. Let only one job write to a table whose keys move between partitions"
            )

    def _check_hash_index(self, request: CommitRequest, changes: CommitChanges, base: Snapshot | None) -> None:
        messages = request.committable.messages
        has_index = any(message.base.hash_index is not None for message in messages)
        if has_index and request.is_first and changes.kind is not CommitKind.COMPACT:
            check_hash_index(self._index_of(base), messages, self._name_partition)

    # ------------------------------------------------------------ the table's content

    def _check_content(
        self, messages: Sequence[CommitMessage], changes: CommitChanges, base: Snapshot | None, schema_id: int
    ) -> CheckedChanges:
        drops_duplicates = self._drops_duplicates and changes.kind is CommitKind.APPEND
        if changes.kind is CommitKind.APPEND and not (drops_duplicates and base is not None):
            if base is None:
                check_bucket_counts(changes.entries, self._name_partition)
            return CheckedChanges(changes, self._changed_index(changes, base))
        partitions = {entry.partition for entry in changes.entries} | {entry.partition for entry in changes.index}
        live = live_entries_of(self._manifests, base, partitions, self.context.name)
        if changes.kind is CommitKind.COMPACT:
            check_relied_on(messages, live, self._name_partition)
        elif changes.kind is CommitKind.OVERWRITE:
            self._check_replaced_buckets(changes, live, schema_id)
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

    def _check_replaced_buckets(self, changes: CommitChanges, live: Sequence[ManifestEntry], schema_id: int) -> None:
        """Check an overwrite by a writer that was opened before its partition got the table's number of buckets."""
        now = {entry.partition: entry.total_buckets for entry in live if entry.total_buckets > 0}
        new = {e.partition: e.total_buckets for e in changes.entries if e.kind is FileKind.ADD and e.total_buckets > 0}
        differing = {partition: total for partition, total in new.items() if now.get(partition, total) != total}
        if not differing:
            return
        table_total = self._total_buckets(schema_id)
        rescaled = {p: now[p] for p, total in differing.items() if now[p] == table_total != total}
        check_buckets_unchanged(differing, rescaled, self._name_partition)

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
