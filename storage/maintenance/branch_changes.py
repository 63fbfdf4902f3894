"""Creates and deletes branches, and fast-forwards the main branch.

A branch has its own snapshots, schemas and tags. It shares data, manifests and index files with other branches.

Source: Java `utils/FileSystemBranchManager.java`.
"""

from __future__ import annotations

from contextlib import suppress

from tidelake.errors import BadInput, CommitConflict, SnapshotExpired
from tidelake.storage.commit.iceberg.publication import refresh_iceberg_metadata
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.maintenance.rollback import forget_expired_states, forget_later_states
from tidelake.storage.maintenance.tag_changes import is_kept, snapshot_to_keep
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.paths import check_branch_name
from tidelake.storage.model.schema.schema_store import SchemaStore
from tidelake.storage.model.snapshots.branches import branch_names
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore
from tidelake.storage.model.snapshots.tags import TagStore
from tidelake.storage.model.table import TableContext


def create_branch(
    context: TableContext, name: str, *, tag: str | None = None, snapshot_id: int | None = None
) -> Snapshot | None:
    """Create a branch from a tag or a snapshot of this branch. With neither it is empty and has the newest schema.

    A claim file reserves the name until the branch is complete: if two processes create the branch at once, one of them
    succeeds, and the branch is never a mix of both. Schemas are written last: a branch with a claim that lacks some
    can't be opened. After an error the branch is removed again, if possible; a process that is killed leaves it.

    Returns the first snapshot of the branch. Raises BadInput for a name that is taken. Raises SnapshotExpired if the
    first snapshot was deleted meanwhile; the branch is then not created.
    """
    check_branch_name(name)
    if tag is not None and snapshot_id is not None:
        raise BadInput("a branch is created from a tag or from a snapshot; pass only one of them")
    taken = BadInput(f"{context.name} already has a branch {name!r}; choose another name, or delete it first")
    if name in branch_names(context.io, context.paths):
        raise taken
    first = None
    if tag is not None:
        first = context.tags.get(tag)
    elif snapshot_id is not None:
        first = snapshot_to_keep(context, snapshot_id)
    newest_schema = context.schemas.latest_id() if first is None else first.schema_id
    target = context.paths.for_branch(name)
    io, claim = context.io, context.paths.branch_claim(name)
    if not io.create_if_absent(claim, b""):
        raise taken
    if len(io.list_directory(target.branch_root(name))) > 1:  # another process had created it before the claim
        io.delete(claim)
        raise taken
    try:
        if first is not None:
            io.create_if_absent(target.snapshot(first.id), first.to_json().encode())
            if tag is not None:
                io.create_if_absent(target.tag(tag), io.read(context.paths.tag(tag)))
            if not is_kept(context, first):
                raise SnapshotExpired(context.name, first.id, f"it expired while branch {name!r} was created")
        for schema_id in sorted(context.schemas.ids()):
            if newest_schema is None or schema_id <= newest_schema:
                io.create_if_absent(target.schema(schema_id), io.read(context.paths.schema(schema_id)))
        io.delete(claim)
    except Exception:
        with suppress(OSError):
            io.delete_directory(target.branch_root(name))
        raise
    return first


def delete_branch(context: TableContext, name: str) -> None:
    """Delete the snapshots, schemas and tags of a branch.

    Data files of this branch alone become orphans: see `tidelake.storage.maintenance.orphans`.

    Raises BadInput if the branch doesn't exist, or is the fallback branch of the table.
    """
    _check_other_branch(context, name)
    if context.options.get("scan.fallback-branch") == name:
        raise BadInput(f"{context.name} reads from branch {name!r} (option scan.fallback-branch); unset that first")
    context.io.delete_directory(context.paths.branch_root(name))


def rename_branch(context: TableContext, name: str, new_name: str) -> None:
    """Rename a branch. Stop its writers and readers first. Atomic on local disks only.

    Raises BadInput if the branch doesn't exist, is the fallback branch, or the new name is taken.
    """
    check_branch_name(new_name)
    _check_other_branch(context, name)
    if context.options.get("scan.fallback-branch") == name:
        raise BadInput(f"{context.name} reads from branch {name!r} (option scan.fallback-branch); unset that first")
    if new_name in branch_names(context.io, context.paths):
        raise BadInput(f"{context.name} already has a branch {new_name!r}; choose another name")
    context.io.rename_directory(context.paths.branch_root(name), context.paths.branch_root(new_name))


