"""Divides a committable into snapshots: first one with the written files, then one with the compacted files.

Source: Java `operation/commit/ManifestEntryChanges.java`, `FileStoreCommitImpl.commit`; vectors `commit_kinds.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.manifests.index_manifest import IndexEntry
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import CommitKind, FileKind


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """The changes of one snapshot, with entries in the order of the messages.

    index: replaced index files, then added ones
    statistics: the statistics file of the snapshot; None keeps that of the previous snapshot
    """

    kind: CommitKind
    entries: Sequence[ManifestEntry] = ()
    changelog: Sequence[ManifestEntry] = ()
    index: Sequence[IndexEntry] = ()
    statistics: str | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.entries or self.changelog or self.index)


def commit_changes(
    messages: Sequence[CommitMessage], default_total_buckets: int, *, ignore_empty: bool
) -> list[CommitChanges]:
    """Return the changes of zero, one or two snapshots.

    A change that deletes files or marks rows as deleted is an OVERWRITE: readers of changes can't follow it.

    default_total_buckets: the option `bucket`, for messages without a number of buckets
    ignore_empty: make no snapshot if nothing was written. Otherwise an empty snapshot records the identifier as done.
    """

    def entries(kind: FileKind, message: CommitMessage, files: Iterable[DataFileMeta]) -> list[ManifestEntry]:
        total = default_total_buckets if message.base.total_buckets is None else message.base.total_buckets
        return [ManifestEntry(kind, *message.bucket, total, file) for file in files]

    written: list[ManifestEntry] = []
    changelog: list[ManifestEntry] = []
    compacted: list[ManifestEntry] = []
    compact_changelog: list[ManifestEntry] = []
    for message in messages:
        increment, done = message.increment, message.increment.compacted
        written += entries(FileKind.ADD, message, increment.new_files)
        written += entries(FileKind.DELETE, message, increment.deleted_files)
        changelog += entries(FileKind.ADD, message, increment.changelog_files)
        compacted += entries(FileKind.DELETE, message, done.before)
        compacted += entries(FileKind.ADD, message, done.after)
        compact_changelog += entries(FileKind.ADD, message, done.changelog)
    index = _index([(m.bucket, m.increment) for m in messages])
    compact_index = _index([(m.bucket, m.increment.compacted) for m in messages])
    replaces = any(entry.kind is FileKind.DELETE for entry in written)
    replaces |= any(entry.file.holds_deletion_vectors for entry in index)
    first = CommitChanges(CommitKind.OVERWRITE if replaces else CommitKind.APPEND, written, changelog, index)
    second = CommitChanges(CommitKind.COMPACT, compacted, compact_changelog, compact_index)
    return [*([] if first.is_empty and ignore_empty else [first]), *([] if second.is_empty else [second])]


def _index(of_buckets: Sequence[tuple[BucketId, CommitIncrement | CompactResult]]) -> list[IndexEntry]:
    """Return the index entries of the messages. A file that one message adds and a later one replaces is left out."""
    intermediate = {file.file_name for _, part in of_buckets for file in part.new_index_files}
    intermediate &= {file.file_name for _, part in of_buckets for file in part.deleted_index_files}
    added = [IndexEntry(*bucket, file) for bucket, part in of_buckets for file in part.new_index_files]
    deleted = [IndexEntry(*bucket, file) for bucket, part in of_buckets for file in part.deleted_index_files]
    entries = [*(entry.as_delete() for entry in deleted), *added]
    return [entry for entry in entries if entry.file.file_name not in intermediate]
