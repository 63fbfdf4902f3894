"""Rewrites files whose sequence numbers are outdated, with numbers that continue those of the newest snapshot.

Numbers are outdated if another writer committed to a bucket after they were read. Unpublished rows then get numbers
above those of the other writer. So the order of rows is the order of commits, as if our rows were written only now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.conflicts import check_buckets_unchanged
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import live_entries_of
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.writer import RollingFileWriter
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import Bucketing
from tidelake.storage.model.format import SEQUENCE_COLUMN
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.bucket_files import BucketFiles


@dataclass(frozen=True, slots=True)
class RenumberedFiles:
    """Commit messages with new sequence numbers.

    messages: without compactions, which read the files that were replaced here
    next_numbers: the next sequence number of each bucket
    """

    messages: Sequence[CommitMessage]
    next_numbers: dict[BucketId, int]


def renumber_files(
    context: TableContext, messages: Sequence[CommitMessage], manifests: ManifestStore
) -> RenumberedFiles:
    """Write the same rows to new files, with sequence numbers above all of the table's. For primary-key tables.

    The old files remain; the caller must delete them. After an error, the new files are deleted.

    Raises CommitConflict if a partition has another number of buckets now: its keys belong elsewhere.
    """
    latest = context.snapshots.latest()
    default = Bucketing.of(context.schema, context.options).total_buckets
    totals = {m.partition: m.base.total_buckets or default for m in messages}
    ends: dict[BucketId, int] = defaultdict(int)
    counts: dict[bytes, int] = {}
    for entry in live_entries_of(manifests, latest, set(totals), context.name):
        key = entry.bucket_id
        ends[key] = max(ends[key], entry.file.max_sequence_number + 1)
        if entry.total_buckets > 0:
            counts[entry.partition] = entry.total_buckets
    # The messages will say that they were read from this snapshot, so nobody compares with earlier ones any more.
    placed = {partition: total for partition, total in totals.items() if total > 0}
    check_buckets_unchanged(placed, counts, lambda one: f"{context.name} {partition_directory(context, one)}".strip())
    starts: dict[BucketId, int] = {}
    for message in messages:
        key = message.bucket
        for file in (*message.increment.new_files, *message.increment.changelog_files):
            starts[key] = min(file.min_sequence_number, starts.get(key, file.min_sequence_number))
    done: list[tuple[BucketFiles, DataFileMeta]] = []
    found, next_numbers = [], dict[BucketId, int]()
    read_id = latest.id if latest is not None else None
    try:
        for message in messages:
            key, increment = message.bucket, message.increment.without_compaction()
            files, shift = BucketFiles(context, key), ends[key] - starts.get(key, ends[key])
            data = _rewritten(files, increment.new_files, shift, files.data, done)
            changelog = _rewritten(files, increment.changelog_files, shift, files.changelog, done)
            last = max((file.max_sequence_number for file in (*data, *changelog)), default=ends[key] - 1)
            next_numbers[key] = max(last + 1, next_numbers.get(key, 0))
            renumbered = replace(increment, new_files=data, changelog_files=changelog)
            found.append(CommitMessage(key, renumbered, replace(message.base, snapshot_id=read_id)))
    except BaseException:
        for files, file in done:
            files.delete([file])
        raise
    return RenumberedFiles(found, next_numbers)


def _rewritten(
    files: BucketFiles,
    old: Iterable[DataFileMeta],
    shift: int,
    open_writer: Callable[[], RollingFileWriter],
    done: list[tuple[BucketFiles, DataFileMeta]],
) -> tuple[DataFileMeta, ...]:
    """Write one or more new files for each old one, in their order."""
    new: list[DataFileMeta] = []
    for file in old:
        writer = open_writer()
        try:
            for batch in _shifted(files.read(file), shift):
                writer.write(files.file_rows(batch))
            written = writer.close()
        except BaseException:
            writer.abort()
            raise
        done += [(files, one) for one in written]
        new += written
    return tuple(new)


def _shifted(batches: Iterator[pa.RecordBatch], shift: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        position = batch.schema.get_field_index(SEQUENCE_COLUMN)
        numbers = pc.add(batch.column(position), pa.scalar(shift, pa.int64()))
        yield batch.set_column(position, batch.schema.field(position), numbers)
