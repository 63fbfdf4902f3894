"""Rewrites all rows of a table under another definition (`tidelake.storage.model.definition`), beside its writers.

1. The rows of the newest snapshot are written to new files, under a schema that is not published. What others commit
   meanwhile is read as a difference of two snapshots, and written, too. *Crash: orphan files; the old table.*
2. A schema with a fence is published: for a while, writers can't change rows. An empty snapshot follows, so that no
   commit from before the fence comes later. *Crash: the old table; writers continue when the time of the fence is over,
   or with the next rewrite.*
3. The last changes are written, and the old files are compacted fully: no key is in two files, so that readers need not
   merge, and no change waits for its changelog. *Crash: as before.*
4. The schema with the new definition is published, without the fence. *Crash: the old rows, which need no merge, under
   the new schema; nobody can add rows, and `finish_rewrite` continues.*
5. One OVERWRITE snapshot replaces the old files by the new ones. It has no changelog, as no row changes: followers
   continue, and tags and older snapshots keep their own schema.

Writers that were opened before can't commit any more: `ConflictCheck` compares the definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.table_compaction import compact
from tidelake.errors import BadInput, CommitConflict, SnapshotExpired, UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.progress import counted
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.manifests.manifest_entry import Identity, ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import (
    delta_entries,
    entries_of_older_definition,
    live_entries,
    may_have_older_files,
)
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.ddl.schema_changes import Redefinition, RemoveOption, RewriteChange, SetOption, apply_changes
from tidelake.storage.model.bucketing import Bucketing, BucketMode, bucket_mode
from tidelake.storage.model.definition import FENCE, REWRITTEN, Definition, with_definition_of
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, KIND_COLUMN, CommitKind, FileKind, RowKind
from tidelake.storage.model.option_support import check_alterable
from tidelake.storage.model.options import MergeEngine, TableOptions
from tidelake.storage.model.paths import format_of
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds
from tidelake.storage.read.expired_snapshots import newest_live_entries
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_diff import SnapshotDiff
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.read.state_files import StateFiles
from tidelake.storage.write.table_writer import TableWriter

_log = get_logger(__name__)

ATTEMPTS: Final = 5  # others may alter the table, replace its rows, or expire the snapshot that is read
_CATCH_UPS_MAX: Final = 20
_FEW_S: Final = 5.0  # if catching up takes no longer, the rest is done behind the fence
_FENCE_MS_MIN: Final = 600_000
_SHOWN: Final = 5  # rows of a refusal

# Options that would keep some rows back, or announce rows, while they are copied
_NOT_WHILE_MERGING: Final = frozenset(
    {
        "changelog-producer",
        "force-lookup",
        "deletion-vectors.enabled",
        "record-level.expire-time",
        "record-level.time-field",
        "rowkind.field",
        "write-only",
    }
)

# Options that would change rows while they are only copied
_NOT_WHILE_COPYING: Final = _NOT_WHILE_MERGING | frozenset(
    {
        "merge-engine",
        "sequence.field",
        "sequence.field.sort-order",
        "ignore-delete",
        "first-row.ignore-delete",
        "deduplicate.ignore-delete",
        "partial-update.ignore-delete",
        "ignore-update-before",
    }
)
_FAMILIES_NOT_WHILE_COPYING: Final = ("fields.", "partial-update.", "aggregation.")

_NEXT: Final = {
    MergeEngine.DEDUPLICATE: "From now on a new row replaces the row of its key, with all of its values",
    MergeEngine.PARTIAL_UPDATE: "From now on a null of a new row leaves the value of the row of its key",
    MergeEngine.AGGREGATION: "From now on new rows are aggregated into them: a sum counts from their values on",
    MergeEngine.FIRST_ROW: "From now on a new row of a key that exists is dropped",
}

Publish = Callable[[Sequence[SetOption | RemoveOption | Redefinition]], TableSchema]
"""Publishes the table's next schema, and returns it."""


