"""Deletes files of commit messages that no snapshot names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import changelog_entries, delta_entries
from tidelake.storage.files.bucket_directory import all_paths, bucket_directory
from tidelake.storage.files.index_file import index_file_path
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext


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
