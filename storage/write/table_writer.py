"""Rows of one table in; commit messages out.

Source: Java `table/sink/TableWriteImpl.java`, `operation/AbstractFileStoreWrite.java`; commit-protocol notes section 2.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa

from storage.bucketing import Bucketing
from storage.errors import BadInput, TidelakeError
from storage.files.data_file import DataFileMeta
from storage.merge.merge_functions import Deduplicate
from storage.merge.merge_reader import MergeOrder
from storage.option_support import Operation, check_supported
from storage.snapshots.commit_message import CommitMessage
from storage.table import TableContext
from storage.write.bucket_files import BucketFiles
from storage.write.bucket_writer import AppendBucketWriter, BucketWriter, PrimaryKeyBucketWriter
from storage.write.conform import Conformer
from storage.write.memory_budget import MemoryBudget
from storage.write.restore import TableState, restore
from storage.write.router import BucketKey, Router


class TableWriter:
    """Gathers rows in one buffer a bucket; `prepare_commit` turns them into durable files that nobody sees yet.

    memory: shared with other writers of the process; None takes a budget of its own from option `write-buffer-size`.
    spill_directory: for rows that must leave memory before their flush; None is the system's temporary directory.

    Call it from one thread at a time. After an error other than BadInput the writer is done for: `abort` it, open
    another, and write again what was not committed.
    """

    def __init__(
        self, context: TableContext, *, memory: MemoryBudget | None = None, spill_directory: str | None = None
    ) -> None:
        check_supported(context, Operation.WRITE)
        self._context = context
        self._bucketing = Bucketing.of(context.schema, context.options)
        self._conformer = Conformer(context.schema, context.options, context.name)
        self._router = Router(context.schema, self._bucketing)
        self._memory = memory or MemoryBudget(context.options.write_buffer_size_bytes)
        self._spill_directory = spill_directory
        self._state: TableState | None = None
        self._bases: dict[BucketKey, int | None] = {}  # where not the snapshot that `_state` was read from
        self._prepared: list[BucketKey] = []
        self._next_sequence_numbers: dict[BucketKey, int] = {}
        self._buckets: dict[BucketKey, BucketWriter] = {}
        self._failure: BaseException | None = None

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Columns by name; optional int8 column `_VALUE_KIND` (0 +I, 1 -U, 2 +U, 3 -D). Order of rows is order of
        writes.

        Raises BadInput when they don't fit the table: then none of them were taken.
        """
        if not isinstance(rows, pa.RecordBatch | pa.Table):
            raise BadInput(
                f"{self._context.name}: rows are written as a pyarrow RecordBatch or Table, not as "
                f"{type(rows).__name__}. Convert them: pyarrow.Table.from_pylist, from_pydict, from_pandas"
            )
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        for batch in [self._conformer.conform(batch) for batch in batches]:
            parts = self._router.route(batch)
            with self._fatal_errors():
                for key, part in parts:
                    self._bucket(key).write(part)
                self._memory.rebalance()

    def prepare_commit(self) -> list[CommitMessage]:
        """Flush every bucket, in threads. Returns one message for each bucket that has new files, and forgets them.

        A bucket without new files since the last call is closed: a table with a partition a day must not keep them all.
        """
        with self._fatal_errors():
            writers = list(self._buckets.items())
            if not writers:
                return []
            with ThreadPoolExecutor(min(len(writers), os.cpu_count() or 1), "flush") as threads:
                flushed = list(threads.map(lambda item: item[1].prepare_commit(), writers))
            messages = []
            for (key, writer), (data, changelog) in zip(writers, flushed, strict=True):
                if data or changelog:
                    messages.append(self._message(key, data, changelog))
                else:
                    self._close_bucket(key, writer)
            self._prepared += [BucketKey(message.partition, message.bucket) for message in messages]
            return messages

    def committed(self, snapshot_id: int) -> None:
        """What `prepare_commit` handed over is in this snapshot; nobody interfered with its buckets up to it.

        Other buckets keep their base: someone may have written to them, and their sequence numbers don't know.
        """
        self._bases.update(dict.fromkeys(self._prepared, snapshot_id))
        self._prepared = []
        for bucket in self._buckets.values():
            bucket.committed()

    def uncommitted(self) -> Iterator[pa.RecordBatch]:
        """All versions of rows written here that no snapshot holds: table columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`.

        Only for primary-key tables; batches of one bucket come oldest first.
        """
        for bucket in self._buckets.values():
            yield from bucket.uncommitted()

    def abort(self) -> None:
        """Drop all rows and files not handed over by `prepare_commit`. Afterwards the writer is empty; calling again
        is harmless.
        """
        for bucket in self._buckets.values():
            self._memory.leave(bucket)
        for bucket in self._buckets.values():
            bucket.abandon()
        self._buckets = {}

    @property
    def held_bytes(self) -> int:
        return sum(bucket.held_bytes for bucket in self._buckets.values())

    def _bucket(self, key: BucketKey) -> BucketWriter:
        if key not in self._buckets:
            self._buckets[key] = self._open_bucket(key)
            self._memory.join(self._buckets[key])
        return self._buckets[key]

    def _message(self, key: BucketKey, data: list[DataFileMeta], changelog: list[DataFileMeta]) -> CommitMessage:
        return CommitMessage(
            partition=key.partition,
            bucket=key.bucket,
            total_buckets=self._bucketing.total_buckets,
            new_files=tuple(data),
            changelog_files=tuple(changelog),
            base_snapshot_id=self._bases.get(key, self._restored().snapshot_id),
        )

    def _close_bucket(self, key: BucketKey, writer: BucketWriter) -> None:
        self._memory.leave(writer)
        self._next_sequence_numbers[key] = writer.next_sequence_number
        del self._buckets[key]

    def _open_bucket(self, key: BucketKey) -> BucketWriter:
        state = self._restored()
        state.check_total_buckets(key.partition, self._bucketing.total_buckets, self._context.name)
        next_sequence_number = self._next_sequence_numbers.get(key, 0)
        files = BucketFiles(self._context, key)
        schema, options = self._context.schema, self._context.options
        if not schema.has_primary_key:
            return AppendBucketWriter(self._context, files, next_sequence_number)
        order = MergeOrder(schema.trimmed_primary_keys, options.sequence_fields, options.sequence_descending)
        return PrimaryKeyBucketWriter(
            self._context,
            files,
            order,
            Deduplicate(options.ignore_delete),
            next_sequence_number,
            self._spill_directory,
        )

    def _restored(self) -> TableState:
        """Read when the first row asks for it: opening a writer costs nothing."""
        if self._state is None:
            self._state = restore(self._context)
            self._next_sequence_numbers = dict(self._state.next_sequence_numbers)
        return self._state

    @contextmanager
    def _fatal_errors(self) -> Iterator[None]:
        if self._failure is not None:
            raise TidelakeError(
                f"{self._context.name}: this writer failed before ({self._failure}). Nothing was committed since: "
                "open a new writer and write again what was not committed"
            ) from self._failure
        try:
            yield
        except BaseException as e:
            self._failure = e
            raise
