"""Removes missing data files from the table, so that it can be read again. The rows of these files are lost.

Use it for files that are lost for good: deleted manually, or by an expiry of another system that checked only its own
branch. If a backup exists, restore the files from it instead.

Source: Java `operation/ListUnexistingFiles.java`, `flink/action/RemoveUnexistingFilesAction.java`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired

_Bucket = tuple[BucketId, int]  # and the number of buckets of its partition


def remove_missing_files(context: TableContext, *, dry_run: bool = False) -> list[str]:
    """Commit a snapshot (OVERWRITE) that deletes the missing data files of the latest snapshot. Returns their paths.

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
