"""Which snapshots one committable becomes: first what was written, then what was compacted.

Source: Java `operation/commit/ManifestEntryChanges.java`, `FileStoreCommitImpl.commit`; vectors `commit_kinds.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from storage.files.data_file import DataFileMeta
from storage.format import CommitKind, FileKind
from storage.snapshots.commit_message import CommitMessage, IndexFileMeta
from storage.snapshots.manifest_entry import ManifestEntry

_DELETION_VECTORS: Final = "DELETION_VECTORS"


@dataclass(frozen=True, slots=True)
class Changes:
    """What one snapshot changes, entries in the order of the messages."""

    kind: CommitKind
    entries: Sequence[ManifestEntry] = ()
    changelog: Sequence[ManifestEntry] = ()
    added_index_files: Sequence[IndexFileMeta] = ()
    deleted_index_files: Sequence[IndexFileMeta] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.entries or self.changelog or self.added_index_files or self.deleted_index_files)


def changes_of(messages: Sequence[CommitMessage], default_total_buckets: int, *, ignore_empty: bool) -> list[Changes]:
    """None, one or two. default_total_buckets: the option `bucket`, for messages that don't say.

    ignore_empty: when nothing was written, make no snapshot for it; else an empty one says that the identifier is done.
    Something that deletes files or marks rows deleted is an OVERWRITE: readers of changes can't follow it.
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
    new_index = [file for message in messages for file in message.new_index_files]
    deleted_index = [file for message in messages for file in message.deleted_index_files]
    replaces = any(entry.kind is FileKind.DELETE for entry in written) or any(
        file.index_type == _DELETION_VECTORS for file in (*new_index, *deleted_index)
    )
    first = Changes(
        CommitKind.OVERWRITE if replaces else CommitKind.APPEND, written, changelog, new_index, deleted_index
    )
    second = Changes(
        CommitKind.COMPACT,
        compacted,
        compact_changelog,
        [file for message in messages for file in message.compact_new_index_files],
        [file for message in messages for file in message.compact_deleted_index_files],
    )
    return [*([] if first.is_empty and ignore_empty else [first]), *([] if second.is_empty else [second])]
