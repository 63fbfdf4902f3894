"""The files of commit messages that no snapshot names: whether they still exist, and their deletion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.threads import map_parallel
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import changelog_entries, delta_entries
from tidelake.storage.fileio.location import LOCAL_SCHEME, MEMORY_SCHEME, scheme_of
from tidelake.storage.files.bucket_directory import all_paths, bucket_directory, data_file_path
from tidelake.storage.files.index_file import index_file_path
from tidelake.storage.files.writer import file_disappeared
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

_YOUNG_MS: Final = 60_000  # a younger file of an object store is not looked for


def check_files_exist(context: TableContext, messages: Iterable[CommitMessage]) -> None:
    """Raise CommitConflict if somebody deleted a file of these messages, as an orphan cleaner does if it is hasty.

    In an object store only older files are looked for, because that costs a request for each.
    """
    is_cheap = scheme_of(context.location) in (LOCAL_SCHEME, MEMORY_SCHEME)
    now_ms = epoch_ms()
    paths = [
        data_file_path(bucket_directory(context, *message.bucket), file)
        for message in messages
        for file in message.increment.written_files
        if is_cheap or now_ms - (file.created_epoch_ms or 0) > _YOUNG_MS
    ]
    found = map(context.io.exists, paths) if is_cheap else map_parallel(context.io.exists, paths)
    for path, exists in zip(paths, found, strict=True):
        if not exists:
            raise file_disappeared(path)


def delete_uncommitted_files(context: TableContext, messages: Iterable[CommitMessage]) -> None:
    """Delete the files that were written for these messages. The caller knows that no snapshot names them.

    An upgraded file is kept: it is a file of the table, or one of the new files.
    """
    paths: list[str] = []
    for message in messages:
        directory = bucket_directory(context, *message.bucket)
        for file in message.increment.written_files:
            paths += all_paths(directory, file)
        paths += [index_file_path(context, *message.bucket, file) for file in message.increment.written_index_files]
    context.io.delete_all(paths)


def names_of_snapshots(context: TableContext, snapshots: Sequence[Snapshot]) -> set[str]:
    """Return the data, changelog and index files that these snapshots name as added; of the index, all files."""
    manifests = context.shared(ManifestStore)
    names: set[str] = set()
    for snapshot in snapshots:
        entries = [*delta_entries(context, snapshot), *changelog_entries(context, snapshot)]
        names |= {entry.file.file_name for entry in entries}
        names |= {entry.file.file_name for entry in manifests.read_index(snapshot.index_manifest)}
    return names