def rewrite_table(
    context: TableContext, changes: Sequence[RewriteChange], publish: Publish, *, fenced: bool = True
) -> int | None:
    """Change the definition of a table, or the format of its files, by rewriting all rows. Returns the new snapshot.

    None: the table has no rows, or all files are as they should be, so nothing was rewritten.

    changes: the key, types of its columns, options.
    publish: alters the table in its catalog.
    fenced: keep other writers out while the rows are replaced. False: the caller is the only one.

    Raises BadInput for a change that is impossible, with the rows that prevent it; CommitConflict if others altered the
    table, or replaced its rows, again and again.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _Rewrite(context, changes, publish, fenced=fenced).run()
        except (CommitConflict, SnapshotExpired) as error:
            if attempt == ATTEMPTS:
                raise
            _log.info("rewrite begins again", table=context.name, reason=str(error))
            newest = context.schemas.latest()
            context = context if newest is None else context.with_schema(newest)
    raise AssertionError("the last attempt returns or raises")


def is_unfinished(context: TableContext) -> bool:
    """Return whether a rewrite of the table published its schema, but not its rows."""
    return may_have_older_files(context) and bool(entries_of_older_definition(context, newest_live_entries(context)))


def finish_rewrite(context: TableContext) -> int | None:
    """Rewrite all rows under the table's schema, after a rewrite that published only its schema.

    Java, which doesn't know that nothing may be added yet, may have written files under the new schema. Their rows are
    newer than those of the old files, and are merged with them by the new merge engine.

    Raises CommitConflict if others repeatedly wrote meanwhile.
    """
    for attempt in range(1, ATTEMPTS + 1):
        base = context.snapshots.latest()
        assert base is not None, "its files were seen"
        live = live_entries(context, base)
        older = {entry.identity for entry in entries_of_older_definition(context, live)}
        newer = {entry.identity for entry in live} - older
        old = context.with_schema(_as_written(context, base))
        if newer:
            _check_still_unique(old, context, base, older)
        copy = _Copy(old, context, merges=bool(newer))
        try:
            copy.add_all(base, older)
            if newer:
                copy.add_newer(base, newer)
            return _swap(context, copy.finished(), base)
        except CommitConflict:
            if attempt == ATTEMPTS:
                raise
        finally:
            copy.close()
    raise AssertionError("the last attempt returns or raises")


def _check_still_unique(old: TableContext, context: TableContext, base: Snapshot, older: Set[Identity]) -> None:
    """Raise BadInput if two rows of the old files have the same new key, which merging would not notice."""
    copy = _Copy(old, context)
    try:
        copy.add_all(base, older)
        copy.finished()
        copy.discard()
    finally:
        copy.close()


def _as_written(context: TableContext, base: Snapshot) -> TableSchema:
    """Return the table's schema with the definition of the files of a snapshot."""
    old = entries_of_older_definition(context, live_entries(context, base))
    schema_id = max((entry.file.schema_id for entry in old), default=context.schema.id)
    return with_definition_of(context.schema, context.schemas.get(schema_id))


def meaning_of(before: TableSchema, after: TableSchema) -> list[str]:
    """Return what users should know about a rewrite that was made, in sentences."""
    old, new = TableOptions(before.options).merge_engine, TableOptions(after.options).merge_engine
    lines = []
    if old is not new:
        lines.append(f"The rows are those that {old} had made of their versions, which are gone. {_NEXT[new]}")
    if before.primary_keys != after.primary_keys:
        keys = ", ".join(after.primary_keys)
        lines.append(f"Rows are known by ({keys}) now. Set `primary_key: [{keys}]` in pipelines that name another key.")
    return lines


