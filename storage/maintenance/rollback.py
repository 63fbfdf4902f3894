"""Rolls a table back to an older state. Later states are forgotten: their files become orphans.

Stop writers first: snapshot ids are used again, and a reader that is ahead fails.

Source: Java `table/AbstractFileStoreTable.java` (rollbackTo), `table/RollbackHelper.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidelake.errors import BadInput, SnapshotExpired
from tidelake.storage.base.arguments import check_whole_number
from tidelake.storage.base.clock import datetime_in_ms
from tidelake.storage.commit.iceberg.publication import refresh_iceberg_metadata
from tidelake.storage.commit.manifests.snapshot_files import may_have_older_files
from tidelake.storage.maintenance.tag_changes import is_kept, snapshot_to_keep
from tidelake.storage.model.definition import Definition
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class LaterStates:
    """The states after a given one: ids of snapshots and changelogs, and names of tags."""

    snapshots: Sequence[int]
    changelogs: Sequence[int]
    tags: Sequence[str]


def rollback_target(
    context: TableContext, snapshot: int | None, tag: str | None, as_of: datetime | int | None, watermark: int | None
) -> Snapshot:
    """Return the snapshot to roll back to. The arguments are those of `Table.rollback`. Raises BadInput."""
    if sum(selector is not None for selector in (snapshot, tag, as_of, watermark)) != 1:
        raise BadInput("rollback() takes one of snapshot, tag, as_of and watermark")
    if tag is not None:
        return context.tags.get(tag)
    if snapshot is not None:
        check_whole_number("rollback(snapshot=…)", snapshot, at_least=1)
        return snapshot_to_keep(context, snapshot)
    if watermark is not None:
        return _at_watermark(context, watermark)
    time_ms = datetime_in_ms(as_of) if isinstance(as_of, datetime) else as_of
    found = None if time_ms is None else context.snapshots.as_of(time_ms)
    if found is None:
        raise BadInput(f"{context.name} has no snapshot that was committed at {as_of} or earlier")
    return found


def later_states(context: TableContext, snapshot_id: int) -> LaterStates:
    tags = [name for name, tagged in context.tags.all().items() if tagged.id > snapshot_id]
    return LaterStates(
        [i for i in context.snapshots.ids() if i > snapshot_id],
        [i for i in context.changelogs.ids() if i > snapshot_id],
        tags,
    )


def roll_back(context: TableContext, target: Snapshot) -> LaterStates:
    """Roll back to a snapshot. Returns the states that were deleted. An expired snapshot that a tag keeps is restored.

    Steps:
    1. Write the file of the snapshot.
    2. Write the hint EARLIEST.
    3. Delete later tags, changelogs and snapshots, newest first.
    4. Write the hint LATEST.
    A crash in between leaves newer states; the same call then continues.
    """
    context.identity.check_before_change()
    _check_definition(context, target)
    store = context.snapshots
    if not is_kept(context, target):
        raise SnapshotExpired(context.name, target.id, "its expiry has begun, and no tag keeps it")
    if not store.exists(target.id):
        store.publish(_without_expired_changelog(context, target))
    hint = store.earliest_hint()
    if hint is not None and hint > target.id:
        store.hint_earliest(target.id)
    discarded = forget_later_states(context, target.id)
    refresh_iceberg_metadata(context)
    return discarded


def forget_later_states(context: TableContext, snapshot_id: int) -> LaterStates:
    """Delete the states after snapshot_id, newest first. 0 deletes all."""
    discarded, io, paths = later_states(context, snapshot_id), context.io, context.paths
    context.snapshots.settle_hint()  # a commit's hint that arrives later would name a deleted snapshot
    io.delete(paths.latest_hint)
    for tag in discarded.tags:
        io.delete(paths.tag(tag))
    for changelog_id in sorted(discarded.changelogs, reverse=True):
        io.delete(paths.changelog(changelog_id))
    if discarded.changelogs:
        io.delete(paths.changelog_latest_hint)
    for later in sorted(discarded.snapshots, reverse=True):
        io.delete(paths.snapshot(later))
    if context.snapshots.exists(snapshot_id):
        context.snapshots.hint_latest(snapshot_id)
    return discarded


def forget_expired_states(context: TableContext) -> None:
    """Delete the snapshots whose expiry has begun, oldest first.

    If all other snapshots were deleted, they would be read again, though their files are gone.
    """
    hint = context.snapshots.earliest_hint()
    if hint is not None and context.snapshots.exists(hint):
        for snapshot_id in sorted(context.snapshots.ids()):
            if snapshot_id < hint:
                context.io.delete(context.paths.snapshot(snapshot_id))


def _check_definition(context: TableContext, target: Snapshot) -> None:
    """Raise BadInput if the table was rewritten since: its schema doesn't fit the files of the snapshot."""
    if target.schema_id == context.schema.id or not may_have_older_files(context):
        return
    if Definition.of(context.schemas.get(target.schema_id)) != Definition.of(context.schema):
        raise BadInput(
            f"{context.name} can't be rolled back to snapshot {target.id}: the table was rewritten since, with another "
            "key, other buckets or another merge engine. Its rows can be read (as of the snapshot or its tag), and "
            f"`tidelake table clone {context.name} NEW --snapshot {target.id}` makes them a table of their own"
        )


def _at_watermark(context: TableContext, watermark_ms: int) -> Snapshot:
    latest = context.snapshots.latest()
    for snapshot in context.snapshots.backwards_from(latest) if latest is not None else ():
        if snapshot.watermark is not None and snapshot.watermark <= watermark_ms:
            return snapshot
    raise BadInput(f"{context.name} has no snapshot with a watermark of {watermark_ms} or earlier")


def _without_expired_changelog(context: TableContext, tagged: Snapshot) -> Snapshot:
    """Return the tagged snapshot, without its changelog if the changelog's files have expired.

    A reader of changes would look for these files.
    """
    name = tagged.changelog_manifest_list
    if name is None or context.io.exists(context.paths.manifest(name)):
        return tagged
    return replace(tagged, changelog_manifest_list=None, changelog_manifest_list_size=None, changelog_record_count=None)
