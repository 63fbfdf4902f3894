"""Tags made, replaced, renamed and deleted, whatever expires meanwhile.

Who makes a tag writes it, then looks whether its snapshot is still kept; who expires moves the hint EARLIEST, then
looks for new tags (`storage.expire.snapshot_expiry`). So one of them sees the other. Who deletes a tag removes it, and
then looks for what else names its files.

Source: Java `utils/TagManager.java`, `operation/TagDeletion.java`, `tag/TagTimeExpire.java`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from storage.clock import epoch_ms
from storage.errors import BadInput, SnapshotExpired
from storage.expire.branch_files import BranchFiles
from storage.expire.deletion_plan import DeletionPlan, DeletionPlanner
from storage.expire.retained_states import all_branches, state_lists
from storage.maintenance.success_file import write_success_file
from storage.manifests.manifest_store import ManifestStore
from storage.options.maintenance_options import TagCreation
from storage.snapshots.snapshot import Snapshot
from storage.snapshots.tag_periods import TagPeriod
from storage.snapshots.tags import Tag, tagged_snapshots
from storage.table import TableContext


def create_tag(
    context: TableContext,
    name: str,
    snapshot_id: int | None = None,
    retained: timedelta | None = None,
    now: Callable[[], datetime] = datetime.now,
) -> Snapshot:
    """snapshot_id: None is the latest; one that expired may be named while another tag keeps it.
    retained: after this time `expire_tags` deletes it; None is never.

    Raises BadInput for a name that is taken and a snapshot that is not there, SnapshotExpired if it was deleted
    meanwhile.
    """
    snapshot = snapshot_to_keep(context, snapshot_id)
    _check_automatic_name(context, name, snapshot)
    context.tags.create(name, snapshot, retained=retained, now=now())
    if not is_kept(context, snapshot, but_tag=name):
        context.io.delete(context.paths.tag(name))
        raise SnapshotExpired(context.name, snapshot.id, f"it expired while tag {name!r} was made")
    if context.options.tag_create_success_file:
        write_success_file(context.io, context.paths.tag_success_file(name), epoch_ms())
    return snapshot


def replace_tag(
    context: TableContext,
    name: str,
    snapshot_id: int | None = None,
    retained: timedelta | None = None,
    now: Callable[[], datetime] = datetime.now,
) -> Snapshot:
    """The same name for another snapshot; files that only the old one kept go. Raises BadInput when there is none."""
    tags = context.tags
    old = tags.tag(name)
    snapshot = snapshot_to_keep(context, snapshot_id)
    tags.replace(name, snapshot, retained=retained, now=now())
    if not is_kept(context, snapshot, but_tag=name):
        tags.replace(name, old.snapshot, retained=old.retained, now=old.created_at or now())
        raise SnapshotExpired(context.name, snapshot.id, f"it expired while tag {name!r} was replaced")
    if old.snapshot != snapshot:
        _delete_unnamed(context, old.snapshot)
    return snapshot


def rename_tag(context: TableContext, name: str, new_name: str) -> None:
    """A crash in between leaves both names."""
    tags = context.tags
    old = tags.tag(name)
    tags.create(new_name, old.snapshot, retained=old.retained, now=old.created_at or datetime.now())
    context.io.delete(context.paths.tag(name))


def delete_tag(context: TableContext, name: str) -> DeletionPlan:
    """Returns what went with it: files that nothing else names. Raises BadInput when there is no such tag."""
    tag = context.tags.tag(name)
    context.io.delete(context.paths.tag(name))
    if context.options.tag_create_success_file:
        context.io.delete(context.paths.tag_success_file(name))
    return _delete_unnamed(context, tag.snapshot)


def _check_automatic_name(context: TableContext, name: str, snapshot: Snapshot) -> None:
    """One snapshot has at most one tag of the table's schedule. Raises BadInput."""
    if context.options.tag_creation not in (TagCreation.PROCESS_TIME, TagCreation.WATERMARK):
        return
    period, store = TagPeriod.of(context.options), context.tags
    if period.time_of(name) is None:
        return
    for other in store.names():
        if other != name and period.time_of(other) is not None and store.get(other).id == snapshot.id:
            raise BadInput(
                f"{context.name}: snapshot {snapshot.id} has the automatic tag {other!r}, so {name!r}, which is named "
                "like one, can't stand for it too; choose a name that is no date"
            )


def overdue_tags(context: TableContext, older_than: datetime | None = None, *, now: datetime) -> list[Tag]:
    """Tags whose time is over. older_than: also tags without one that were made before; local time.

    Of those, Java asks the file for its time.
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
        except BadInput:  # deleted concurrently
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
    """Raises BadInput for one that is not there, SnapshotExpired for one that began to expire."""
    if snapshot_id is None:
        latest = context.snapshots.latest()
        if latest is None:
            raise BadInput(f"{context.name} has no snapshot yet; commit something first")
        return latest
    found = context.snapshots.find(snapshot_id)
    tagged = [s for s in tagged_snapshots(context.io, context.paths) if s.id == snapshot_id] if found is None else []
    if found is None and not tagged:
        earliest, latest_id = context.snapshots.earliest_id(), context.snapshots.latest_id()
        there = "there is none" if latest_id is None else f"there are {earliest} to {latest_id}"
        raise BadInput(f"{context.name} has no snapshot {snapshot_id}: {there}")
    snapshot = found or tagged[0]
    if not is_kept(context, snapshot):  # an expiry that died left its file; others of its files may be gone
        raise SnapshotExpired(context.name, snapshot.id, "its expiry has begun")
    return snapshot


def is_kept(context: TableContext, snapshot: Snapshot, *, but_tag: str | None = None) -> bool:
    """By itself, not having begun to expire, or by a tag other than but_tag."""
    store = context.snapshots
    hint = store.earliest_hint()
    if store.find(snapshot.id) == snapshot and (hint is None or hint <= snapshot.id or not store.exists(hint)):
        return True
    tags = context.tags
    for name in tags.names():
        try:
            if name != but_tag and tags.get(name) == snapshot:
                return True
        except BadInput:  # deleted concurrently
            continue
    return False


def _delete_unnamed(context: TableContext, snapshot: Snapshot) -> DeletionPlan:
    """Files of a snapshot that neither a snapshot, nor a tag, nor a changelog of any branch names."""
    if is_kept(context, snapshot):
        return DeletionPlan()
    manifests = context.shared(ManifestStore)
    planner = DeletionPlanner(context, manifests)
    plan = DeletionPlan(planner.live_data(snapshot))
    kept: set[str] = set()
    planner.lists(state_lists(snapshot), kept, plan)
    planner.index(snapshot, kept, plan)
    for branch in all_branches(context.io, context.paths):
        files = BranchFiles(context, manifests, context.paths.for_branch(branch))
        files.refresh()
        plan.retain(files.referenced(plan.candidates()))
    plan.delete(context.io, lambda: False)
    return plan
