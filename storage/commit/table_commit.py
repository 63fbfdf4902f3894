"""Commits to one table under one commit user: makes snapshots of the files of its writers.

`tidelake.storage.commit.publisher` describes how a snapshot is published, and what a crash leaves behind.

Source: Java `table/sink/TableCommitImpl.java`, `operation/FileStoreCommitImpl.java`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from tidelake.storage.base.errors import BadInput, CommitConflict, CommitOutcomeUnknown, WriterFenced
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.commit_changes import CommitChanges, buckets_needing_tombstones, commit_changes
from tidelake.storage.commit.commit_message import CommitMessage, Committable, reasons_text
from tidelake.storage.commit.conflicts import Bucket
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import changelog_entries, delta_entries, live_entries_of
from tidelake.storage.commit.overwrite import delete_entries, matching_partitions, upgraded
from tidelake.storage.commit.publisher import CommitEnvironment, CommitRequest, CommitResult, Guard, Publisher
from tidelake.storage.files.bucket_directory import all_paths, bucket_directory
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.index_file import IndexFileMeta, index_file_path
from tidelake.storage.merge.aggregate_functions import is_order_free
from tidelake.storage.model.bucketing import Bucketing
from tidelake.storage.model.format import (
    BATCH_COMMIT_IDENTIFIER,
    COMPACTION_REASON_PROPERTY,
    POSTPONE_BUCKET,
    CommitKind,
)
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)

_File = TypeVar("_File", DataFileMeta, IndexFileMeta)

_TRUNCATE: Final = "TRUNCATE"  # the snapshot's `operation`; as in Java's API, other operations don't set it


class TableCommit:
    """The commits of one commit user to one table. Keep it as long as the writer: it remembers the snapshots that it
    has seen, so that a commit reads almost nothing. Not thread-safe.

    commit_user: name of this stream of commits; it never changes
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
        on_lost_compaction: Callable[[Sequence[CommitMessage]], None] = lambda _: None,
    ) -> None:
        self._context = context
        self._options = context.options
        self._on_lost_compaction = on_lost_compaction
        self._manifests = context.shared(ManifestStore)
        self._key_types = [f.type for f in context.schema.key_fields]
        self._is_ordered_by_arrival = bool(self._key_types) and not (
            self._options.sequence_fields or is_order_free(context.schema, context.options)
        )
        self._table_bucket = Bucketing.of(context.schema, context.options).total_buckets
        self._publisher = Publisher(context, commit_user, guard, environment or CommitEnvironment())

    def adopt_schema(self, context: TableContext) -> None:
        """Uses this version of the schema for later commits. The table, its keys and bucket must be the same."""
        self._context = context
        self._publisher.adopt_schema(context)

    def latest_of_user(self) -> Snapshot | None:
        """Returns the newest numbered snapshot of this commit user in the table's current state."""
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

    def commit(self, committable: Committable, operation: str | None = None) -> int | None:
        """Commits the written files, then the compacted ones: one or two snapshots.

        An identifier without files makes an empty snapshot, which records the identifier as done. A batch commit
        without files makes none (option `snapshot.ignore-empty-commit`).

        operation: the `operation` of the first snapshot
        """
        changes = self._changes(committable.messages, ignore_empty=self._ignores_empty(committable.identifier))
        bases = self._bases(committable.messages)
        result: CommitResult | None = None
        for change in changes:
            if change.kind is CommitKind.COMPACT:
                result = self._publish_compaction(_with_compact_reason(committable), change, result)
            else:
                result = self._publisher.publish(CommitRequest(committable, _always(change), bases, operation))
            if result.is_already_committed:
                return None
        return result.snapshot.id if result is not None else None

    def compact_level_0(self, committable: Committable, compact: Callable[[], Sequence[CommitMessage]]) -> int | None:
        """Compacts the rows that a commit left on level 0, where readers don't see them, and publishes the result.

        Returns the id of the last snapshot, or None. Raises nothing: the rows are in the table, and a later commit
        compacts them.

        committable: the commit of these rows
        compact: `TableWriter.compact_level_0`; called until it returns nothing, because other commits may be first
        """
        published: int | None = None
        try:
            for _ in range(1 + self._options.commit_max_retries):
                if not (messages := compact()):
                    break
                retry = replace(committable, messages=tuple(messages))
                (compacted,) = self._changes(messages, ignore_empty=True)
                try:
                    changes = self._with_needed_tombstones(compacted, messages)
                    request = CommitRequest(_with_compact_reason(retry), changes, is_first=False, is_more=True)
                    result = self._publisher.publish(request)
                    self._delete_unneeded_tombstones(messages, result.snapshot)
                    published = result.snapshot.id
                except CommitConflict as e:
                    self._discard_compaction(messages, e)
        except Exception as error:
            _log.warning("compaction is left to the next commit", table=self._context.name, reason=str(error))
        return published

    def overwrite(
        self,
        committable: Committable,
        partition: Mapping[str, Any] | None = None,
        *,
        dynamic: bool | None = None,
    ) -> int | None:
        """Replaces rows by the written ones. Makes no changelog.

        partition: column -> value. Rows of all partitions with these values are replaced; all files must be in them.
            None replaces the partitions that files were written to (dynamic), or the whole table.
        dynamic: None: option `dynamic-partition-overwrite`, which has no effect on unpartitioned tables. A dynamic
            overwrite without files replaces nothing.
        """
        is_partitioned = bool(self._context.schema.partition_keys)
        if dynamic is None:
            dynamic = partition is None and is_partitioned and self._options.dynamic_partition_overwrite
        if dynamic and (partition is not None or not is_partitioned):
            raise BadInput(
                f"{self._context.name}: a dynamic overwrite needs a partitioned table, as its rows choose the "
                "partitions"
            )
        written, compacted = self._overwrite_changes(committable.messages)
        new_partitions = {entry.partition for entry in written.entries}
        if dynamic and not new_partitions:
            return None
        if partition is not None and matching_partitions(new_partitions, [partition], self._context) != new_partitions:
            where = f"outside of the partition to overwrite, {dict(partition)}"
            raise BadInput(f"{self._context.name}: files were written {where}")
        replacing = self._replacing(
            written, new_partitions if dynamic else None, None if partition is None else [partition]
        )
        result = self._publisher.publish(CommitRequest(committable, replacing))
        if not result.is_already_committed and not compacted.is_empty:
            result = self._publish_compaction(committable, compacted, result)
        return None if result.is_already_committed else result.snapshot.id

    def truncate(self, identifier: int = BATCH_COMMIT_IDENTIFIER) -> int | None:
        """Removes all rows."""
        return self._remove(None, identifier)

    def drop_partitions(
        self, specs: Sequence[Mapping[str, Any]], identifier: int = BATCH_COMMIT_IDENTIFIER
    ) -> int | None:
        """Removes the rows of partitions that match one of the specs; each names some or all partition columns."""
        if not specs or not all(specs):
            raise BadInput(
                f"{self._context.name}: partition={list(specs)!r} names no partition. Give a partition column and its "
                "value; truncate() without partitions removes all rows"
            )
        matching_partitions((), specs, self._context)
        return self._remove(specs, identifier)

    def remove_partitions(self, choose: Callable[[Sequence[ManifestEntry]], set[bytes]]) -> None:
        """Removes the rows of the partitions that `choose` returns for all live files. Each attempt calls it again."""

        def changes(base: Snapshot | None) -> CommitChanges:
            chosen = choose(live_entries_of(self._manifests, base, None, self._context.name))
            return self._replacing(CommitChanges(CommitKind.OVERWRITE), chosen)(base)

        self._publisher.publish(CommitRequest(Committable(BATCH_COMMIT_IDENTIFIER), changes))

    def add_statistics(self, name: str) -> int:
        """Commits a statistics file that is written already. Returns the id of its snapshot."""
        changes = _always(CommitChanges(CommitKind.ANALYZE, statistics=name))
        return self._publisher.publish(CommitRequest(Committable(BATCH_COMMIT_IDENTIFIER), changes)).snapshot.id

    def abort(self, messages: Iterable[CommitMessage]) -> None:
        """Deletes the files of messages that were certainly not committed, and never will be.

        After CommitOutcomeUnknown, WriterFenced or an interrupt, check the table first: the files may be part of it.
        """
        paths: list[str] = []
        for message in messages:
            directory = bucket_directory(self._context, message.partition, message.bucket)
            # an upgraded file: it is a file of the table, or one of the new files
            kept = {file.file_name for file in message.compact_before}
            compacted = [file for file in message.compact_after if file.file_name not in kept]
            compacted += [*message.compact_changelog, *message.compact_tombstones]
            for file in (*message.new_files, *message.changelog_files, *compacted):
                paths += all_paths(directory, file)
            for index_file in (*message.new_index_files, *message.compact_new_index_files):
                paths.append(index_file_path(self._context, message.partition, message.bucket, index_file))
        self._context.io.delete_all(paths)

    def discard_already_committed(self, committable: Committable) -> None:
        """Deletes the files of a committable that `commit` or `overwrite` found committed before. Raises nothing.

        An attempt with an unknown outcome may have committed these very files. So files that the snapshots of the
        identifier name are kept. All files are kept if one of these snapshots expired or can't be read.
        """
        try:
            named = self._files_of_identifier(committable.identifier)
            if named is not None:
                self.abort([_without(message, named) for message in committable.messages])
        except Exception as error:  # the commit still succeeded: its rows are in the table
            _log.warning("files of a replay stay, for the orphan cleaner", table=self._context.name, error=str(error))

    def _files_of_identifier(self, identifier: int) -> set[str] | None:
        """Returns the data, changelog and index files that our snapshots of an identifier added; None if that is no
        longer known.
        """
        own = self._publisher.snapshots_of_user(identifier)
        if own is None:
            return None
        names = set()
        for snapshot in own:
            entries = delta_entries(self._context, snapshot)
            entries += changelog_entries(self._context, snapshot)
            names |= {entry.file.file_name for entry in entries}
            names |= {entry.file.file_name for entry in self._manifests.read_index(snapshot.index_manifest)}
        return names

    # ------------------------------------------------------------ what to publish

    def _publish_compaction(
        self, committable: Committable, compacted: CommitChanges, rows: CommitResult | None
    ) -> CommitResult:
        """rows: the result of publishing the rows of the same commit, if there were any"""
        changes = self._with_needed_tombstones(compacted, committable.messages)
        request = CommitRequest(committable, changes, is_first=rows is None)
        result = self._publisher.publish(request) if rows is None else self._publish_separately(request, rows)
        if result is not rows and not result.is_already_committed:
            self._delete_unneeded_tombstones(committable.messages, result.snapshot)
        return result

    def _publish_separately(self, request: CommitRequest, rows: CommitResult) -> CommitResult:
        try:
            return self._publisher.publish(request)
        except CommitConflict as e:
            self._discard_compaction(request.committable.messages, e)
            return rows
        except (CommitOutcomeUnknown, WriterFenced):
            raise
        except Exception as e:
            raise CommitOutcomeUnknown(
                f"{self._context.name}: the rows of {rows.snapshot.commit_user!r}, identifier "
                f"{rows.snapshot.commit_identifier}, are in the table, in snapshot {rows.snapshot.id}, but the "
                f"compaction of the same commit is not ({e}). Don't write these rows again"
            ) from e

    def _discard_compaction(self, messages: Sequence[CommitMessage], reason: CommitConflict) -> None:
        _log.warning("compaction discarded", table=self._context.name, reason=str(reason))
        self._on_lost_compaction(messages)
        try:
            self.abort([message.only_compaction() for message in messages])
        except Exception as error:  # the commit still succeeded: its rows are in the table
            _log.warning("its files stay, for the orphan cleaner", table=self._context.name, error=str(error))

    def _with_needed_tombstones(
        self, compacted: CommitChanges, messages: Sequence[CommitMessage]
    ) -> Callable[[Snapshot | None], CommitChanges]:
        with_tombstones = [message for message in messages if message.compact_tombstones]
        if not with_tombstones:
            return _always(compacted)

        def changes(base: Snapshot | None) -> CommitChanges:
            live = live_entries_of(self._manifests, base, {m.partition for m in with_tombstones}, self._context.name)
            buckets = buckets_needing_tombstones(with_tombstones, live)
            needed = [
                CommitMessage(m.partition, m.bucket, m.total_buckets, compact_after=m.compact_tombstones)
                for m in with_tombstones
                if (m.partition, m.bucket) in buckets
            ]
            added = [entry for change in self._changes(needed, ignore_empty=True) for entry in change.entries]
            return replace(compacted, entries=[*compacted.entries, *added])

        return changes

    def _delete_unneeded_tombstones(self, messages: Sequence[CommitMessage], snapshot: Snapshot) -> None:
        """Deletes tombstones that the published compaction did not need. Raises nothing."""
        with_tombstones = [message for message in messages if message.compact_tombstones]
        if not with_tombstones:
            return
        try:
            delta = delta_entries(self._context, snapshot)
            named = {entry.file.file_name for entry in delta}
            needed = [m for m in with_tombstones if any(file.file_name in named for file in m.compact_tombstones)]
            self._on_lost_compaction(needed)
            self.abort(
                CommitMessage(m.partition, m.bucket, compact_after=m.compact_tombstones)
                for m in with_tombstones
                if m not in needed
            )
        except Exception as error:
            _log.warning("files of deletes stay, for the orphan cleaner", table=self._context.name, error=str(error))

    def _changes(self, messages: Sequence[CommitMessage], *, ignore_empty: bool) -> list[CommitChanges]:
        return commit_changes(messages, self._table_bucket, ignore_empty=ignore_empty)

    def _ignores_empty(self, identifier: int) -> bool:
        return (
            identifier == BATCH_COMMIT_IDENTIFIER
            and self._options.snapshot_ignore_empty_commit
            and not self._options.commit_force_create_snapshot
        )

    def _bases(self, messages: Sequence[CommitMessage]) -> dict[Bucket, int]:
        """Returns the base snapshots of buckets whose new rows are ordered by sequence numbers alone."""
        if not self._is_ordered_by_arrival:
            return {}
        bases: dict[Bucket, int] = {}
        for message in messages:
            if message.new_files and message.bucket != POSTPONE_BUCKET:  # postponed rows have no sequence numbers
                bucket, base = (message.partition, message.bucket), message.base_snapshot_id or 0
                bases[bucket] = min(base, bases.get(bucket, base))
        return bases

    # ------------------------------------------------------------ overwriting

    def _overwrite_changes(self, messages: Sequence[CommitMessage]) -> tuple[CommitChanges, CommitChanges]:
        """Returns the written changes and the compaction after them, both without changelogs."""
        silent = [replace(message, changelog_files=(), compact_changelog=()) for message in messages]
        by_kind = {change.kind: change for change in self._changes(silent, ignore_empty=True)}
        compacted = by_kind.pop(CommitKind.COMPACT, CommitChanges(CommitKind.COMPACT))
        written = next(iter(by_kind.values()), CommitChanges(CommitKind.OVERWRITE))
        if self._key_types and compacted.is_empty and self._options.overwrite_upgrade:
            entries = upgraded(written.entries, self._key_types, self._options.num_levels - 1)
            written = replace(written, entries=entries)
        return written, compacted

    def _replacing(
        self,
        written: CommitChanges,
        partitions: set[bytes] | None = None,
        specs: Sequence[Mapping[str, Any]] | None = None,
    ) -> Callable[[Snapshot | None], CommitChanges]:
        """Removes live files of the given partitions (None: all) that match one of the specs (None: all).

        It is computed again for every attempt, so files that others added in the meantime are replaced, too.
        """

        def changes(base: Snapshot | None) -> CommitChanges:
            live = live_entries_of(self._manifests, base, partitions, self._context.name)
            index = self._manifests.read_index(base.index_manifest if base is not None else None)
            replaced = {entry.partition for entry in live} | {entry.partition for entry in index}
            if partitions is not None:
                replaced &= partitions
            if specs is not None:
                replaced = matching_partitions(replaced, specs, self._context)
            deletes = delete_entries(
                [entry for entry in live if entry.partition in replaced],
                self._table_bucket,
                drop_stats=self._options.manifest_delete_file_drop_stats,
            )
            index_deletes = [entry.as_delete() for entry in index if entry.partition in replaced]
            return CommitChanges(
                CommitKind.OVERWRITE, [*deletes, *written.entries], index=[*index_deletes, *written.index]
            )

        return changes

    def _remove(self, specs: Sequence[Mapping[str, Any]] | None, identifier: int) -> int | None:
        replacing = self._replacing(CommitChanges(CommitKind.OVERWRITE), specs=specs)
        result = self._publisher.publish(CommitRequest(Committable(identifier), replacing, operation=_TRUNCATE))
        return None if result.is_already_committed else result.snapshot.id


