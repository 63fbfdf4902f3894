"""Changes the number of buckets of partitions: each partition is read, and overwritten with its own rows.

Each partition gets one OVERWRITE snapshot without a changelog, as rows do not change. Writers of other partitions can
continue. If rows were added to the partition meanwhile, it is read again.

Source: Java `docs/maintenance/rescale-bucket`, `operation/commit/OverwriteChangesProvider.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.errors import BadInput, CommitConflict, SnapshotExpired
from tidelake.storage.base.progress import counted
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import delta_entries, live_entries
from tidelake.storage.commit.overwrite import matching_partitions
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.maintenance.partition_done import partitions_like
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, POSTPONE_BUCKET, CommitKind
from tidelake.storage.model.options import ChangelogProducer
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.read.state_files import hides_level_0, is_read_first
from tidelake.storage.write.table_writer import TableWriter

_ATTEMPTS: Final = 5


def check_rescalable(context: TableContext, number: int, partition: Mapping[str, Any] | None = None) -> None:
    """Raise BadInput if `rescale` would, before anything is changed.

    That is for a table whose number of buckets is not fixed, for a partition that doesn't exist, and for one that has
    rows or changes which wait for a compaction.
    """
    if bucket_mode(context.schema, context.options) not in (BucketMode.FIXED, BucketMode.POSTPONE):
        raise BadInput(
            f"{context.name} has bucket = {context.options.get('bucket', '-1')}: its number of buckets grows "
            "automatically. Only a table with bucket = 1 or more, or -2, can be rescaled"
        )
    if partition is not None:
        partitions_like(context, [partition])
    for one, files in _partitions_of_other_numbers(context, number, partition).items():
        _check_nothing_waits(context, files, one)


def rescale(context: TableContext, partition: Mapping[str, Any] | None = None) -> list[str]:
    """Overwrite the partitions whose number of buckets differs from option `bucket`.

    Returns their directories: `dt=2024-05-14/hour=7`, or "" for an unpartitioned table.

    context: the table with the new number
    partition: column -> value; only partitions with these values

    Raises CommitConflict if others repeatedly wrote to a partition; the partitions before it are done.
    """
    chosen = sorted(_partitions_of_other_numbers(context, int(context.options["bucket"]), partition))
    for one in chosen:
        _overwrite_with_itself(context, one)
    return [partition_directory(context, one) for one in chosen]


def _partitions_of_other_numbers(
    context: TableContext, number: int, partition: Mapping[str, Any] | None
) -> dict[bytes, list[ManifestEntry]]:
    """Return the live files of the partitions that have another number of buckets."""
    latest = context.snapshots.latest()
    found: dict[bytes, list[ManifestEntry]] = {}
    if latest is None:
        return found
    with raise_if_snapshot_expired(context, latest.id):
        for entry in live_entries(context, latest):
            if entry.bucket >= 0 and entry.total_buckets != number:
                found.setdefault(entry.partition, []).append(entry)
    if partition is None:
        return found
    return {one: found[one] for one in matching_partitions(found.keys(), [partition], context)}


def rescale_partition(context: TableContext, partition: bytes) -> None:
    """Overwrite a partition with its own rows, in the context's number of buckets. Raises like `rescale`."""
    _overwrite_with_itself(context, partition)


def _overwrite_with_itself(context: TableContext, partition: bytes) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        base = context.snapshots.latest()
        assert base is not None, "its files were seen"
        writer = TableWriter(context, compactor_factory=compact_manager_factory(), replaces=True)
        guard = _unless_written(context, partition, base)
        commit = TableCommit(context, new_commit_user(context.options), guard=guard)
        try:
            with raise_if_snapshot_expired(context, base.id):
                live = list(live_entries(context, base, keep_entry=lambda entry: _is_in(partition, entry)))
                _check_nothing_waits(context, live, partition)
                with counted("rewriting", sum(entry.file.row_count for entry in live), "rows") as advance:
                    for batch in _rows(context, partition, base):
                        writer.write(batch)
                        advance(batch.num_rows)
            messages = writer.prepare_commit(BATCH_COMMIT_IDENTIFIER)
        except BaseException as error:
            writer.abort()
            if isinstance(error, SnapshotExpired) and attempt < _ATTEMPTS:
                continue  # there is a newer one
            raise
        try:
            values = _values(context, partition)
            commit.overwrite(Committable(BATCH_COMMIT_IDENTIFIER, messages), values or None, dynamic=False)
            return
        except CommitConflict:
            commit.abort(messages)
            if attempt == _ATTEMPTS:
                raise
        finally:
            writer.abort()


def _is_in(partition: bytes, entry: ManifestEntry) -> bool:
    return entry.partition == partition and entry.bucket >= 0


def _rows(context: TableContext, partition: bytes, base: Snapshot) -> Any:
    scan = TableScan(context, keep_entry=lambda entry: _is_in(partition, entry))
    return SnapshotReader(context, tuple(context.schema.names)).read(scan.plan(base))


def _check_nothing_waits(context: TableContext, live: Sequence[ManifestEntry], partition: bytes) -> None:
    """Raise BadInput if only a later compaction would show rows to readers, or write them to the changelog."""
    where = partition_directory(context, partition) or "the table"
    if hides_level_0(context) and any(entry.file.level == 0 for entry in live):
        raise BadInput(
            f"{context.name}: rows of {where} wait for a compaction, and a rescale would lose them. Compact the table "
            "first"
        )
    if not all(is_read_first(entry.file.level, context.options) for entry in live):
        full = " --full" if context.options.changelog_producer is ChangelogProducer.FULL_COMPACTION else ""
        raise BadInput(
            f"{context.name}: changes of {where} wait for the compaction that writes them to the changelog, and a "
            f"rescale would lose them. Run `tidelake table compact {context.name}{full}` first"
        )


def _unless_written(context: TableContext, partition: bytes, base: Snapshot) -> Callable[[Sequence[Snapshot]], None]:
    def guard(_: Sequence[Snapshot]) -> None:
        latest_id = context.snapshots.latest_id() or base.id
        for snapshot_id in range(base.id + 1, latest_id + 1):
            snapshot = context.snapshots.find(snapshot_id)
            delta = () if snapshot is None else delta_entries(context, snapshot)
            if snapshot is None or any(_adds_rows(snapshot, entry, partition) for entry in delta):
                where = partition_directory(context, partition) or "the table"
                raise CommitConflict(
                    f"{context.name}: another writer committed to {where} while it was rescaled; try again"
                )

    return guard


def _adds_rows(snapshot: Snapshot, entry: ManifestEntry, partition: bytes) -> bool:
    """Return whether a snapshot adds rows. A compaction doesn't, unless it places postponed rows into buckets."""
    if entry.partition != partition:
        return False
    if snapshot.commit_kind is CommitKind.COMPACT:
        return entry.bucket == POSTPONE_BUCKET
    return entry.bucket >= 0


def _values(context: TableContext, partition: bytes) -> dict[str, Any]:
    fields = context.schema.partition_fields
    columns = decode_rows([partition], [field.type for field in fields]) if fields else []
    return {field.name: column[0].as_py() for field, column in zip(fields, columns, strict=True)}