def fast_forward(context: TableContext, name: str) -> Snapshot:
    """Replace the states of this branch by those of another branch.

    States from the first snapshot of the other branch on are replaced by its snapshots, tags and schemas. Older
    snapshots stay if the other branch was created from them; they are deleted if a third branch replaced them since.
    Stop the writers of this branch first.

    Steps:
    1. Delete snapshots whose expiry has begun, and those of a third branch.
    2. Delete later states, newest first.
    3. Copy schemas, then snapshots, oldest first, then tags.
    A crash leaves an older state of this branch or of the other one; the same call then continues.

    Returns the newest snapshot. Raises BadInput if snapshots in between would be missing, CommitConflict if another
    writer commits meanwhile.
    """
    _check_other_branch(context, name)
    source, io = context.paths.for_branch(name), context.io
    theirs = SnapshotStore(io, source)
    earliest, latest = theirs.earliest_id(), theirs.latest_id()
    if earliest is None or latest is None:
        raise BadInput(f"branch {name!r} of {context.name} has no snapshot, so there is nothing to fast-forward to")
    schemas = SchemaStore(io, source)
    if not {0, theirs.get(earliest).schema_id} <= set(schemas.ids()):
        raise BadInput(
            f"branch {name!r} of {context.name} was not created completely: it lacks schemas. Delete it, and create "
            "it again"
        )
    own_latest = context.snapshots.latest_id()
    if own_latest is not None and own_latest < earliest - 1:
        raise BadInput(
            f"{context.name} ends with snapshot {own_latest}, but branch {name!r} begins with {earliest}: the "
            "snapshots in between have expired. Write to the branch, or copy its rows"
        )
    if not _is_same(context.snapshots.find(earliest), theirs.get(earliest)):
        # Another branch has replaced this one since: the snapshots below belong to that history. They count as expired.
        context.snapshots.hint_earliest(earliest)
    forget_expired_states(context)
    forget_later_states(context, earliest - 1)
    for schema_id in schemas.ids():
        _put(io, context.paths.schema(schema_id), io.read(source.schema(schema_id)))
    newest_schema = max(schemas.ids())
    for schema_id in SchemaStore(io, context.paths).ids():
        if schema_id > newest_schema:
            io.delete(context.paths.schema(schema_id))
    hint = context.snapshots.earliest_hint()
    if hint is not None and hint > earliest:  # snapshots that expired only here come back
        context.snapshots.hint_earliest(earliest)
    for snapshot_id in range(earliest, latest + 1):
        data = io.read(source.snapshot(snapshot_id))
        if not io.create_if_absent(context.paths.snapshot(snapshot_id), data):
            raise CommitConflict(
                f"{context.name}: another process committed snapshot {snapshot_id}. Stop writers, try again"
            )
    for tag in TagStore(io, source).names():
        _put(io, context.paths.tag(tag), io.read(source.tag(tag)))
    context.snapshots.hint_latest(latest)
    # Opened again, because other schemas may have the ids of those that this context knows.
    refresh_iceberg_metadata(TableContext.open(io, context.location, context.name, branch=context.branch))
    return theirs.get(latest)


def _is_same(own: Snapshot | None, theirs: Snapshot) -> bool:
    """Return whether the branch began with this snapshot, as far as that is known. A rollback removes its changelog."""
    lists = (theirs.base_manifest_list, theirs.delta_manifest_list)
    return own is None or (own.base_manifest_list, own.delta_manifest_list) == lists


def _put(io: FileIO, path: str, data: bytes) -> None:
    """Write the file as a whole, and replace an existing one."""
    if not io.create_if_absent(path, data) and io.read(path) != data:
        io.delete(path)
        io.create_if_absent(path, data)


def _check_other_branch(context: TableContext, name: str) -> None:
    check_branch_name(name)
    names = branch_names(context.io, context.paths)
    if name not in names:
        raise BadInput(f"{context.name} has no branch {name!r}; its branches are: {', '.join(names) or 'none'}")
    if name in (context.branch, DEFAULT_BRANCH):
        raise BadInput(f"branch {name!r} is the opened branch; open another branch, or {context.name} itself")
