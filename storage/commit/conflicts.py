"""The rules of conflicts between a commit and the table's files. `conflict_check` applies them; they read no files.

Each check raises CommitConflict. `base` are the live files of the partitions that the commit changes; `delta` is what
the commit adds and deletes. These checks apply to each kind of commit:

                       one bucket count   deletes are live   levels don't overlap   nothing in between
    APPEND             first snapshot     -                  -                      where order of rows matters
    COMPACT            yes                yes                yes                    above level 0, for lookups
    OVERWRITE          -                  yes                yes                    -

Source: Java `operation/commit/ConflictDetection.java`, `PrimaryKeyConflictDetection.java`. The last column
is an addition: Paimon does not check it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from tidelake.errors import CommitConflict, StaleSequenceNumbers
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry, merge_entries
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.merge.sorted_run import KeyRange, key_ranges
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import CommitKind, FileKind
from tidelake.storage.model.types import DataType

NamePartition: TypeAlias = Callable[[bytes], str]


def check_no_conflict(
    kind: CommitKind,
    base: Sequence[ManifestEntry],
    delta: Sequence[ManifestEntry],
    key_types: Sequence[DataType],
    name_partition: NamePartition,
    *,
    also: Collection[BucketId] = (),
) -> list[ManifestEntry]:
    """Check a commit that deletes files. Returns the live files after it, in the buckets that it changes.

    key_types: types of the trimmed primary key; empty for an append table.
    also: buckets whose index it changes.
    """
    if kind is not CommitKind.OVERWRITE:
        check_bucket_counts([*base, *delta], name_partition)
    touched = {entry.bucket_id for entry in delta}.union(also)
    merged = check_deletes([entry for entry in base if entry.bucket_id in touched], delta)
    if key_types:
        check_levels(merged, key_types, name_partition)
    return merged


def check_bucket_counts(entries: Iterable[ManifestEntry], name_partition: NamePartition) -> None:
    """Raise if files of a partition have different numbers of buckets: then a key could be in two buckets."""
    known: dict[bytes, int] = {}
    for entry in entries:
        if entry.total_buckets <= 0:
            continue
        count = known.setdefault(entry.partition, entry.total_buckets)
        if count != entry.total_buckets:
            raise CommitConflict(
                f"{name_partition(entry.partition)}: its files are in {count} buckets, but this commit has "
                f"{entry.total_buckets}. Open the table again to write with the current number of buckets, or rewrite "
                "the partition with an overwrite"
            )


def check_deletes(base: Sequence[ManifestEntry], delta: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Return the live files after the commit.

    The delta must be consistent: readers merge it through a map, so a file that is deleted and added again would be
    lost. The files that it deletes must exist.
    """
    try:
        merge_entries(delta)
    except ValueError as e:
        raise CommitConflict(
            f"the commit lists a file twice: {e}. Nothing was published. Write its rows again"
        ) from None
    try:
        merged = list(merge_entries([*base, *delta]).values())
    except ValueError as e:
        raise CommitConflict(
            f"{e}. These commit messages may have been committed before. Open the table again"
        ) from None
    for entry in merged:
        if entry.kind is FileKind.DELETE:
            raise CommitConflict(
                f"file {entry.file.file_name} (bucket {entry.bucket}, level {entry.file.level}) must be deleted, but "
                "another commit has already removed it: another job compacted or overwrote this bucket. Open the "
                "table again. If several jobs compact the table, set write-only = true on its writers and stop other "
                "compaction jobs"
            )
    return merged