def _without(message: CommitMessage, names: Collection[str]) -> CommitMessage:
    """Returns the message without new files of these names."""

    def others(files: Iterable[_File]) -> tuple[_File, ...]:
        return tuple(file for file in files if file.file_name not in names)

    return replace(
        message,
        new_files=others(message.new_files),
        changelog_files=others(message.changelog_files),
        compact_after=others(message.compact_after),
        compact_changelog=others(message.compact_changelog),
        compact_tombstones=others(message.compact_tombstones),
        new_index_files=others(message.new_index_files),
        compact_new_index_files=others(message.compact_new_index_files),
    )


def new_commit_user(options: TableOptions) -> str:
    """Returns a new commit user, for commits that are never repeated. Its prefix is option `commit.user-prefix`."""
    prefix = options.commit_user_prefix
    return f"{prefix}_{uuid.uuid4()}" if prefix else str(uuid.uuid4())


def _with_compact_reason(committable: Committable) -> Committable:
    """Adds to the compaction's snapshot the reason why it was picked."""
    text = reasons_text(message.compact_reason for message in committable.messages if message.compact_reason)
    if not text:
        return committable
    return replace(committable, properties={COMPACTION_REASON_PROPERTY: text, **committable.properties})


def _always(changes: CommitChanges) -> Callable[[Snapshot | None], CommitChanges]:
    """Returns the same changes for any base snapshot."""
    return lambda _: changes
