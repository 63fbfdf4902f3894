"""Repairs of a table that lost files for good: it can be read again, without what they contained.

Source: Java `operation/ListUnexistingFiles.java`, `flink/action/RemoveUnexistingFilesAction.java`,
`flink/action/RemoveUnexistingManifestsAction.java`, `FileStoreCommitImpl.replaceManifestList`,
`flink/procedure/RepairEarliestSnapshotProcedure.java`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from tidelake.errors import BadInput, CommitConflict
from tidelake.storage.base import env
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.file_system_commit import snapshot_commit_of
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import live_entries, merged, table_manifests
from tidelake.storage.commit.snapshot_builder import writer_version
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, CommitKind, FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired

_Bucket = tuple[BucketId, int]  # and the number of buckets of its partition


# ---------------------------------------------------------------- data files


def remove_missing_files(context: TableContext, *, dry_run: bool = False) -> list[str]:
    """Commit a snapshot (OVERWRITE) that deletes the missing data files of the latest snapshot. Returns their paths.

    The table can then be read again, without the rows of these files. Use it for files that are lost for good: deleted
    manually, or by an expiry of another system that checked only its own branch. If a backup exists, restore the files
    from it instead.

    Raises CommitConflict if another process deletes one of them meanwhile: call it again.
    """
    latest = context.snapshots.latest()
    if latest is None:
        return []
    of_buckets: dict[_Bucket, list[ManifestEntry]] = defaultdict(list)
    with raise_if_snapshot_expired(context, latest.id):
        for entry in live_entries(context, latest):
            of_buckets[entry.bucket_id, entry.total_buckets].append(entry)
    lost = {
        bucket: files for bucket, entries in of_buckets.items() if (files := _missing_files(context, bucket, entries))
    }
    newest = context.snapshots.latest()
    if lost and newest is not None and newest.id != latest.id:  # files that a commit deleted meanwhile may have expired
        live_files = {entry.identity for entry in live_entries(context, newest)}
        lost = {bucket: [(p, e) for p, e in files if e.identity in live_files] for bucket, files in lost.items()}
    messages = [_message(bucket, [entry.file for _, entry in files]) for bucket, files in lost.items() if files]
    if messages and not dry_run:
        commit = TableCommit(context, new_commit_user(context.options))
        commit.commit(Committable(BATCH_COMMIT_IDENTIFIER, messages))
    return sorted(path for files in lost.values() for path, _ in files)


def _missing_files(
    context: TableContext, bucket: _Bucket, entries: Sequence[ManifestEntry]
) -> list[tuple[str, ManifestEntry]]:
    """Return the missing files with their paths.

    The bucket is listed once; files not in the list are checked by name.
    """
    directory = bucket_directory(context, *bucket[0])
    listed = {f"{directory}/{status.name}" for status in context.io.list_directory(directory)}
    paths = ((data_file_path(directory, entry.file), entry) for entry in entries)
    return [(path, entry) for path, entry in paths if path not in listed and not context.io.exists(path)]


def _message(bucket: _Bucket, files: Sequence[DataFileMeta]) -> CommitMessage:
    bucket_id, total_buckets = bucket
    return CommitMessage(
        bucket_id, CommitIncrement(deleted_files=tuple(files)), CommitBase(total_buckets=total_buckets)
    )


# ---------------------------------------------------------------- manifests


def remove_missing_manifests(context: TableContext, *, dry_run: bool = False) -> list[str]:
    """Commit a snapshot of kind OVERWRITE on the latest one, without the missing manifests. Returns their names.

    The content of these manifests is unknown. Files that they added are no longer part of the table (they are orphans),
    and files that they deleted are part of it again: `remove_missing_files` removes those that don't exist.

    Nothing is committed if no manifest is missing. Raises CorruptFile if a manifest list is missing, or if the
    remaining manifests contradict each other; CommitConflict if another writer commits meanwhile.
    """
    context.identity.check_before_change()
    latest = context.snapshots.latest()
    if latest is None:
        return []
    store = context.shared(ManifestStore)
    metas = table_manifests(store, latest)
    present = [meta for meta in metas if context.io.exists(context.paths.manifest(meta.file_name))]
    kept = {meta.file_name for meta in present}
    lost = [meta.file_name for meta in metas if meta.file_name not in kept]
    if lost and not dry_run:
        _publish_without_manifests(context, store, latest, present)
    return lost


def _publish_without_manifests(
    context: TableContext, store: ManifestStore, latest: Snapshot, metas: Sequence[ManifestFileMeta]
) -> None:
    live = [e for e in merged(store, metas, f"{context.name}, snapshot {latest.id}") if e.kind is FileKind.ADD]
    base, delta = store.write_list(metas), store.write_list([])
    snapshot = replace(
        latest,
        id=latest.id + 1,
        base_manifest_list=base.name,
        base_manifest_list_size=base.size,
        delta_manifest_list=delta.name,
        delta_manifest_list_size=delta.size,
        changelog_manifest_list=None,
        changelog_manifest_list_size=None,
        changelog_record_count=None,
        commit_user=new_commit_user(context.options),
        commit_identifier=BATCH_COMMIT_IDENTIFIER,
        commit_kind=CommitKind.OVERWRITE,
        time_ms=epoch_ms(),
        total_record_count=sum(entry.file.row_count for entry in live),
        delta_record_count=0,
        operation=None,
        uuid=str(env.new_uuid()),
        writer_version=writer_version(),
    )
    if not snapshot_commit_of(context).commit(latest, snapshot, list):
        store.delete([base.name, delta.name])
        raise CommitConflict(f"{context.name}: another process has committed snapshot {snapshot.id} since; try again")


# ---------------------------------------------------------------- snapshots


def repair_earliest_snapshot(context: TableContext, snapshot_id: int) -> int:
    """Make this snapshot the earliest one. Readers ignore earlier ones, and `clean_orphans` deletes their files.

    Returns the previous earliest snapshot. Raises BadInput if the snapshot, or a later one, doesn't exist.
    """
    context.identity.check_before_change()
    earliest, latest = context.snapshots.earliest_id(), context.snapshots.latest_id()
    if earliest is None or latest is None:
        raise BadInput(f"{context.name} has no snapshots")
    existing = context.snapshots.ids()
    if snapshot_id not in existing:
        raise BadInput(
            f"{context.name} has no snapshot {snapshot_id}; its snapshots are {existing[0]} to {existing[-1]}"
        )
    lost = sorted(set(range(snapshot_id, latest + 1)) - set(existing))
    if lost:
        raise BadInput(
            f"{context.name}: history can't begin with snapshot {snapshot_id}, as {lost[-1]} is missing after it. "
            f"Begin with {lost[-1] + 1}"
        )
    context.snapshots.hint_earliest(snapshot_id)
    return earliest