class _Rewrite:
    """One attempt. See the module."""

    def __init__(
        self, context: TableContext, changes: Sequence[RewriteChange], publish: Publish, *, fenced: bool
    ) -> None:
        self._context = context
        self._changes = tuple(changes)
        self._publish_changes = publish
        self._is_fenced = fenced
        self._began = env.monotonic_s()

    def run(self) -> int | None:
        context = self._context
        base = context.snapshots.latest()
        wanted = self._applied(context.schema, self._schema_id)
        _check_rewritable(context, wanted, has_rows=base is not None)
        if base is None:
            if not _is_same(wanted, context.schema):
                self._publish(context.schema)
            return None
        if not _rewrites(context, wanted, base):
            return None
        context.schemas.expect(wanted)
        copy = _Copy(context, context.with_schema(wanted))
        try:
            copy.add_all(base)
            base = self._caught_up(copy, base)
            fence = self._fence() if self._is_fenced else context.schema
            try:
                base = self._settled(copy, base)
                messages = copy.finished()
                published = self._publish(fence)
            except BaseException:
                self._lift(fence)
                copy.discard()
                raise
        finally:
            context.schemas.forget(wanted.id)  # the published version has another time
            copy.close()
        rewritten = context.with_schema(published)
        if (published.id, published.fields) == (wanted.id, wanted.fields):
            try:
                return _swap(rewritten, messages, base)
            except CommitConflict:
                pass
        else:
            copy.discard()
        return finish_rewrite(rewritten)

    @property
    def _schema_id(self) -> int:
        return self._context.schema.id + (2 if self._is_fenced else 1)

    def _applied(self, schema: TableSchema, schema_id: int) -> TableSchema:
        """Return the schema with the changes, as the version with this id."""
        redefinition = Redefinition(self._changes, schema.id)
        has_snapshots = self._context.snapshots.latest_id() is not None
        applied = apply_changes(schema, [redefinition], has_snapshots=has_snapshots, time_ms=epoch_ms())
        options = {**applied.options, REWRITTEN: str(schema_id - 1)}
        return replace(applied, id=schema_id, options=options)

    def _publish(self, base: TableSchema) -> TableSchema:
        return self._publish_changes([Redefinition(self._changes, base.id)])

    def _caught_up(self, copy: _Copy, base: Snapshot) -> Snapshot:
        """Write what others commit, until little is left. Returns the snapshot whose rows are written."""
        for _ in range(_CATCH_UPS_MAX):
            began = env.monotonic_s()
            latest = self._latest()
            if latest.id == base.id:
                break
            copy.add_changes(base, latest)
            base = latest
            if env.monotonic_s() - began < _FEW_S:
                break
        return base

    def _fence(self) -> TableSchema:
        """Keep other writers out, for at least three times as long as all took until now."""
        took_ms = int((env.monotonic_s() - self._began) * 1000)
        until_ms = epoch_ms() + max(_FENCE_MS_MIN, 3 * took_ms)
        fence = self._publish_changes([SetOption(FENCE, str(until_ms))])
        if fence.id != self._context.schema.id + 1:
            self._lift(fence)
            raise CommitConflict(f"{self._context.name}: another process altered the table while it was rewritten")
        user = new_commit_user(self._context.options)
        try:  # what others are about to commit comes before this empty snapshot, or is refused
            TableCommit(self._context.with_schema(fence), user).commit(Committable(1))
        except BaseException:
            self._lift(fence)
            raise
        return fence

    def _settled(self, copy: _Copy, base: Snapshot) -> Snapshot:
        """Write the last changes, and compact the old files fully. Returns the snapshot that is replaced."""
        latest = self._latest()
        if latest.id != base.id:
            copy.add_changes(base, latest)
        if self._context.schema.has_primary_key:
            compact(self._context, CompactionRequest(full=True))
            compacted = self._latest()
            _check_only_compacted(self._context, latest, compacted)
            latest = compacted
        return latest

    def _lift(self, fence: TableSchema) -> None:
        if FENCE in fence.options:
            try:
                self._publish_changes([RemoveOption(FENCE)])
            except Exception as error:  # it ends by itself
                _log.warning("the fence of a rewrite stays for a while", table=self._context.name, error=str(error))

    def _latest(self) -> Snapshot:
        latest = self._context.snapshots.latest()
        if latest is None:
            raise CommitConflict(f"{self._context.name}: its snapshots were deleted while it was rewritten; try again")
        return latest


def _check_rewritable(context: TableContext, wanted: TableSchema, *, has_rows: bool) -> None:
    modes = {bucket_mode(schema, context.with_schema(schema).options) for schema in (context.schema, wanted)}
    if BucketMode.POSTPONE in modes:
        raise UnsupportedFeature(
            f"{context.name}: bucket = -2", "rows that wait for buckets can't be rewritten", "Create another table"
        )
    if BucketMode.CROSS_PARTITION in modes and len(modes) > 1:
        raise UnsupportedFeature(
            f"{context.name}: a key that lacks partition columns",
            "a rewrite would have to find each key's partition again",
            "Create another table",
        )
    check_alterable(context.name, context.schema, wanted, context.branch)
    if has_rows and (context.options.row_tracking_enabled or context.options.data_evolution_enabled):
        raise UnsupportedFeature(
            f"{context.name}: row-tracking.enabled", "rows would get other ids", "Create another table"
        )


def _rewrites(context: TableContext, wanted: TableSchema, base: Snapshot) -> bool:
    """Return whether a file of the snapshot is not as the wanted schema says."""
    if Definition.of(wanted) != Definition.of(context.schema):
        return True
    options = context.with_schema(wanted).options
    buckets = Bucketing.of(wanted, options).total_buckets

    def is_as_wanted(entry: ManifestEntry) -> bool:
        has_format = format_of(entry.file.file_name) == options.file_format(entry.file.level)
        return has_format and entry.total_buckets == buckets

    return not all(map(is_as_wanted, live_entries(context, base)))


def _is_same(wanted: TableSchema, schema: TableSchema) -> bool:
    options = {key: value for key, value in wanted.options.items() if key != REWRITTEN}
    known = {key: value for key, value in schema.options.items() if key not in (REWRITTEN, FENCE)}
    return (wanted.fields, wanted.primary_keys, options) == (schema.fields, schema.primary_keys, known)


