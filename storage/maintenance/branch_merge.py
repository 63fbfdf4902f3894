"""Adds the rows that were added on one branch to another branch. The branches share the files; none is copied.

This works for append tables only, and only if all commits on both sides since the branches parted were appends.
Otherwise the rows of a file that one side compacted would be there twice. Java demands this from snapshot 1 on; here a
snapshot that both branches have is enough.

Source: Java `utils/FileSystemBranchManager.mergeBranch`, `utils/BranchMergeHandler.java`.
"""

from __future__ import annotations

from collections import defaultdict

from tidelake.errors import BadInput
from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, CommitKind
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from tidelake.storage.model.table import TableContext

_ADDING = frozenset({CommitKind.APPEND, CommitKind.ANALYZE})


def merge_branch(target: TableContext, source: TableContext) -> int | None:
    """Merge the source branch into the target. Returns the new snapshot, or None if the source has nothing new.

    Raises BadInput if the branches can't be merged.
    """
    what = f"branch {source.branch!r} of {target.name} can't be merged into {target.branch!r}"
    if target.branch == source.branch:
        raise BadInput(f"{what}: it is the same branch")
    _check_alike(target, source, what)
    theirs, ours = source.snapshots.latest(), target.snapshots.latest()
    for context, latest in ((source, theirs), (target, ours)):
        if latest is None:
            raise BadInput(f"{what}: {context.branch!r} has no snapshot")
    assert theirs is not None
    assert ours is not None
    _check_only_added(target, source, what)
    live_files = {entry.identity for entry in live_entries(target, ours)}
    added: dict[tuple[BucketId, int], list[DataFileMeta]] = defaultdict(list)
    for entry in live_entries(source, theirs):
        if entry.identity not in live_files:
            added[entry.bucket_id, entry.total_buckets].append(entry.file)
    if not added:
        return None
    _check_schemas(target, source, {file.schema_id for files in added.values() for file in files}, what)
    messages = [
        CommitMessage(bucket, CommitIncrement(new_files=tuple(files)), CommitBase(total_buckets=total))
        for (bucket, total), files in added.items()
    ]
    commit = TableCommit(target, new_commit_user(target.options))
    return commit.commit(Committable(BATCH_COMMIT_IDENTIFIER, messages))


def _check_alike(target: TableContext, source: TableContext, what: str) -> None:
    for context in (source, target):
        if context.schema.has_primary_key:
            raise BadInput(
                f"{what}: the table has a primary key, so rows replace each other; write the rows, or fast-forward"
            )
    for option in ("data-evolution.enabled", "row-tracking.enabled"):
        values = [context.options.get(option) or "false" for context in (source, target)]
        if values[0] != values[1] or (option.startswith("data") and values[0] == "true"):
            raise BadInput(
                f"{what}: option {option} is {values[0]} in the source branch, but {values[1]} in the target branch"
            )
    if source.schema.fields != target.schema.fields:
        raise BadInput(f"{what}: their columns differ; alter one of them first")


def _check_schemas(target: TableContext, source: TableContext, schema_ids: set[int], what: str) -> None:
    """Raise BadInput if a schema id of the files means another schema in the target.

    Files name their schema by its id.
    """
    known = set(target.schemas.ids())
    for schema_id in sorted(schema_ids):
        if schema_id not in known or source.schemas.get(schema_id).fields != target.schemas.get(schema_id).fields:
            raise BadInput(
                f"{what}: files of the source branch have schema {schema_id}, which is a different schema in the "
                "target branch"
            )


def _check_only_added(target: TableContext, source: TableContext, what: str) -> None:
    """Raise BadInput unless all commits were appends since the newest common snapshot, or since the first snapshot."""
    histories = [_by_id(source), _by_id(target)]
    common = [i for i, snapshot in histories[0].items() if _is_same(snapshot, histories[1].get(i))]
    since = max(common, default=0)
    for context, history in zip((source, target), histories, strict=True):
        ids = [i for i in history if i > since]
        if not common and min(history) != FIRST_SNAPSHOT_ID:
            raise BadInput(
                f"{what}: they have no common snapshot, and {context.branch!r} begins with {min(history)}, so it is "
                "unknown what was compacted or deleted before"
            )
        for snapshot_id in ids:
            kind = history[snapshot_id].commit_kind
            if kind not in _ADDING:
                raise BadInput(
                    f"{what}: snapshot {snapshot_id} of {context.branch!r} is {kind.value}; only rows that were added "
                    "since the branch was created can be merged"
                )


def _by_id(context: TableContext) -> dict[int, Snapshot]:
    return {snapshot.id: snapshot for snapshot in context.snapshots.all()}


def _is_same(one: Snapshot, other: Snapshot | None) -> bool:
    """Return whether one snapshot was copied from one branch to the other.

    Their uuids and base manifest lists are then equal.
    """
    return other is not None and one.base_manifest_list == other.base_manifest_list and one.uuid == other.uuid
