"""Deletes that a compaction left out, and that turn out to be needed.

A compaction into the highest level that has files leaves deletes out: no older row is there that they could hide. None
that it knows. Where sequence numbers alone decide what is newer, rows of files that it doesn't know are newer. Where a
`sequence.field` does, another writer may have committed an older row meanwhile, and it would come back.

So the compaction of such a table also writes what it left out, into files of level 0, and says which files of the
bucket it knew. They are committed with it if the bucket holds another file by then, else deleted. Either way the
compaction leaves the rows of the table as they are, and no work is lost.

A row that is committed after its delete was left out counts as new, as in Java.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from storage.commit.commit_message import CommitMessage
from storage.commit.conflicts import Bucket
from storage.manifests.manifest_entry import ManifestEntry


def buckets_needing_tombstones(messages: Sequence[CommitMessage], live: Iterable[ManifestEntry]) -> set[Bucket]:
    """Those that hold files of which the compactions that left deletes out didn't know.

    live: of their partitions.
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
