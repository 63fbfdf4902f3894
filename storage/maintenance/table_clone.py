"""Clones a table: the files of one snapshot are copied unchanged, and committed to another table.

Nothing is decoded, so levels, sequence numbers, deletes and deletion vectors stay the same. Only that snapshot is
cloned: not the history, tags and branches, and not the position of a pipeline that wrote the table. The commit is an
OVERWRITE, whose rows are not read as changes: a follower that begins with `latest-full` reads them once.

Source: Java `flink/clone/CloneFilesFunction.java` (which copies the files of append tables, and commits them likewise).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelake.errors import BadInput, CorruptFile, SnapshotExpired, UnsupportedFeature
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.progress import tracked
from tidelake.storage.base.threads import map_parallel
from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.manifests.index_manifest import index_files_by_bucket, read_index_manifest
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.files.bucket_directory import all_paths, bucket_directory
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.index_file import index_file_path, index_path_of_name
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.definition import Definition
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)
_COPIED_BYTES: Final = 8 << 20  # read at once


@dataclass(frozen=True, slots=True)
class _Copy:
    """One file to copy.

    size: the size in the manifest. None if the manifest doesn't record it.
    """

    source: str
    target: str
    size: int | None


def check_clonable(source: TableContext) -> None:
    """Raise UnsupportedFeature for a table whose files are valid in that table only."""
    if source.options.is_on("row-tracking.enabled"):
        raise UnsupportedFeature(
            f"a clone of {source.name}",
            "it tracks rows (row-tracking.enabled), and row ids are only valid in their own table",
            "create a table, and write the rows of a scan",
        )


def snapshot_to_clone(source: TableContext, snapshot_id: int | None, tag: str | None) -> Snapshot | None:
    """Return the snapshot with this id or tag, otherwise the newest; None for a table without snapshots."""
    if snapshot_id is not None and tag is not None:
        raise BadInput("clone_table() takes at most one of snapshot and tag")
    if tag is not None:
        return source.tags.get(tag)
    if snapshot_id is None:
        return source.snapshots.latest()
    found = source.snapshots.find(snapshot_id)
    if found is None:
        earliest, latest = source.snapshots.earliest_id(), source.snapshots.latest_id()
        available = "the table has no snapshot yet" if latest is None else f"its snapshots are {earliest} to {latest}"
        raise BadInput(f"{source.name} has no snapshot {snapshot_id}: {available}")
    return found


def schemas_of_clone(
    source: TableContext, snapshot: Snapshot | None, schemas: Sequence[TableSchema]
) -> Sequence[TableSchema]:
    """Return the versions of the schema that the clone gets: all, unless the table was rewritten after the snapshot.

    Then the newest ones have a key, buckets or a merge engine that the files of the snapshot don't have.
    """
    if snapshot is None or Definition.of(source.schema) == Definition.of(source.schemas.get(snapshot.schema_id)):
        return schemas
    return [schema for schema in schemas if schema.id <= snapshot.schema_id]


def clone_files(source: TableContext, snapshot: Snapshot, target: TableContext) -> None:
    """Copy the files of a snapshot, and commit them to the target.

    target: has no snapshot, and has all versions of the source's schema.

    Raises CorruptFile for a file whose size differs from the manifest, SnapshotExpired if the snapshot was deleted
    meanwhile. Files copied by then stay in the target's directory, and no snapshot names them.
    """
    messages = _messages(source, snapshot)
    copies = list(_copies(source, target, messages))
    try:
        copying = map_parallel(lambda copy: _copy(source.io, target.io, copy), copies)
        sizes = list(tracked("copying", copying, len(copies)))
    except FileNotFoundError as error:
        raise _missing_file_error(source, snapshot, error) from error
    commit = TableCommit(target, new_commit_user(target.options))
    inside = [_inside(message) for message in messages]
    committable = Committable(BATCH_COMMIT_IDENTIFIER, inside, snapshot.watermark)
    commit.overwrite(committable, dynamic=False)
    _log.info("cloned", table=target.name, source=source.name, files=len(copies), bytes=sum(sizes))


def _messages(source: TableContext, snapshot: Snapshot) -> list[CommitMessage]:
    """Return commit messages for the files, as if they had just been written."""
    index_files = index_files_by_bucket(read_index_manifest(source, snapshot.index_manifest))
    data_files: dict[BucketId, list[DataFileMeta]] = defaultdict(list)
    total_buckets: dict[BucketId, int] = {}
    for entry in live_entries(source, snapshot):
        data_files[entry.bucket_id].append(entry.file)
        total_buckets[entry.bucket_id] = entry.total_buckets
    return [
        CommitMessage(
            bucket,
            CommitIncrement(
                new_files=tuple(data_files.get(bucket, ())), new_index_files=tuple(index_files.get(bucket, ()))
            ),
            CommitBase(total_buckets=total_buckets.get(bucket)),
        )
        for bucket in dict.fromkeys([*data_files, *index_files])
    ]


def _copies(source: TableContext, target: TableContext, messages: Sequence[CommitMessage]) -> Iterator[_Copy]:
    for message in messages:
        old = bucket_directory(source, *message.bucket)
        new = bucket_directory(target, *message.bucket)
        for file in message.increment.new_files:
            for path in all_paths(old, file):
                name = path.rpartition("/")[2]
                yield _Copy(path, f"{new}/{name}", file.file_size if name == file.file_name else None)
        for index in message.increment.new_index_files:
            target_path = index_path_of_name(target, *message.bucket, index.file_name)
            yield _Copy(index_file_path(source, *message.bucket, index), target_path, index.file_size)


def _copy(source: FileIO, target: FileIO, copy: _Copy) -> int:
    """Copy one file, and return its size."""
    size = 0
    with source.open_input(copy.source) as read, target.open_output(copy.target) as write:
        while data := read.read(_COPIED_BYTES):
            write.stream.write(data)
            size += len(data)
        if copy.size is not None and size != copy.size:
            raise CorruptFile(copy.source, f"{copy.size} bytes, as its manifest says", f"{size}")
    return size


def _inside(message: CommitMessage) -> CommitMessage:
    """Remove external paths: the copies are in the table's directory, wherever the originals were."""
    increment = replace(
        message.increment,
        new_files=tuple(replace(file, external_path=None) for file in message.increment.new_files),
        new_index_files=tuple(replace(file, external_path=None) for file in message.increment.new_index_files),
    )
    return replace(message, increment=increment)


def _missing_file_error(source: TableContext, snapshot: Snapshot, error: FileNotFoundError) -> Exception:
    if source.snapshots.find(snapshot.id) is None:
        return SnapshotExpired(source.name, snapshot.id, "it expired while its files were copied")
    return CorruptFile(str(error.filename or error), f"a file of snapshot {snapshot.id} of {source.name}", "no file")