def _check_only_compacted(context: TableContext, since: Snapshot, latest: Snapshot) -> None:
    """Raise CommitConflict if a snapshot after `since`, up to `latest`, changed rows."""
    for snapshot_id in range(since.id + 1, latest.id + 1):
        snapshot = context.snapshots.find(snapshot_id)
        if snapshot is None or (snapshot.commit_kind is not CommitKind.COMPACT and delta_entries(context, snapshot)):
            raise CommitConflict(
                f"{context.name}: another writer committed snapshot {snapshot_id} while the table was rewritten; try "
                "again"
            )


class _Copy:
    """The rows of a table in new files, under another schema.

    old: the table as its files were written. Its merge engine makes the rows.
    new: the table with the schema of the new files, whose merge engine is not applied: rows are copied.
    merges: apply it, as rows that were written under the new schema follow.
    """

    def __init__(self, old: TableContext, new: TableContext, *, merges: bool = False) -> None:
        self._old = old
        self._new = new
        self._merges = merges
        self._target = new.with_schema(_copying(new.schema, merges=merges))
        self._writer = TableWriter(
            self._target, replaces=True, in_full=True, compactor_factory=compact_manager_factory()
        )
        self._names = old.schema.names
        old_keys, new_keys = ({f.id for f in one.schema.select(one.schema.primary_keys)} for one in (old, new))
        self._is_unique = old_keys <= new_keys  # each row keeps a key of its own
        self._rows = 0
        self._messages: list[CommitMessage] = []

    def add_all(self, base: Snapshot, files: Set[Identity] | None = None) -> None:
        """Write the rows of a snapshot; files: only of these."""
        scan = TableScan(self._old, files=StateFiles.ALL)
        if files is not None:
            scan = replace(scan, keep_entry=lambda entry: entry.identity in files)
        splits = scan.plan(base)
        with counted("rewriting", sum(split.row_count for split in splits), "rows") as advance:
            for batch in SnapshotReader(self._old, self._names).read(splits):
                self._check_keys(batch)
                self._writer.write(self._converted(batch))
                self._rows += batch.num_rows
                advance(batch.num_rows)

    def add_newer(self, base: Snapshot, files: Set[Identity]) -> None:
        """Write the rows of these files, deletes too, which were written under the new schema."""
        scan = TableScan(self._new, keep_entry=lambda entry: entry.identity in files, files=StateFiles.ALL)
        columns = self._names if not self._new.schema.has_primary_key else (*self._names, KIND_COLUMN)
        for batch in SnapshotReader(self._new, columns).read(scan.plan(base)):
            self._writer.write(batch)

    def add_changes(self, before: Snapshot, after: Snapshot) -> None:
        """Write what is different in a later snapshot. The rows of the earlier one are written."""
        if _are_only_compactions(self._old, before, after):
            return
        if not self._old.schema.has_primary_key:
            self._append(before, after)
            return
        # A key may leave one row and go to another, so all rows that end are removed first.
        for retracts in (None,) if self._is_unique else (True, False):
            for changed in SnapshotDiff(self._old, before, after).rows():
                removed = is_retract(row_kinds(changed))
                batch = changed if retracts is None else changed.filter(pa.array(removed == retracts))
                removed = is_retract(row_kinds(batch))
                self._check_keys(batch)
                kinds = np.where(removed, np.int8(RowKind.DELETE), np.int8(RowKind.INSERT))
                rows = self._converted(batch.select(self._names))
                self._writer.write(rows.append_column(KIND_COLUMN, pa.array(kinds)))
                self._rows += batch.num_rows - 2 * int(np.count_nonzero(removed))

    def finished(self) -> list[CommitMessage]:
        """Return the new files: each key is in one of them, once. Raises BadInput if two rows got the same key."""
        self._messages = self._writer.prepare_commit(BATCH_COMMIT_IDENTIFIER)
        if self._old.schema.has_primary_key and not self._merges:
            written = sum(file.row_count for message in self._messages for file in message.increment.new_files)
            if written != self._rows:
                self.discard()
                raise self._collision(self._rows - written)
        return self._messages

    def discard(self) -> None:
        """Delete the files of `finished`."""
        TableCommit(self._target, new_commit_user(self._target.options)).abort(self._messages)
        self._messages = []

    def close(self) -> None:
        """Drop what `finished` did not return. May be called again."""
        self._writer.abort()

    def _append(self, before: Snapshot, after: Snapshot) -> None:
        """Write the rows of files that an append table got since."""
        added = set[str]()
        for snapshot_id in range(before.id + 1, after.id + 1):
            snapshot = self._old.snapshots.find(snapshot_id)
            if snapshot is not None and snapshot.commit_kind is CommitKind.COMPACT:
                continue
            entries = None if snapshot is None else delta_entries(self._old, snapshot)
            if entries is None or any(entry.kind is FileKind.DELETE for entry in entries):
                raise CommitConflict(f"{self._old.name}: rows were removed while the table was rewritten; try again")
            assert snapshot is not None
            added = {entry.file.file_name for entry in entries}
            scan = TableScan(self._old, keep_entry=lambda entry, names=added: entry.file.file_name in names)  # type: ignore[misc]
            for batch in SnapshotReader(self._old, self._names).read(scan.plan(snapshot)):
                self._writer.write(self._converted(batch))

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrow = self._new.schema.arrow
        columns = [pc.cast(batch.column(name), arrow.field(name).type) for name in self._names]
        return pa.RecordBatch.from_arrays(columns, names=list(self._names))

    def _check_keys(self, batch: pa.RecordBatch) -> None:
        """Raise BadInput for rows that have no value in a column of the new key."""
        if self._target.options.has_nullable_keys:
            return
        for name in self._new.schema.primary_keys:
            column = batch.column(name)
            if column.null_count:
                rows = batch.filter(pc.is_null(column))
                raise BadInput(
                    f"{self._new.name}: {name!r} can't be a column of the key, as it is null in rows: "
                    f"{self._shown(pa.Table.from_batches([rows]))}. Nothing was changed. Update or delete them "
                    f"first: both take the condition {name} IS NULL"
                )

    def _collision(self, missing: int) -> BadInput:
        """Return the error for rows that got the key of another one; raise CommitConflict if there are none now."""
        keys = list(self._new.schema.primary_keys)
        latest = self._old.snapshots.latest()
        columns = tuple(dict.fromkeys([*keys, *self._old.schema.primary_keys]))
        splits = TableScan(self._old, files=StateFiles.ALL).plan(latest)
        rows = pa.Table.from_batches(
            list(SnapshotReader(self._old, columns).read(splits)), SnapshotReader(self._old, columns).schema
        )
        counts = rows.select(keys).append_column("n", pa.array(np.ones(rows.num_rows, np.int64)))
        several = counts.group_by(keys).aggregate([("n", "sum")]).filter(pc.field("n_sum") > 1).select(keys)
        if not several.num_rows:
            raise CommitConflict(
                f"{self._new.name}: rows with equal keys were removed while it was rewritten; try again"
            )
        examples = rows.join(several.slice(0, _SHOWN), keys, join_type="left semi")
        return BadInput(
            f"{self._new.name}: ({', '.join(keys)}) can't be the key, as {missing} rows have the key of another row: "
            f"{self._shown(examples.sort_by([(name, 'ascending') for name in columns]))}. Nothing was changed. Name "
            "more columns, or delete the rows that are too many"
        )

    def _shown(self, rows: pa.Table) -> str:
        names = list(dict.fromkeys([*self._old.schema.primary_keys, *self._new.schema.primary_keys]))
        texts = [
            "(" + ", ".join(f"{name} = {value!r}" for name, value in row.items()) + ")"
            for row in rows.select(names).slice(0, _SHOWN).to_pylist()
        ]
        return ", ".join(texts) + (" and others" if rows.num_rows > _SHOWN else "")


