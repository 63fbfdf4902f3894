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
from collections.abc import Iterable, Sequence

from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.conflicts import Bucket
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry


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