def check_relied_on(
    messages: Sequence[CommitMessage], live: Iterable[ManifestEntry], name_partition: NamePartition
) -> None:
    """Raise if a compaction looked up rows in other files than its bucket has above level 0.

    Its result then doesn't replace rows that it did not find, or has values of rows that are gone. Files that others
    added to level 0 are no problem: their own compaction will look up the rows of this one.

    live: the live files of the partitions. Of several messages of a bucket, each builds on the one before.
    """
    if all(message.increment.compacted.relied_on is None for message in messages):
        return
    places: dict[BucketId, set[tuple[int, str]]] = defaultdict(set)
    for entry in live:
        if entry.file.level > 0:
            places[entry.bucket_id].add(entry.file.place)
    for message in messages:
        bucket, done = message.bucket, message.increment.compacted
        if done.relied_on is not None and places[bucket] != set(done.relied_on):
            raise CommitConflict(
                f"{name_partition(bucket.partition)}, bucket {bucket.bucket}: another commit changed the files above "
                "level 0 in which this compaction looked up older rows: another job compacted or overwrote this "
                "bucket. The compaction was not published. Compact the bucket again"
            )
        places[bucket] -= {file.place for file in done.before}
        places[bucket] |= {file.place for file in done.after if file.level > 0}


def check_buckets_unchanged(
    totals: Mapping[bytes, int], found: Mapping[bytes, int], name_partition: NamePartition
) -> None:
    """Raise if a partition has another number of buckets than our rows are for: a key would be in two buckets.

    totals: for each partition that we write to, its number of buckets when we opened it.
    found: the number of buckets that others gave a partition since.
    """
    for partition, total in totals.items():
        if partition in found and found[partition] != total:
            count = found[partition]
            raise CommitConflict(
                f"{name_partition(partition)}: another commit has put its rows into {count} buckets, but the rows of "
                f"this commit are for {total} buckets, so a key would be in two buckets. Nothing was "
                "published. Load the table again, open a new writer, and write the uncommitted rows again"
            )


def check_levels(live: Iterable[ManifestEntry], key_types: Sequence[DataType], name_partition: NamePartition) -> None:
    """Raise if files of one level above 0 have overlapping key ranges."""
    levels: dict[tuple[bytes, int, int], list[DataFileMeta]] = defaultdict(list)
    for entry in live:
        if entry.file.level > 0:
            levels[entry.partition, entry.bucket, entry.file.level].append(entry.file)
    for (partition, bucket, level), files in levels.items():
        if len(files) < 2:
            continue
        overlap = first_overlap(key_ranges(files, key_types))
        if overlap is not None:
            one, other = overlap
            raise CommitConflict(
                f"{name_partition(partition)}, bucket {bucket}, level {level}: files {one.file_name} and "
                f"{other.file_name} overlap: two jobs compacted this bucket. Open the table again, and set "
                "write-only = true on all jobs but one"
            )


def first_overlap(ranges: Sequence[KeyRange]) -> tuple[DataFileMeta, DataFileMeta] | None:
    """Return two neighbours in key order that share a key, or None."""
    ordered = sorted(ranges, key=lambda item: item.min_key)
    return next(((a.file, b.file) for a, b in pairwise(ordered) if a.max_key >= b.min_key), None)


def check_base_is_current(
    bases: Mapping[BucketId, int], concurrent_writes: Mapping[BucketId, int], name_partition: NamePartition
) -> None:
    """Raise if another writer wrote to a bucket after the snapshot whose sequence numbers we continue.

    A newer row of another writer could have the same or higher numbers than ours, and an older row would win.

    bases: for each bucket that we write to, the snapshot at which it was opened (0: before the first).
    concurrent_writes: the newest snapshot, other than COMPACT, of another commit user that changed the bucket.
    """
    for bucket, base in bases.items():
        written = concurrent_writes.get(bucket, 0)
        if written > base:
            raise StaleSequenceNumbers(
                f"{name_partition(bucket.partition)}, bucket {bucket.bucket}: another writer published snapshot "
                f"{written} after snapshot {base}, whose sequence numbers this commit continues, so rows could win in "
                "the wrong order. Nothing was published. Open the table and write again (start a pipeline again). If "
                "several jobs write to one bucket, set sequence.field, or use aggregate functions that need no order"
            )
