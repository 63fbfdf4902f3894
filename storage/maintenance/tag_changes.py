"""Creates, replaces, renames and deletes tags while snapshots expire.

A process that creates a tag writes it, and then checks whether its snapshot is still kept. An expiry moves the hint
EARLIEST, and then looks for new tags (`tidelake.storage.commit.expire.snapshot_expiry`). So one of the two sees the
other. A process that deletes a tag removes it, and then looks for other references to its files.

Source: Java `utils/TagManager.java`, `operation/TagDeletion.java`, `tag/TagTimeExpire.java`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from tidelake.errors import BadInput, CorruptFile, SnapshotExpired
from tidelake.storage.base import env
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.expire.branch_files import BranchFiles
from tidelake.storage.commit.expire.deletion_plan import DeletionPlan, DeletionPlanner
from tidelake.storage.commit.expire.retained_states import all_branches, state_lists
from tidelake.storage.commit.iceberg.publication import refresh_iceberg_metadata
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.maintenance.partition_done import write_success_file
from tidelake.storage.model.options.maintenance_options import TagCreation
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.tags import Tag, TagPeriod, tagged_snapshots
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)


def create_tag(
    context: TableContext,
    name: str,
    snapshot_id: int | None = None,
    retained: timedelta | None = None,
    now: Callable[[], datetime] = lambda: env.local_now(),
) -> Snapshot:
    """Create a tag for a snapshot, and return the snapshot.

    snapshot_id: None is the latest. An expired snapshot is allowed if another tag keeps it.
    retained: `expire_tags` deletes the tag after this time. None is never.

    Raises BadInput if the name is taken or the snapshot doesn't exist, SnapshotExpired if it was deleted meanwhile.
    """
    snapshot = snapshot_to_keep(context, snapshot_id)
    _check_automatic_name(context, name, snapshot)
    context.tags.create(name, snapshot, retained=retained, now=now())
    if not is_kept(context, snapshot, except_tag=name):
        context.io.delete(context.paths.tag(name))
        raise SnapshotExpired(context.name, snapshot.id, f"it expired while tag {name!r} was created")
    if context.options.tag_create_success_file:
        write_success_file(context.io, context.paths.tag_success_file(name), epoch_ms())
    refresh_iceberg_metadata(context)
    return snapshot


def replace_tag(
    context: TableContext,
    name: str,
    snapshot_id: int | None = None,
    retained: timedelta | None = None,
    now: Callable[[], datetime] = lambda: env.local_now(),
) -> Snapshot:
    """Move a tag to another snapshot, and return the snapshot. Files that only the old tag kept are deleted.

    Raises BadInput if the tag or the snapshot doesn't exist.
    """
    tags = context.tags
    old = tags.tag(name)
    snapshot = snapshot_to_keep(context, snapshot_id)
    tags.replace(name, snapshot, retained=retained, now=now())
    if not is_kept(context, snapshot, except_tag=name):
        tags.replace(name, old.snapshot, retained=old.retained, now=old.created_at or now())
        raise SnapshotExpired(context.name, snapshot.id, f"it expired while tag {name!r} was replaced")
    refresh_iceberg_metadata(context)
    if old.snapshot != snapshot:
        _delete_unnamed(context, old.snapshot)
    return snapshot


def rename_tag(context: TableContext, name: str, new_name: str) -> None:
    """Rename a tag. A crash in between leaves both names."""
    tags = context.tags
    old = tags.tag(name)
    tags.create(new_name, old.snapshot, retained=old.retained, now=old.created_at or env.local_now())
    context.io.delete(context.paths.tag(name))
    refresh_iceberg_metadata(context)


def delete_tag(context: TableContext, name: str) -> DeletionPlan:
    """Delete a tag, and the files that nothing else names. Returns these files.

    Raises BadInput if the tag doesn't exist.
    """
    tag = context.tags.tag(name)
    context.io.delete(context.paths.tag(name))
    if context.options.tag_create_success_file:
        context.io.delete(context.paths.tag_success_file(name))
    refresh_iceberg_metadata(context)
    return _delete_unnamed(context, tag.snapshot)


def _check_automatic_name(context: TableContext, name: str, snapshot: Snapshot) -> None:
    """Raise BadInput if the snapshot would get a second tag that is named like those of the table's schedule."""
    if context.options.tag_creation not in (TagCreation.PROCESS_TIME, TagCreation.WATERMARK):
        return
    period, store = TagPeriod.of(context.options), context.tags
    if period.time_of(name) is None:
        return
    for other in store.names():
        if other != name and period.time_of(other) is not None and store.get(other).id == snapshot.id:
            raise BadInput(
                f"{context.name}: snapshot {snapshot.id} already has the automatic tag {other!r}, and {name!r} has "
                "the name of an automatic tag, too; choose a name that is not a date"
            )