def _are_only_compactions(context: TableContext, before: Snapshot, after: Snapshot) -> bool:
    try:
        _check_only_compacted(context, before, after)
    except CommitConflict:
        return False
    return True


def _copying(schema: TableSchema, *, merges: bool) -> TableSchema:
    """Return the schema under which rows are only copied: nothing is filled in, or left out, and only with `merges`
    something is merged.
    """
    options = {
        key: value
        for key, value in schema.options.items()
        if key not in (_NOT_WHILE_MERGING if merges else _NOT_WHILE_COPYING)
        and (merges or key.endswith(".stats-mode") or not key.startswith(_FAMILIES_NOT_WHILE_COPYING))
    }
    return replace(schema, options=options, fields=tuple(replace(f, default=None) for f in schema.fields))


def _swap(rewritten: TableContext, messages: Sequence[CommitMessage], base: Snapshot) -> int | None:
    def unless_written(_: Sequence[Snapshot]) -> None:
        latest = rewritten.snapshots.latest()
        if latest is not None:
            _check_only_compacted(rewritten, base, latest)

    commit = TableCommit(rewritten, new_commit_user(rewritten.options), guard=unless_written)
    try:
        return commit.overwrite(Committable(BATCH_COMMIT_IDENTIFIER, messages), dynamic=False)
    except CommitConflict:
        commit.abort(messages)
        raise
