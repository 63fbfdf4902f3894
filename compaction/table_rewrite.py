"""Rewrites all rows of a table for wider columns of its key, which files of other types can't be merged with.

1. The table is compacted fully: no key is in two files, so that readers need not merge. *Crash: the old table.*
2. The rows are written to new files, under a schema that is not published. *Crash: orphan files; the old table.*
3. The schema is published. *Crash: the old rows, cast when they are read; `finish_rewrite` continues.*
4. One OVERWRITE snapshot replaces the old files by the new ones. It has no changelog, as no row changes: followers
   continue, and tags and older snapshots keep their own schema.

Writers that were opened before can't commit any more: `ConflictCheck` refuses rows with keys of another type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.table_compaction import compact
from tidelake.errors import CommitConflict, UnsupportedFeature
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.manifests.snapshot_files import entries_with_other_keys, live_entries, may_have_other_keys
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.ddl.schema_changes import UpdateColumnType, apply_changes
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import newest_live_entries
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.write.table_writer import TableWriter

ATTEMPTS: Final = 5  # others may commit rows meanwhile

Publish = Callable[[Sequence[UpdateColumnType]], TableSchema]
"""Publishes the table's next schema, and returns it."""


def rewrite_table(context: TableContext, changes: Sequence[UpdateColumnType], publish: Publish) -> int | None:
    """Change the types of key columns, and rewrite all rows. Returns the id of the new snapshot.

    None: the table has no rows, so nothing was rewritten.

    changes: with `rewrites_keys`.
    publish: alters the table in its catalog.

    Raises BadInput for a change that is impossible, CommitConflict if others repeatedly wrote meanwhile.
    """
    if bucket_mode(context.schema, context.options) is BucketMode.POSTPONE:
        raise UnsupportedFeature(
            f"{context.name}: bucket = -2", "rows that wait for buckets can't be rewritten", "Create another table"
        )
    has_snapshots = context.snapshots.latest() is not None
    schema = apply_changes(context.schema, changes, has_snapshots=has_snapshots, time_ms=epoch_ms())
    if schema.has_same_keys(context.schema):
        return None
    compact(context, CompactionRequest(full=True))
    base = context.snapshots.latest()
    if base is None:
        publish(changes)
        return None
    context.schemas.expect(schema)
    wide = context.with_schema(schema)
    messages = _written(wide, context, base)
    try:
        published = publish(changes)
    except BaseException:
        TableCommit(wide, new_commit_user(wide.options)).abort(messages)
        raise
    finally:
        context.schemas.forget(schema.id)  # the published version has another time
    wide = context.with_schema(published)
    try:
        if (published.id, published.fields) == (schema.id, schema.fields):
            return _swap(wide, messages, base)
        TableCommit(wide, new_commit_user(wide.options)).abort(messages)
    except CommitConflict:
        pass
    return finish_rewrite(wide)


def is_unfinished(context: TableContext) -> bool:
    """Return whether a rewrite of the table published its schema, but not its rows."""
    return may_have_other_keys(context) and bool(entries_with_other_keys(context, newest_live_entries(context)))


def finish_rewrite(context: TableContext) -> int | None:
    """Rewrite all rows under the table's schema, after a rewrite that published only its schema.

    Raises CommitConflict if others repeatedly wrote meanwhile.
    """
    for attempt in range(1, ATTEMPTS + 1):
        base = context.snapshots.latest()
        assert base is not None, "its files were seen"
        old = context.with_schema(_with_keys_of_files(context, base))
        messages = _written(context, old, base)
        try:
            return _swap(context, messages, base)
        except CommitConflict:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _with_keys_of_files(context: TableContext, base: Snapshot) -> TableSchema:
    """Return the table's schema with the key types of the files of a snapshot.

    Other columns are those of today: the table may have been altered since.
    """
    old = entries_with_other_keys(context, live_entries(context, base))
    schema_id = max((entry.file.schema_id for entry in old), default=context.schema.id)
    before, schema = context.schemas.get(schema_id).by_id, context.schema
    fields = (replace(f, type=before[f.id].type) if f.name in schema.primary_keys else f for f in schema.fields)
    return replace(schema, fields=tuple(fields))


def _written(wide: TableContext, old: TableContext, base: Snapshot) -> list[CommitMessage]:
    """Write the rows of a snapshot under the new schema. They are read under the old one, whose keys they have."""
    writer = TableWriter(wide, replaces=True)
    try:
        for batch in SnapshotReader(old, tuple(old.schema.names)).read(TableScan(old).plan(base)):
            writer.write(batch.cast(wide.schema.arrow))
        return writer.prepare_commit(BATCH_COMMIT_IDENTIFIER)
    finally:
        writer.abort()


def _swap(wide: TableContext, messages: Sequence[CommitMessage], base: Snapshot) -> int | None:
    def unless_written(since: Sequence[Snapshot]) -> None:
        latest_id = wide.snapshots.latest_id() or base.id
        if latest_id != base.id:
            raise CommitConflict(f"{wide.name}: another writer committed while the table was rewritten; try again")

    commit = TableCommit(wide, new_commit_user(wide.options), guard=unless_written)
    try:
        return commit.overwrite(Committable(BATCH_COMMIT_IDENTIFIER, messages), dynamic=False)
    except CommitConflict:
        commit.abort(messages)
        raise
