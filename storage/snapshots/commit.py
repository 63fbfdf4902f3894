"""Commits to one table under one commit user: what writers hand over becomes snapshots.

How a snapshot gets published, and what a crash leaves behind: `storage.snapshots.publisher`.

Source: Java `table/sink/TableCommitImpl.java`, `operation/FileStoreCommitImpl.java`; commit-protocol notes 3, 8 and 11.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from storage.bucketing import Bucketing
from storage.errors import BadInput, CommitConflict, UnsupportedFeature
from storage.files.bucket_directory import all_paths, bucket_directory
from storage.format import BATCH_COMMIT_IDENTIFIER, COMPACTION_REASON_PROPERTY, CommitKind
from storage.logs import get_logger
from storage.options import TableOptions
from storage.snapshots.changes import Changes, changes_of
from storage.snapshots.commit_message import CommitMessage, Committable, reasons_text
from storage.snapshots.conflicts import Bucket
from storage.snapshots.live_files import live_entries_of
from storage.snapshots.manifest_entry import ManifestEntry
from storage.snapshots.manifest_store import ManifestStore
from storage.snapshots.overwrite import deletes_of, matching_partitions, upgraded
from storage.snapshots.publisher import CommitEnvironment, Guard, Proposal, Publisher, Settled
from storage.snapshots.snapshot import Snapshot
from storage.table import TableContext

_log = get_logger(__name__)

_TRUNCATE: Final = "TRUNCATE"  # the snapshot's `operation`; other kinds of work leave it out, as Java's API does


class TableCommit:
    """Keep it as long as the writer: it remembers what it saw of the table, so that a commit reads next to nothing.

    commit_user: names this stream of commits for ever. guard: see `Publisher`. manifests: to share with a reader.
    on_lost_compaction: what was compacted beside the rows may meet a conflict when the rows are published already (two
    jobs compact one bucket). Given this, it is thrown away: its files are deleted, this is told whose, and the commit
    succeeds without it. None: CommitConflict.
    Commits and overwrites return the id of the last snapshot they made; None when (user, identifier) was committed
    before, or when there was nothing to commit and an empty snapshot isn't asked for.

    All raise CommitConflict (nothing was published: open the table anew, write again) and CommitOutcomeUnknown
    (commit the same under the same identifier again; delete nothing). One thread at a time.
    """

    def __init__(
        self,
        context: TableContext,
        commit_user: str,
        *,
        guard: Guard | None = None,
        environment: CommitEnvironment | None = None,
        manifests: ManifestStore | None = None,
        on_lost_compaction: Callable[[Sequence[CommitMessage]], None] | None = None,
    ) -> None:
        self._context = context
        self._options = context.options
        self._on_lost_compaction = on_lost_compaction
        self._manifests = manifests or ManifestStore(context)
        self._key_types = [f.type for f in context.schema.key_fields]
        self._table_bucket = Bucketing.of(context.schema, context.options).total_buckets
        self._publisher = Publisher(context, commit_user, guard, environment or CommitEnvironment(), self._manifests)

    def newest_own(self) -> Snapshot | None:
        """The newest numbered snapshot of this commit user, as the table stands now."""
        return self._publisher.newest_own()

    @property
    def known_own(self) -> Snapshot | None:
        """The same as far as this committer has looked, what it published included; nothing is read."""
        return self._publisher.known_own

    def commit(self, committable: Committable) -> int | None:
        """Add what was written, then what was compacted: one snapshot or two.

        An identifier without files makes an empty snapshot, which says that it is done; a batch commit without files
        makes none (option `snapshot.ignore-empty-commit`). When the second snapshot meets a conflict, CommitConflict
        says so; the rows are in the table then, and committing again is a replay.
        """
        changes = self._changes(committable.messages, ignore_empty=self._ignores_empty(committable.identifier))
        bases = self._bases(committable.messages)
        settled: Settled | None = None
        for number, change in enumerate(changes):
            is_compaction = change.kind is CommitKind.COMPACT
            envelope = _with_reasons(committable) if is_compaction else committable
            proposal = Proposal(envelope, _always(change), {} if is_compaction else bases, is_first=number == 0)
            try:
                settled = self._publish_next(proposal, settled)
            except CommitConflict as e:
                if settled is None or self._on_lost_compaction is None:
                    raise
                self._throw_away_compaction(committable.messages, e)
                self._on_lost_compaction(committable.messages)
                break
            if settled.is_replay:
                return None
        return settled.snapshot.id if settled is not None else None

    def _throw_away_compaction(self, messages: Sequence[CommitMessage], reason: CommitConflict) -> None:
        _log.warning("compaction thrown away", table=self._context.name, reason=str(reason))
        self.abort([replace(m, new_files=(), changelog_files=()) for m in messages])

    def overwrite(
        self,
        committable: Committable,
        partition: Mapping[str, Any] | None = None,
        *,
        dynamic: bool | None = None,
    ) -> int | None:
        """Replace rows by what was written. No changelog is made.

        partition: column -> value; rows of all partitions that agree are replaced, and all files must be in them.
        Without it, the partitions that files were written to (dynamic), or the whole table. dynamic: None takes option
        `dynamic-partition-overwrite`, which unpartitioned tables don't heed. Dynamic without files replaces nothing.
        """
        is_partitioned = bool(self._context.schema.partition_keys)
        if dynamic is None:
            dynamic = partition is None and is_partitioned and self._options.dynamic_partition_overwrite
        if dynamic and (partition is not None or not is_partitioned):
            raise BadInput(
                f"{self._context.name}: a dynamic overwrite takes its partitions from the rows of a parted table"
            )
        written, compacted = self._overwrite_changes(committable.messages)
        new_partitions = {entry.partition for entry in written}
        if dynamic and not new_partitions:
            return None
        if partition is not None and matching_partitions(new_partitions, [partition], self._context) != new_partitions:
            raise BadInput(
                f"{self._context.name}: files were written outside of the partition to overwrite, {dict(partition)}"
            )
        targets = new_partitions if dynamic else None
        live = self._live_finder(targets, None if partition is None else [partition])
        settled = self._publish_next(Proposal(committable, self._replacing(live, written)), None)
        if not settled.is_replay and not compacted.is_empty:
            second = Proposal(committable, _always(compacted), is_first=False)
            settled = self._publish_next(second, settled)
        return None if settled.is_replay else settled.snapshot.id

    def truncate(self, identifier: int = BATCH_COMMIT_IDENTIFIER) -> int | None:
        """Remove all rows."""
        return self._remove(self._live_finder(None, None), identifier)

    def drop_partitions(
        self, specs: Sequence[Mapping[str, Any]], identifier: int = BATCH_COMMIT_IDENTIFIER
    ) -> int | None:
        """Remove the rows of partitions that agree with one of the specs; each names some or all partition columns."""
        if not specs or not all(specs):
            raise BadInput(f"{self._context.name}: name the partitions to drop; truncate removes all rows")
        matching_partitions((), specs, self._context)
        return self._remove(self._live_finder(None, specs), identifier)

    def abort(self, messages: Iterable[CommitMessage]) -> None:
        """Delete the files of messages that were surely not committed, and never will be.

        Never after CommitOutcomeUnknown, and not after an error that isn't ours: then they may be part of the table.
        """
        paths: list[str] = []
        for message in messages:
            directory = bucket_directory(self._context, message.partition, message.bucket)
            # moved to another level only: the file itself is the table's, or among the new ones
            kept = {file.file_name for file in message.compact_before}
            compacted = [file for file in message.compact_after if file.file_name not in kept]
            for file in (*message.new_files, *message.changelog_files, *compacted, *message.compact_changelog):
                paths += all_paths(directory, file)
        self._context.io.delete_all(paths)

    # ------------------------------------------------------------ what to publish

    def _publish_next(self, proposal: Proposal, before: Settled | None) -> Settled:
        try:
            return self._publisher.publish(proposal)
        except CommitConflict as e:
            if before is None:
                raise
            raise CommitConflict(
                f"{e}\nThe rows of identifier {proposal.committable.identifier} are committed, in snapshot "
                f"{before.snapshot.id}; what was compacted with them is not"
            ) from e

    def _changes(self, messages: Sequence[CommitMessage], *, ignore_empty: bool) -> list[Changes]:
        changes = changes_of(messages, self._table_bucket, ignore_empty=ignore_empty)
        if any(change.added_index_files or change.deleted_index_files for change in changes):
            raise UnsupportedFeature(
                f"{self._context.name}: index files in a commit",
                "index manifests are not written yet",
                "Use Java Paimon for it",
            )
        return changes

    def _ignores_empty(self, identifier: int) -> bool:
        return (
            identifier == BATCH_COMMIT_IDENTIFIER
            and self._options.snapshot_ignore_empty_commit
            and not self._options.commit_force_create_snapshot
        )

    def _bases(self, messages: Sequence[CommitMessage]) -> dict[Bucket, int]:
        """Buckets whose new rows are ordered by sequence numbers alone."""
        if not self._key_types or self._options.sequence_fields:
            return {}
        bases: dict[Bucket, int] = {}
        for message in messages:
            if message.new_files:
                bucket, base = (message.partition, message.bucket), message.base_snapshot_id or 0
                bases[bucket] = min(base, bases.get(bucket, base))
        return bases

    # ------------------------------------------------------------ overwriting

    def _overwrite_changes(self, messages: Sequence[CommitMessage]) -> tuple[Sequence[ManifestEntry], Changes]:
        """New entries, and the compaction that follows; without changelogs."""
        silent = [replace(message, changelog_files=(), compact_changelog=()) for message in messages]
        by_kind = {change.kind: change for change in self._changes(silent, ignore_empty=True)}
        compacted = by_kind.pop(CommitKind.COMPACT, Changes(CommitKind.COMPACT))
        written = next(iter(by_kind.values())).entries if by_kind else ()
        if self._key_types and compacted.is_empty and self._options.overwrite_upgrade:
            written = upgraded(written, self._key_types, self._options.num_levels - 1)
        return written, compacted

    def _live_finder(
        self, partitions: set[bytes] | None, specs: Sequence[Mapping[str, Any]] | None
    ) -> Callable[[Snapshot | None], list[ManifestEntry]]:
        """Live files of the given partitions (None: all) that agree with one of the specs (None: all)."""

        def find(base: Snapshot | None) -> list[ManifestEntry]:
            live = live_entries_of(self._manifests, base, partitions, self._context.name)
            if specs is None:
                return live
            wanted = matching_partitions({entry.partition for entry in live}, specs, self._context)
            return [entry for entry in live if entry.partition in wanted]

        return find

    def _replacing(
        self, live: Callable[[Snapshot | None], list[ManifestEntry]], written: Sequence[ManifestEntry]
    ) -> Callable[[Snapshot | None], Changes]:
        """Computed anew on every attempt: what others added meanwhile is replaced too."""

        def changes(base: Snapshot | None) -> Changes:
            if base is not None and base.index_manifest is not None:
                raise UnsupportedFeature(
                    f"{self._context.name}: overwriting a table with an index (dynamic buckets, deletion vectors)",
                    "the index would go on to name files that are gone",
                    "Use Java Paimon for it",
                )
            drop_stats = self._options.manifest_delete_file_drop_stats
            deletes = deletes_of(live(base), self._table_bucket, drop_stats=drop_stats)
            return Changes(CommitKind.OVERWRITE, [*deletes, *written])

        return changes

    def _remove(self, live: Callable[[Snapshot | None], list[ManifestEntry]], identifier: int) -> int | None:
        proposal = Proposal(Committable(identifier), self._replacing(live, ()), operation=_TRUNCATE)
        settled = self._publish_next(proposal, None)
        return None if settled.is_replay else settled.snapshot.id


def new_commit_user(options: TableOptions) -> str:
    """For commits that nobody will repeat. Under option `commit.user-prefix`."""
    prefix = options.commit_user_prefix
    return f"{prefix}_{uuid.uuid4()}" if prefix else str(uuid.uuid4())


def _with_reasons(committable: Committable) -> Committable:
    """Tells, in the snapshot of the compaction, why it was picked."""
    text = reasons_text(message.compact_reason for message in committable.messages if message.compact_reason)
    if not text:
        return committable
    return replace(committable, properties={COMPACTION_REASON_PROPERTY: text, **committable.properties})


def _always(changes: Changes) -> Callable[[Snapshot | None], Changes]:
    """Whatever the snapshot it will build on."""
    return lambda _: changes
