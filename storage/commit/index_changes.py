"""Computes the table's index after a commit, and checks the commit for conflicts. The functions read no files.

A bucket has at most one file of each index type. Append tables without buckets may have many files of deletion vectors.
A commit of deletion vectors names the files that it replaces, so that vectors of another commit, which it doesn't know,
are never lost. A file of hashes replaces the bucket's previous one.

    data file     its deletion vector         after a commit that removes the data file
    live          at most one                 must be removed with it, or rows that another commit deleted reappear
    gone          none

Source: Java `manifest/IndexManifestFileHandler.java`, `operation/commit/ConflictDetection.java`
(`buildBaseEntriesWithDV`, for tables without buckets). Applying it to all tables is an addition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from tidelake.errors import CommitConflict
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.conflicts import NamePartition
from tidelake.storage.commit.manifests.index_manifest import IndexEntry
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import HASH_INDEX, FileKind

_Place: TypeAlias = tuple[BucketId, str, str]  # bucket, index type, file name

_REMEDY = "Nothing was published. Open the table again"


def changed_index(
    previous: Sequence[IndexEntry],
    changes: Sequence[IndexEntry],
    name_partition: NamePartition,
    *,
    one_file_a_bucket: bool,
) -> list[IndexEntry]:
    """Return the complete index after the changes. Raises CommitConflict.

    one_file_a_bucket: whether a bucket has one file of a type. False for a table without buckets.
    """
    index = {_place(entry): entry for entry in previous}
    for entry in changes:
        if entry.kind is FileKind.DELETE and index.pop(_place(entry), None) is None:
            raise CommitConflict(
                f"{_where(entry, name_partition)}: index file {entry.file.file_name} must be replaced, but another "
                "commit has already replaced it: another process deleted rows in this bucket, or compacted it. "
                f"{_REMEDY}"
            )
    for entry in changes:
        if entry.kind is FileKind.ADD:
            if one_file_a_bucket:
                _make_room(index, entry, name_partition)
            index[_place(entry)] = entry
    return list(index.values())


def _make_room(index: dict[_Place, IndexEntry], entry: IndexEntry, name_partition: NamePartition) -> None:
    existing = [place for place in index if place[:2] == _place(entry)[:2]]
    if existing and entry.file.holds_deletion_vectors:
        raise CommitConflict(
            f"{_where(entry, name_partition)}: another commit wrote deletion vectors ({existing[0][2]}) that this "
            f"commit did not read. {_REMEDY}"
        )
    for place in existing:
        del index[place]


def check_hash_index(
    index: Iterable[IndexEntry], messages: Iterable[CommitMessage], name_partition: NamePartition
) -> None:
    """Check that buckets were chosen with the table's current index. Otherwise another writer may have put the same
    keys into other buckets.

    index: the index before the commit.
    messages: of several messages of a partition the first one counts, because the others build on it.
    Raises CommitConflict.
    """
    bases: dict[bytes, frozenset[str]] = {}
    for message in messages:
        if message.base.hash_index is not None:
            bases.setdefault(message.partition, message.base.hash_index)
    found: dict[bytes, set[str]] = {partition: set() for partition in bases}
    for entry in index:
        if entry.partition in found and entry.file.index_type == HASH_INDEX:
            found[entry.partition].add(entry.file.file_name)
    for partition, base in bases.items():
        if found[partition] != base:
            raise CommitConflict(
                f"{name_partition(partition)}: another commit changed the index of its dynamic buckets, so a key "
                f"could be written to two buckets. {_REMEDY}, and write the uncommitted rows again. Let only one job "
                "write to a partition with dynamic buckets, or create the table with a fixed number of buckets"
            )


def check_vectors(
    index: Iterable[IndexEntry],
    changes: Sequence[IndexEntry],
    delta: Sequence[ManifestEntry],
    live: Iterable[ManifestEntry],
    name_partition: NamePartition,
) -> None:
    """Check that each vector belongs to one live data file, and is removed with it.

    index: the complete index after the commit.
    changes, delta: what the commit changes.
    live: data files of the changed buckets, after the commit. Other buckets are not checked.
    Raises CommitConflict.
    """
    live_names = {(entry.bucket_id, entry.file.file_name) for entry in live}
    gone = {
        (bucket, entry.file.file_name)
        for entry in delta
        if entry.kind is FileKind.DELETE and ((bucket := entry.bucket_id), entry.file.file_name) not in live_names
    }
    added = {_place(entry) for entry in changes if entry.kind is FileKind.ADD}
    buckets = {bucket for bucket, _ in gone} | {bucket for bucket, _, _ in added}
    known: set[tuple[BucketId, str]] = set()
    for entry in index:
        bucket = entry.bucket_id
        for vector in entry.file.vectors if bucket in buckets else ():
            name = bucket, vector.data_file
            if name in gone:
                raise CommitConflict(
                    f"{_where(entry, name_partition)}: another commit deleted rows of {vector.data_file}, and they "
                    f"would reappear with the file that replaces it. {_REMEDY}"
                )
            if _place(entry) in added and name not in live_names:
                raise CommitConflict(
                    f"{_where(entry, name_partition)}: rows of {vector.data_file} must be deleted, but another commit "
                    f"replaced the file. {_REMEDY}"
                )
            if name in known:
                raise CommitConflict(
                    f"{_where(entry, name_partition)}: {vector.data_file} would have two deletion vectors. {_REMEDY}"
                )
            known.add(name)


def _place(entry: IndexEntry) -> _Place:
    return entry.bucket_id, entry.file.index_type, entry.file.file_name


def _where(entry: IndexEntry, name_partition: NamePartition) -> str:
    return f"{name_partition(entry.partition)}, bucket {entry.bucket}"