def overdue_tags(context: TableContext, older_than: datetime | None = None, *, now: datetime) -> list[Tag]:
    """Return the tags whose retention has ended.

    older_than: also return tags without a retention whose file is older than this. Local time.

    For tags without a retention, Java compares the time of the file, too.
    """
    store = context.tags
    made_at = {
        entry.name: datetime.fromtimestamp(entry.modified_ms / 1000)
        for entry in context.io.list_directory(context.paths.tag_directory)
    }
    found = []
    for name in store.names():
        try:
            tag = store.tag(name)
        except BadInput:  # another process deleted it
            continue
        file_time = made_at.get(context.paths.tag(name).rpartition("/")[2])
        if tag.created_at is not None and tag.retained is not None:
            is_over = tag.created_at + tag.retained < now
        else:
            is_over = older_than is not None and file_time is not None and file_time < older_than
        if is_over:
            found.append(tag)
    return found


def snapshot_to_keep(context: TableContext, snapshot_id: int | None) -> Snapshot:
    """Return the snapshot, or the latest one for None.

    Raises BadInput if it doesn't exist, SnapshotExpired if its expiry has begun.
    """
    if snapshot_id is None:
        latest = context.snapshots.latest()
        if latest is None:
            raise BadInput(f"{context.name} has no snapshot yet; commit something first")
        return latest
    found = context.snapshots.find(snapshot_id)
    tagged = [s for s in tagged_snapshots(context.io, context.paths) if s.id == snapshot_id] if found is None else []
    if found is None and not tagged:
        earliest, latest_id = context.snapshots.earliest_id(), context.snapshots.latest_id()
        available = "the table has no snapshot" if latest_id is None else f"its snapshots are {earliest} to {latest_id}"
        raise BadInput(f"{context.name} has no snapshot {snapshot_id}: {available}")
    snapshot = found or tagged[0]
    if not is_kept(context, snapshot):  # an expiry that crashed left the snapshot's file; other files may be deleted
        raise SnapshotExpired(context.name, snapshot.id, "its expiry has begun")
    return snapshot


def is_kept(context: TableContext, snapshot: Snapshot, *, except_tag: str | None = None) -> bool:
    """Return whether the snapshot exists and its expiry has not begun, or a tag other than except_tag keeps it."""
    store = context.snapshots
    hint = store.earliest_hint()
    if store.find(snapshot.id) == snapshot and (hint is None or hint <= snapshot.id or not store.exists(hint)):
        return True
    tags = context.tags
    for name in tags.names():
        try:
            if name != except_tag and tags.get(name) == snapshot:
                return True
        except BadInput:  # another process deleted it
            continue
    return False


def _delete_unnamed(context: TableContext, snapshot: Snapshot) -> DeletionPlan:
    """Delete the files of a snapshot that no snapshot, tag or changelog of any branch names. Returns them."""
    if is_kept(context, snapshot):
        return DeletionPlan()
    manifests = context.shared(ManifestStore)
    planner = DeletionPlanner(context, manifests)
    try:
        plan = DeletionPlan(planner.live_data(snapshot))
    except CorruptFile as error:
        # The tag was made too late: its snapshot's expiry had begun. It must be possible to delete such a tag, too.
        _log.warning("files of a deleted tag stay, for the orphan cleaner", table=context.name, error=str(error))
        return DeletionPlan()
    kept: set[str] = set()
    planner.lists(state_lists(snapshot), kept, plan)
    planner.index(snapshot, kept, plan)
    for branch in all_branches(context.io, context.paths):
        files = BranchFiles(context, manifests, context.paths.for_branch(branch))
        files.refresh()
        plan.retain(files.referenced(plan.candidates()))
    plan.delete(context.io, lambda: False)
    return plan
