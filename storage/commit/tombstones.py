"""Tombstones: -D rows that a compaction dropped, kept in case they are still needed.

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
from collections.abc import Collection, Iterable

from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.model.bucket_id import BucketId


class Tombstones:
    """The tombstones of one compaction's messages. False if there are none."""

    def __init__(self, messages: Iterable[CommitMessage]) -> None:
        self._messages = [message for message in messages if message.increment.compacted.tombstones]

    def __bool__(self) -> bool:
        return bool(self._messages)

    @property
    def partitions(self) -> set[bytes]:
        return {message.partition for message in self._messages}

    def needed(self, live: Iterable[ManifestEntry]) -> list[CommitMessage]:
        """Return messages that add the tombstones of buckets with files that their compaction did not know.

        live: live files of their partitions
        """
        known: dict[BucketId, set[str]] = defaultdict(set)
        for message in self._messages:
            known[message.bucket] |= message.increment.known_files
        buckets = {
            bucket
            for entry in live
            if (bucket := entry.bucket_id) in known and entry.file.file_name not in known[bucket]
        }
        return [_added(message) for message in self._messages if message.bucket in buckets]

    def split(self, published: Collection[str]) -> tuple[list[CommitMessage], list[CommitMessage]]:
        """Return the messages whose tombstones were published, and messages that add only the others.

        published: the names of files that the compaction's snapshot added.
        """
        needed: list[CommitMessage] = []
        unneeded: list[CommitMessage] = []
        for message in self._messages:
            is_needed = any(file.file_name in published for file in message.increment.compacted.tombstones)
            (needed if is_needed else unneeded).append(message if is_needed else _added(message))
        return needed, unneeded


def _added(message: CommitMessage) -> CommitMessage:
    added = CompactResult(after=message.increment.compacted.tombstones)
    return CommitMessage(message.bucket, CommitIncrement(compacted=added), message.base)
