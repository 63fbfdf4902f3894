"""Reads all keys of a table and their buckets from one snapshot, to build the index of a writer.

All levels are read and merged, also where readers skip level 0: a key has a bucket as soon as its first row is written.

Source: Java `crosspartition/IndexBootstrap.java`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidelake.storage.base import env
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import deletion_files, live_entries_of
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.merge.merge_functions import merge_function_of
from tidelake.storage.merge.merge_reader import drop_retracts
from tidelake.storage.merge.section_merge import SectionMerge
from tidelake.storage.merge.sorted_run import Section, SortedRun, interval_partition, key_ranges
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile, read_vector
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField
from tidelake.storage.write.assigners.cross_partition.key_words import IndexWords, index_words

_BUFFERED_BATCHES: Final = 4  # batches that were read and wait to be added to the index


@dataclass(frozen=True, slots=True, eq=False)
class BucketKeys:
    """The keys of one bucket.

    keys: the words of n distinct keys; their order does not matter
    """

    bucket: BucketId
    keys: IndexWords


@dataclass(frozen=True, slots=True)
class _Task:
    """A section of a bucket. No other section has its keys."""

    bucket: BucketId
    section: Section


def read_keys(
    context: TableContext, snapshot: Snapshot | None, *, created_since_ms: int | None, at_once: int
) -> Iterator[BucketKeys]:
    """Read all keys that have a row in the snapshot.

    created_since_ms: skip sections whose files are all older; None: skip none.
    at_once: number of sections to read in parallel, at most the number of cores
    """
    live = live_entries_of(context.shared(ManifestStore), snapshot, None, context.name)
    files: dict[BucketId, list[DataFileMeta]] = defaultdict(list)
    for entry in live:
        files[entry.bucket_id].append(entry.file)
    key_types = [field.type for field in context.schema.key_fields]
    tasks = [
        _Task(bucket, section)
        for bucket, of_bucket in files.items()
        for section in interval_partition(key_ranges(of_bucket, key_types))
        if created_since_ms is None or _is_newer(section, created_since_ms)
    ]
    has_vectors = context.options.deletion_vectors_enabled and snapshot is not None
    vectors = deletion_files(context, snapshot) if has_vectors and snapshot is not None else {}
    reader = _KeyReader(context, vectors)
    yield from _in_threads(reader, tasks, max(1, min(at_once, len(tasks), os.cpu_count() or 1)))


def _is_newer(section: Section, since_ms: int) -> bool:
    made = [file.created_epoch_ms for run in section for file in run]
    return any(one is None or one >= since_ms for one in made)


class _KeyReader:
    """Reads the keys of one section.

    vectors: the deletion files of each data file, by partition and bucket.
    """

    def __init__(self, context: TableContext, vectors: dict[BucketId, dict[str, DeletionFile]]) -> None:
        self._context = context
        self._vectors = vectors
        self._merge_function = merge_function_of(context)
        self._names = context.schema.primary_keys

    def read(self, task: _Task) -> Iterator[BucketKeys]:
        for batch in self._rows(task):
            if batch.num_rows:
                yield BucketKeys(task.bucket, index_words([batch.column(name) for name in self._names]))

    def _rows(self, task: _Task) -> Iterator[pa.RecordBatch]:
        directory = bucket_directory(self._context, *task.bucket)
        vectors = self._vectors.get(task.bucket, {})
        merging = SectionMerge.of(self._context, task.section)

        def read(run: SortedRun, fields: Sequence[DataField]) -> Iterator[pa.RecordBatch]:
            for file in run:
                deletion = vectors.get(file.file_name)
                yield from read_data_file(
                    self._context,
                    file,
                    data_file_path(directory, file),
                    fields,
                    partition=task.bucket[0],
                    batch_rows=merging.batch_size.rows,
                    batch_bytes=merging.batch_size.bytes,
                    deleted=None if deletion is None else read_vector(self._context.io, deletion),
                )

        fields = self._fields(merging)
        if len(task.section) == 1:
            yield from drop_retracts(read(task.section[0], fields))
            return
        merge = self._merge_function
        merged = merging.merge(lambda run: read(run, fields), fields, merge.merge, newest_wins=merge.newest_wins)
        yield from drop_retracts(merged)

    def _fields(self, merging: SectionMerge) -> list[DataField]:
        """Return the key columns and the columns that are needed to find deleted keys."""
        return merging.fields_read(self._names, self._merge_function, kinds=True)


def _in_threads(reader: _KeyReader, tasks: Sequence[_Task], threads: int) -> Iterator[BucketKeys]:
    """Yield the keys as soon as they are read. At most a few batches wait for the consumer, so memory is bounded."""
    if threads <= 1:
        for task in tasks:
            yield from reader.read(task)
        return
    read: env.Queue[BucketKeys | None] = env.Queue(_BUFFERED_BATCHES)
    is_stopped = env.Event()

    def run(task: _Task) -> None:
        try:
            for keys in reader.read(task):
                if is_stopped.is_set():
                    return
                read.put(keys)
        finally:
            read.put(None)

    with env.ThreadPoolExecutor(threads, "key-index") as pool:
        running = [pool.submit(run, task) for task in tasks]
        left = len(tasks)
        try:
            while left:
                keys = read.get()
                if keys is None:
                    left -= 1
                else:
                    yield keys
        finally:
            is_stopped.set()
            left -= sum(future.cancel() for future in running)
            while left > 0:  # unblocks threads that wait for room in the queue
                left -= read.get() is None
        for future in running:
            future.result()
