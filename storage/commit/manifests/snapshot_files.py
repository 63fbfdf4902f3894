"""Finds the files of a snapshot: all live files, the files it added or deleted, and the files of its changes.

Source: Java `operation/AbstractFileStoreScan.java`, `manifest/ManifestList.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, compress

from tidelake.errors import CorruptFile, TidelakeError
from tidelake.storage.commit.manifests.index_manifest import index_files_by_bucket
from tidelake.storage.commit.manifests.live_files import merge_with_cache
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry, merge_entries
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.manifest_store import ListFile, ManifestStore
from tidelake.storage.commit.manifests.partition_stats import may_hold
from tidelake.storage.fileio.requests import is_remote, run_requests
from tidelake.storage.files.index_file import deletion_files_of
from tidelake.storage.model import definition
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.definition import Definition
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext


def live_entries(
    context: TableContext,
    snapshot: Snapshot,
    *,
    keep_entry: Callable[[ManifestEntry], bool] | None = None,
) -> list[ManifestEntry]:
    """Return the files of the table at this snapshot, in the order in which they were added.

    keep_entry: a filter for live entries.
    Raises CorruptFile.
    """
    store = context.shared(ManifestStore)
    entries = merged(store, table_manifests(store, snapshot), f"{context.name}, snapshot {snapshot.id}")
    return [e for e in entries if e.kind is FileKind.ADD and (keep_entry is None or keep_entry(e))]


def live_entries_of(
    manifests: ManifestStore, snapshot: Snapshot | None, partitions: Collection[bytes] | None, where: str
) -> list[ManifestEntry]:
    """Return the live files of some partitions, or of all (None). Reads only manifests that may contain such files.

    where: describes the table for error messages.
    """
    if snapshot is None:
        return []
    metas = table_manifests(manifests, snapshot)
    if partitions is not None:
        metas = list(compress(metas, may_hold(metas, partitions, manifests.partition_types)))
    with _each_added_once(where):
        entries = merge_with_cache(manifests, metas)
    if partitions is None:
        return [entry for entry in entries if entry.kind is FileKind.ADD]
    return [entry for entry in entries if entry.kind is FileKind.ADD and entry.partition in partitions]


def delta_entries(context: TableContext, snapshot: Snapshot) -> list[ManifestEntry]:
    """Return what the snapshot's commit added and deleted, in the order of the commit."""
    store = context.shared(ManifestStore)
    return _entries(store, store.read_list(delta_list(snapshot)))


def changelog_entries(context: TableContext, snapshot: Snapshot) -> list[ManifestEntry]:
    """Return the changelog files of this snapshot; none if it has no changelog."""
    if (changelog := changelog_list(snapshot)) is None:
        return []
    store = context.shared(ManifestStore)
    return _entries(store, store.read_list(changelog))


def table_manifests(manifests: ManifestStore, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """Return the manifests whose entries, in this order, are the state of the table."""
    return manifests.read_lists([base_list(snapshot), delta_list(snapshot)])


def prefetch_lists(context: TableContext, snapshot: Snapshot | None, *, beside: Callable[[], object]) -> None:
    """Run `beside`. If the table is far away, read what a scan of the snapshot reads first in the same round trip.

    What can't be read is no error here, but in the scan.
    """
    if snapshot is None or not is_remote(context.location):
        beside()
        return
    store = context.shared(ManifestStore)
    reads: list[Callable[[], object]] = [partial(store.read_lists, [base_list(snapshot), delta_list(snapshot)])]
    if context.options.deletion_vectors_enabled:
        reads.append(partial(store.read_index, snapshot.index_manifest))
    run_requests(context.location, beside, *map(_unless_it_fails, reads))


def _unless_it_fails(read: Callable[[], object]) -> Callable[[], object]:
    def attempt() -> None:
        with suppress(TidelakeError, OSError):
            read()

    return attempt


def deletion_files(context: TableContext, snapshot: Snapshot) -> dict[BucketId, dict[str, DeletionFile]]:
    """Return by (partition, bucket) the deletion vector of each data file that has one."""
    of_buckets = index_files_by_bucket(context.shared(ManifestStore).read_index(snapshot.index_manifest))
    return {bucket: deletion_files_of(context, *bucket, files) for bucket, files in of_buckets.items()}


def merged(manifests: ManifestStore, metas: Sequence[ManifestFileMeta], where: str) -> list[ManifestEntry]:
    """Return the merged entries of consecutive manifests.

    where: for the message of CorruptFile.
    """
    with _each_added_once(where):
        return list(merge_entries(chain.from_iterable(manifests.read_all(metas))).values())


@contextmanager
def _each_added_once(where: str) -> Iterator[None]:
    try:
        yield
    except ValueError as e:
        raise CorruptFile(where, "manifests in which each file is added once", str(e)) from None


def base_list(snapshot: Snapshot) -> ListFile:
    return ListFile(snapshot.base_manifest_list, snapshot.base_manifest_list_size)


def delta_list(snapshot: Snapshot) -> ListFile:
    return ListFile(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)


def changelog_list(snapshot: Snapshot) -> ListFile | None:
    """Return None for a snapshot without a changelog."""
    name = snapshot.changelog_manifest_list
    return None if name is None else ListFile(name, snapshot.changelog_manifest_list_size)


def _entries(manifests: ManifestStore, metas: Sequence[ManifestFileMeta]) -> list[ManifestEntry]:
    return list(chain.from_iterable(manifests.read_all(metas)))


# ---------------------------------------------------------------- files of an unfinished rewrite


def may_have_older_files(context: TableContext) -> bool:
    """Return whether files may have another definition than the schema: after a rewrite that did not finish."""
    schema = context.schema
    return schema.id > 0 and definition.may_have_older_files(schema, context.schemas.get(0))


def entries_of_older_definition(context: TableContext, live: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Return the live files that were written under another definition of the table than that of the schema."""
    wanted = Definition.of(context.schema)
    is_same = {context.schema.id: True}
    found: list[ManifestEntry] = []
    for entry in live:
        schema_id = entry.file.schema_id
        if schema_id not in is_same:
            is_same[schema_id] = Definition.of(context.schemas.get(schema_id)) == wanted
        if not is_same[schema_id]:
            found.append(entry)
    return found
