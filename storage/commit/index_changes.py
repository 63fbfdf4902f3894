"""What the index of a table is after a commit, and what makes the commit wrong. Pure: no file is read here.

Per index type a bucket has at most one file; append tables without buckets have as many files of deletion vectors as
there are. A commit of deletion vectors names the files that it replaces, so that vectors of another commit, which it
doesn't know, are never lost. Hashes replace what the bucket has.

    data file     its deletion vector         after a commit that removes the data file
    live          at most one                 gone with it: else rows that another commit deleted come back
    gone          none

Source: Java `manifest/IndexManifestFileHandler.java`, `operation/commit/ConflictDetection.java`
(`buildBaseEntriesWithDV`, of tables without buckets). That it holds of all tables is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from storage.commit.commit_message import CommitMessage
from storage.commit.conflicts import Bucket, NamePartition
from storage.errors import CommitConflict
from storage.format import HASH_INDEX, FileKind
from storage.manifests.index_manifest import IndexEntry
from storage.manifests.manifest_entry import ManifestEntry

_Place: TypeAlias = tuple[Bucket, str, str]  # bucket, index type, file name

_REMEDY = "Nothing was published: open the table again"


def changed_index(
    previous: Sequence[IndexEntry],
    changes: Sequence[IndexEntry],
    name_partition: NamePartition,
    *,
    one_file_a_bucket: bool,
) -> list[IndexEntry]:
    """The complete index after the changes. Raises CommitConflict.

    one_file_a_bucket: of a type; unless the table has no buckets.
    """
    index = {_place(entry): entry for entry in previous}
    for entry in changes:
        if entry.kind is FileKind.DELETE and index.pop(_place(entry), None) is None:
            raise CommitConflict(
                f"{_where(entry, name_partition)}: index file {entry.file.file_name} is to be replaced, but another "
                f"commit did so already: another process deleted rows here, or compacted this bucket. {_REMEDY}"
            )
    for entry in changes:
        if entry.kind is FileKind.ADD:
            if one_file_a_bucket:
                _make_room(index, entry, name_partition)
            index[_place(entry)] = entry
    return list(index.values())


def _make_room(index: dict[_Place, IndexEntry], entry: IndexEntry, name_partition: NamePartition) -> None:
    there = [place for place in index if place[:2] == _place(entry)[:2]]
    if there and entry.file.holds_deletion_vectors:
        raise CommitConflict(
            f"{_where(entry, name_partition)}: another commit wrote deletion vectors ({there[0][2]}) that this one "
            f"doesn't know. {_REMEDY}"
        )
    for place in there:
        del index[place]


def check_hash_index(
    index: Iterable[IndexEntry], messages: Iterable[CommitMessage], name_partition: NamePartition
) -> None:
    """Buckets were chosen by the index that the table has. Another writer may have put the same keys elsewhere.

    index: before the commit. Of several messages of a partition the first counts: the others build on it.
    Raises CommitConflict.
    """
    bases: dict[bytes, frozenset[str]] = {}
    for message in messages:
        if message.base_hash_index is not None:
            bases.setdefault(message.partition, message.base_hash_index)
    found: dict[bytes, set[str]] = {partition: set() for partition in bases}
    for entry in index:
        if entry.partition in found and entry.file.index_type == HASH_INDEX:
            found[entry.partition].add(entry.file.file_name)
    for partition, base in bases.items():
        if found[partition] != base:
            raise CommitConflict(
                f"{name_partition(partition)}: another commit changed the index of its dynamic buckets, so a key could "
                f"get into two of them. {_REMEDY}, and write again what was not committed. Have one job write to a "
                "partition with dynamic buckets, or make the table with a fixed number of buckets"
            )


def check_vectors(
    index: Iterable[IndexEntry],
    changes: Sequence[IndexEntry],
    delta: Sequence[ManifestEntry],
    live: Iterable[ManifestEntry],
    name_partition: NamePartition,
) -> None:
    """Each vector belongs to one live data file, and goes with it.

    index: complete, after the commit.
    changes, delta: what it changes.
    live: data files of the buckets that it touches, after it. Only what the commit has to do with is looked at.
    Raises CommitConflict.
    """
    live_names = {((entry.partition, entry.bucket), entry.file.file_name) for entry in live}
    gone = {
        (bucket, entry.file.file_name)
        for entry in delta
        if entry.kind is FileKind.DELETE
        and ((bucket := (entry.partition, entry.bucket)), entry.file.file_name) not in live_names
    }
    added = {_place(entry) for entry in changes if entry.kind is FileKind.ADD}
    buckets = {bucket for bucket, _ in gone} | {bucket for bucket, _, _ in added}
    known: set[tuple[Bucket, str]] = set()
    for entry in index:
        bucket = entry.partition, entry.bucket
        for vector in entry.file.vectors if bucket in buckets else ():
            name = bucket, vector.data_file
            if name in gone:
                raise CommitConflict(
                    f"{_where(entry, name_partition)}: rows of {vector.data_file} were deleted by another commit, and "
                    f"would come back with the file that replaces it. {_REMEDY}"
                )
            if _place(entry) in added and name not in live_names:
                raise CommitConflict(
                    f"{_where(entry, name_partition)}: rows of {vector.data_file} are to be deleted, but another "
                    f"commit replaced the file. {_REMEDY}"
                )
            if name in known:
                raise CommitConflict(
                    f"{_where(entry, name_partition)}: {vector.data_file} would have two deletion vectors. {_REMEDY}"
                )
            known.add(name)


def _place(entry: IndexEntry) -> _Place:
    return (entry.partition, entry.bucket), entry.file.index_type, entry.file.file_name


def _where(entry: IndexEntry, name_partition: NamePartition) -> str:
    return f"{name_partition(entry.partition)}, bucket {entry.bucket}"
