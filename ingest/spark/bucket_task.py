"""The task that writes buckets: parts of some buckets in, commit messages out."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ingest.formats.base import TableRows, Target, Unchanged
from ingest.spark.batch_rows import OLD_KEY_PREFIX, ORDER_PREFIX, UNCHANGED_COLUMN, order_columns
from ingest.spark.shuffle import Kind, concat, from_ipc, part
from ingest.table_lookup import TableLookup
from ingest.unchanged_values import NO_OLD_ROW, fill_unchanged
from storage.errors import BadInput
from storage.format import KIND_COLUMN
from storage.merge.kernels import merge_order
from storage.merge.order_words import aligned_words, column_words
from storage.snapshots.snapshot import SnapshotStore
from storage.table import TableContext
from storage.write.table_writer import TableWriter


@dataclass(frozen=True)
class WriteBuckets:
    """The reduce side: for `mapInArrow` after the shuffle. What is no rows goes through to the driver.

    has_order: whether rows bear order columns. A task that is tried again writes other files: only the messages that
    reach the driver count.
    """

    context: TableContext
    has_order: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: list[pa.RecordBatch] = []
        for batch in batches:
            for kind, payload in zip(batch.column("kind").to_pylist(), batch.column("payload"), strict=True):
                if kind == Kind.ROWS:
                    parts.append(from_ipc(payload.as_buffer()))
                else:
                    yield part(0, Kind(kind), payload.as_py())
        if parts:
            yield part(0, Kind.MESSAGES, self._write(concat(parts)))

    def _write(self, rows: pa.RecordBatch) -> bytes:
        rows = self._in_order(rows)
        writer = TableWriter(self.context)
        try:
            writer.write(self._filled(rows))
            return pickle.dumps(writer.prepare_commit())
        finally:
            writer.abort()

    def _in_order(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Oldest first. Without an order, a key may occur only once (unless a sequence field decides in the table)."""
        schema, options = self.context.schema, self.context.options
        if self.has_order:
            words = [column_words(rows.column(name), nullable=True) for name in order_columns(rows.schema.names)]
            order, _ = merge_order(aligned_words([words])[0])
            return rows.take(pa.array(order))
        if schema.has_primary_key and not options.sequence_fields:
            self._check_keys_differ(rows)
        return rows

    def _check_keys_differ(self, rows: pa.RecordBatch) -> None:
        words = [column_words(rows.column(name), nullable=True) for name in self.context.schema.primary_keys]
        order, is_last = merge_order(aligned_words([words])[0])
        if not is_last.all():
            twice = rows.select(self.context.schema.primary_keys).slice(int(order[np.flatnonzero(~is_last)[0]]), 1)
            raise BadInput(
                f"{self.context.name}: key {twice.to_pylist()[0]} occurs twice in one batch, and nothing tells which row is "
                "newer: a shuffle forgets arrival order. Pass order_by=[…] to sink(), set the table option sequence.field, "
                "or keep one row a key in the query"
            )

    def _filled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Without order columns, with unchanged values looked up."""
        table_rows = rows.select([*self.context.schema.names, KIND_COLUMN])
        if UNCHANGED_COLUMN not in rows.schema.names:
            return table_rows
        flagged = np.flatnonzero(rows.column(UNCHANGED_COLUMN).is_valid().to_numpy(zero_copy_only=False))
        missing = rows.column(UNCHANGED_COLUMN).take(pa.array(flagged)).to_pylist()
        names = sorted({name for row in missing for name in row})
        keys = rows.select([OLD_KEY_PREFIX + name for name in self.context.schema.primary_keys])
        unchanged = Unchanged(
            flagged,
            {name: np.array([name in row for row in missing]) for name in names},
            keys.take(pa.array(flagged)).rename_columns(list(self.context.schema.primary_keys)),
        )
        offsets = rows.column(f"{ORDER_PREFIX}2").to_numpy()
        target = Target(self.context.name, self.context.schema)
        snapshot = SnapshotStore(self.context.io, self.context.paths).latest()
        filled, lost = fill_unchanged(
            TableRows(target, table_rows, offsets, unchanged), unchanged, TableLookup(self.context, snapshot)
        )
        if lost.any():
            row = int(np.flatnonzero(lost)[0])
            topic, partition = (rows.column(f"{ORDER_PREFIX}{i}")[row].as_py() for i in (0, 1))
            raise BadInput(
                f"topic {topic}, partition {partition}, offset {offsets[row]}: {NO_OLD_ROW}. Set REPLICA IDENTITY FULL at "
                "the source, or snapshot the source table again"
            )
        return filled
