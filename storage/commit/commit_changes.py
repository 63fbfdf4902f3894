"""Divides a committable into snapshots: first one with the written files, then one with the compacted files.

Source: Java `operation/commit/ManifestEntryChanges.java`, `FileStoreCommitImpl.commit`; vectors `commit_kinds.json`.

Tombstones: -D rows that a compaction dropped, kept in case they are still needed.

A compaction into the highest level drops -D rows, because the files that it knows have no older row of these keys left.
With sequence numbers alone, rows in other files are newer. With a `sequence.field`, another writer may have committed
an older row in the meantime, which would reappear.

So the compaction of such a table also writes the dropped -D rows to files of level 0, and lists the files of the bucket
that it knew. If the bucket has another file at the commit, the tombstones are committed, too; otherwise they are
deleted. In both cases the compaction does not change the table's rows, and no work is lost.

A row that is committed after its -D was dropped counts as new, as in Java.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.conflicts import Bucket
from tidelake.storage.commit.manifests.index_manifest import IndexEntry
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.index_file import IndexFileMeta
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
    """Returns the changes of zero, one or two snapshots.

    A change that deletes files or marks rows as deleted is an OVERWRITE: readers of changes can't follow it.

    default_total_buckets: the option `bucket`, for messages without a number of buckets
    ignore_empty: make no snapshot if nothing was written. Otherwise an empty snapshot records the identifier as done.
    """

    def entries(kind: FileKind, message: CommitMessage, files: Iterable[DataFileMeta]) -> list[ManifestEntry]:
        total = default_total_buckets if message.total_buckets is None else message.total_buckets
        return [ManifestEntry(kind, message.partition, message.bucket, total, file) for file in files]

    written: list[ManifestEntry] = []
    changelog: list[ManifestEntry] = []
    compacted: list[ManifestEntry] = []
    compact_changelog: list[ManifestEntry] = []
    for message in messages:
        written += entries(FileKind.ADD, message, message.new_files)
        written += entries(FileKind.DELETE, message, message.deleted_files)
        changelog += entries(FileKind.ADD, message, message.changelog_files)
        compacted += entries(FileKind.DELETE, message, message.compact_before)
        compacted += entries(FileKind.ADD, message, message.compact_after)
        compact_changelog += entries(FileKind.ADD, message, message.compact_changelog)
    index = _index([(m, m.deleted_index_files, m.new_index_files) for m in messages])
    compact_index = _index([(m, m.compact_deleted_index_files, m.compact_new_index_files) for m in messages])
    replaces = any(entry.kind is FileKind.DELETE for entry in written)
    replaces |= any(entry.file.holds_deletion_vectors for entry in index)
    first = CommitChanges(CommitKind.OVERWRITE if replaces else CommitKind.APPEND, written, changelog, index)
    second = CommitChanges(CommitKind.COMPACT, compacted, compact_changelog, compact_index)
    return [*([] if first.is_empty and ignore_empty else [first]), *([] if second.is_empty else [second])]


def _index(
    of_messages: Sequence[tuple[CommitMessage, Sequence[IndexFileMeta], Sequence[IndexFileMeta]]],
) -> list[IndexEntry]:
    """Returns the index entries of the messages. A file that one message adds and a later one replaces is left out.

    of_messages: each message with the files that it replaces, and those that it adds.
    """
    intermediate = {file.file_name for _, _, new in of_messages for file in new}
    intermediate &= {file.file_name for _, old, _ in of_messages for file in old}
    added = [IndexEntry(m.partition, m.bucket, file) for m, _, new in of_messages for file in new]
    deleted = [IndexEntry(m.partition, m.bucket, file).as_delete() for m, old, _ in of_messages for file in old]
    return [entry for entry in (*deleted, *added) if entry.file.file_name not in intermediate]


def buckets_needing_tombstones(messages: Sequence[CommitMessage], live: Iterable[ManifestEntry]) -> set[Bucket]:
    """Returns the buckets with files that were unknown to a compaction that dropped -D rows.

    live: live files of their partitions
    """
    known: dict[Bucket, set[str]] = defaultdict(set)
    for message in messages:
        if message.compact_tombstones:
            known[message.partition, message.bucket] |= message.known_files
    return {
        bucket
        for entry in live
        if (bucket := (entry.partition, entry.bucket)) in known and entry.file.file_name not in known[bucket]
    }
