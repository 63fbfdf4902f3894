"""Commits to one table under one commit user: makes snapshots of the files of its writers.

`tidelake.storage.commit.publisher` describes how a snapshot is published, and what a crash leaves behind.

Source: Java `table/sink/TableCommitImpl.java`, `operation/FileStoreCommitImpl.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tidelake.errors import BadInput, CommitConflict
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.commit_changes import CommitChanges, commit_changes
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.commit_request import CommitRequest, CommitResult, always
from tidelake.storage.commit.compaction_commit import CompactionCommit, OnLostCompaction, with_compact_reason
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import live_entries_of
from tidelake.storage.commit.overwrite import Replacement, matching_partitions, overwrite_changes, replacement_of
from tidelake.storage.commit.publisher import CommitEnvironment, Guard, Publisher
from tidelake.storage.commit.uncommitted_files import delete_uncommitted_files, names_of_snapshots
from tidelake.storage.model.bucketing import Bucketing
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, CommitKind
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)

_BESIDE_OTHERS: Final = (
    "Write the rows with append() beside the other writer, or stop it, truncate the table, and bootstrap it again"
)
_TRUNCATE: Final = "TRUNCATE"  # the snapshot's `operation`; as in Java's API, other operations don't set it


class TableCommit:
    """The commits of one commit user to one table. Keep it as long as the writer: it remembers the snapshots that it
    has seen, so that a commit reads almost nothing. Not thread-safe.

    commit_user: name of this stream of commits; it never changes
    rows_snapshot_id: the snapshot that the last commit or overwrite published first, with its rows. Others may have
        written between it and the snapshot of its compaction
    guard: see `Publisher`
    on_lost_compaction: called with the messages of a compaction that met a conflict after the rows of the same commit
        were published (two jobs compact one bucket). Its files are deleted, and the commit succeeds without it. Also
        called with buckets whose compaction was committed without knowing all of their files

    Commits and overwrites return the id of the last snapshot they made. They return None if (user, identifier) is
    already committed (then drop the files with `discard_already_committed`), and if there was nothing to commit and no
    empty snapshot is needed.

    Errors:
    - CommitOutcomeUnknown: all, a part or nothing was published. Commit the same again, under the same identifier;
      delete nothing. The same applies after an interrupt.
    - WriterFenced, raised by a guard: a newer writer owns the table. The rows may have been committed just before it.
    - CommitConflict: this call published nothing. Open the table, write again. StaleSequenceNumbers: or commit the
      same rows with newer numbers (`tidelake.storage.write.sequence_renumbering`).
    - Any other error, as a full disk: this call published nothing. Commit its files again, or drop them (`abort`).
    """

    def __init__(
        self,
        context: TableContext,
        commit_user: str,
        *,
        guard: Guard | None = None,
        environment: CommitEnvironment | None = None,
        on_lost_compaction: OnLostCompaction = lambda _: None,
    ) -> None:
        self._context = context
        self._options = context.options
        self._on_lost_compaction = on_lost_compaction
        self._manifests = context.shared(ManifestStore)
        self.rows_snapshot_id: int | None = None
        self._table_bucket = Bucketing.of(context.schema, context.options).total_buckets
        self._publisher = Publisher(context, commit_user, guard, environment or CommitEnvironment())

    def adopt_schema(self, context: TableContext) -> None:
        """Use this version of the schema for later commits. The table, its keys and bucket must be the same."""
        self._context = context
        self._publisher.adopt_schema(context)

    def latest_of_user(self) -> Snapshot | None:
        """Return the newest numbered snapshot of this commit user in the table's current state."""
        return self._publisher.latest_of_user()

    @property
    def snapshots_since_guard(self) -> Sequence[Snapshot]:
        """Known snapshots that the guard will get at the next commit, oldest first. Reads nothing."""
        return self._publisher.snapshots_since_guard

    @property
    def attempts(self) -> int:
        """The number of attempts to commit a snapshot since this was created; each retry counts."""
        return self._publisher.attempts

    @property
    def known_latest_of_user(self) -> Snapshot | None:
        """The newest known numbered snapshot of this commit user, including its own commits. Reads nothing."""
        return self._publisher.known_latest_of_user

    @property
    def known_latest(self) -> Snapshot | None:
        """The newest known snapshot of the table, including its own commits. Reads nothing."""
        return self._publisher.known_latest

    def commit(
        self,
        committable: Committable,
        operation: str | None = None,
        *,
        check_base: Callable[[Snapshot | None], None] = lambda _: None,
    ) -> int | None:
        """Commit the written files, then the compacted ones: one or two snapshots.

        An identifier without files makes an empty snapshot, which records the identifier as done. A batch commit
        without files makes none (option `snapshot.ignore-empty-commit`).

        operation: the `operation` of the first snapshot
        check_base: called at each attempt with the snapshot that the first one builds on; CommitConflict prevents it
        """

        def rows_on(base: Snapshot | None) -> CommitChanges:
            assert rows is not None
            check_base(base)
            return rows

        ignores_empty = self._ignores_empty(committable.identifier)
        changes = commit_changes(committable.messages, self._table_bucket, ignore_empty=ignores_empty)
        rows = next((change for change in changes if change.kind is not CommitKind.COMPACT), None)
        compacted = next((change for change in changes if change.kind is CommitKind.COMPACT), None)
        compaction: CommitRequest | None = None
        if compacted is not None:
            compaction = self._compactions.request(with_compact_reason(committable), compacted, is_first=rows is None)
        self.rows_snapshot_id = None
        result: CommitResult | None = None
        if rows is not None:
            request = CommitRequest(committable, rows_on, adds_rows=True, operation=operation)
            result = self._publisher.publish(request, compaction)
            self.rows_snapshot_id = result.snapshot.id
        if compaction is not None and (result is None or not result.is_already_committed):
            result = self._compactions.publish(compaction, result)
        return result.snapshot.id if result is not None and not result.is_already_committed else None

    def commit_to_empty(self, committable: Committable, remedy: str = _BESIDE_OTHERS) -> int | None:
        """Commit the first rows of a table: one snapshot. Returns None if there are none.

        Raises CommitConflict if the table has rows by then: their keys may be among those of the new files, which lie
        on the highest level, as if nothing was older.

        remedy: the end of its message.
        """

        def check_is_empty(base: Snapshot | None) -> None:
            if base is not None and live_entries_of(self._manifests, base, None, self._context.name):
                raise CommitConflict(
                    f"{self._context.name}: another writer has published snapshot {base.id} meanwhile, so the table is "
                    f"not empty any more. Nothing of the bootstrap was published. {remedy}"
                )

        if not commit_changes(committable.messages, self._table_bucket, ignore_empty=True):
            return None
        return self.commit(committable, check_base=check_is_empty)

    def compact_level_0(self, committable: Committable, compact: Callable[[], Sequence[CommitMessage]]) -> int | None:
        """Compact the rows that a commit left on level 0, where readers don't see them, and publish the result.

        Returns the id of the last snapshot, or None. Raises nothing: the rows are in the table, and a later commit
        compacts them.

        committable: the commit of these rows
        compact: `TableWriter.compact_level_0`; called until it returns nothing, because other commits may be first
        """
        return self._compactions.publish_all(committable, compact)

    def overwrite(
        self,
        committable: Committable,
        partition: Mapping[str, Any] | None = None,
        *,
        dynamic: bool | None = None,
    ) -> int | None:
        """Replace rows by the written ones. Makes no changelog.

        partition: column -> value. Rows of all partitions with these values are replaced; all files must be in them.
            None replaces the partitions that files were written to (dynamic), or the whole table.
        dynamic: None: option `dynamic-partition-overwrite`, which has no effect on unpartitioned tables. A dynamic
            overwrite without files replaces nothing.
        """
        written, compacted = overwrite_changes(committable.messages, self._context)
        replacement = replacement_of(self._context, written, partition, dynamic)
        if replacement is None:
            return None
        result = self._publisher.publish(CommitRequest(committable, replacement))
        self.rows_snapshot_id = result.snapshot.id
        if not result.is_already_committed and not compacted.is_empty:
            compaction = self._compactions.request(committable, compacted, is_first=False)
            result = self._compactions.publish(compaction, result)
        return None if result.is_already_committed else result.snapshot.id

    def truncate(self, identifier: int = BATCH_COMMIT_IDENTIFIER) -> int | None:
        """Remove all rows."""
        return self._remove(None, identifier)

    def drop_partitions(
        self, specs: Sequence[Mapping[str, Any]], identifier: int = BATCH_COMMIT_IDENTIFIER
    ) -> int | None:
        """Remove the rows of partitions that match one of the specs; each names some or all partition columns."""
        if not specs or not all(specs):
            raise BadInput(
                f"{self._context.name}: partition={list(specs)!r} names no partition. Give a partition column and its "
                "value; truncate() without partitions removes all rows"
            )
        matching_partitions((), specs, self._context)
        return self._remove(specs, identifier)

    def remove_partitions(
        self, choose: Callable[[Sequence[ManifestEntry]], set[bytes]], identifier: int = BATCH_COMMIT_IDENTIFIER
    ) -> int | None:
        """Remove the rows of the partitions that `choose` returns for all live files. Each attempt calls it again.

        Returns the new snapshot; None if the identifier was committed before.
        """

        def changes(base: Snapshot | None) -> CommitChanges:
            chosen = choose(live_entries_of(self._manifests, base, None, self._context.name))
            return Replacement(self._context, CommitChanges(CommitKind.OVERWRITE), chosen)(base)

        result = self._publisher.publish(CommitRequest(Committable(identifier), changes))
        return None if result.is_already_committed else result.snapshot.id

    def add_statistics(self, name: str) -> int:
        """Commit a statistics file that is written already. Returns the id of its snapshot."""
        changes = always(CommitChanges(CommitKind.ANALYZE, statistics=name))
        return self._publisher.publish(CommitRequest(Committable(BATCH_COMMIT_IDENTIFIER), changes)).snapshot.id

    def abort(self, messages: Iterable[CommitMessage]) -> None:
        """Delete the files of messages that were certainly not committed, and never will be.

        After CommitOutcomeUnknown, WriterFenced or an interrupt, check the table first: the files may be part of it.
        """
        delete_uncommitted_files(self._context, messages)

    def close(self) -> None:
        """Wait until the hint of the last commit is written. May be called again."""
        self._context.snapshots.settle_hint()

    def discard_already_committed(self, committable: Committable) -> None:
        """Delete the files of a committable that `commit` or `overwrite` found committed before. Raises nothing.

        An attempt with an unknown outcome may have committed these very files. So files that the snapshots of the
        identifier name are kept. All files are kept if one of these snapshots expired or can't be read.
        """
        try:
            own = self._publisher.snapshots_of_user(committable.identifier)
            if own is not None:
                named = names_of_snapshots(self._context, own)
                self.abort([replace(m, increment=m.increment.without_files(named)) for m in committable.messages])
        except Exception as error:  # the commit still succeeded: its rows are in the table
            _log.warning("files of a replay stay, for the orphan cleaner", table=self._context.name, error=str(error))

    def _ignores_empty(self, identifier: int) -> bool:
        return (
            identifier == BATCH_COMMIT_IDENTIFIER
            and self._options.snapshot_ignore_empty_commit
            and not self._options.commit_force_create_snapshot
        )

    @property
    def _compactions(self) -> CompactionCommit:
        return CompactionCommit(self._context, self._publisher, self._on_lost_compaction)

    def _remove(self, specs: Sequence[Mapping[str, Any]] | None, identifier: int) -> int | None:
        removing = Replacement(self._context, CommitChanges(CommitKind.OVERWRITE), specs=specs)
        result = self._publisher.publish(CommitRequest(Committable(identifier), removing, operation=_TRUNCATE))
        return None if result.is_already_committed else result.snapshot.id


def new_commit_user(options: TableOptions) -> str:
    """Return a new commit user, for commits that are never repeated. Its prefix is option `commit.user-prefix`."""
    prefix = options.commit_user_prefix
    return f"{prefix}_{env.new_uuid()}" if prefix else str(env.new_uuid())
