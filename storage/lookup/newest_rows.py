"""The newest row for each of a batch of keys: committed ones, and those a writer still holds.

For values that a change record leaves out because they did not change (PostgreSQL's unchanged TOAST values). All
versions of the keys are read, wherever they lie, and merged once. Not meant to be called once a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.files.bucket_directory import bucket_directory, data_file_path
from storage.files.reader import read_data_file
from storage.format import KIND_COLUMN, SEQUENCE_COLUMN
from storage.merge.kernels import merge_order
from storage.merge.merge_functions.deduplicate import is_retract
from storage.merge.order_words import aligned_words, column_words
from storage.read.predicate import And, IsIn, Predicate
from storage.read.scan import TableScan
from storage.schema import KIND_FIELD, SEQUENCE_FIELD
from storage.snapshots.snapshot import Snapshot
from storage.table import TableContext

_BATCH_ROWS: Final = 65_536


def newest_rows(
    context: TableContext,
    snapshot: Snapshot | None,
    keys: pa.RecordBatch,
    deleted_too: NDArray[np.bool_],
    uncommitted: Iterable[pa.RecordBatch] = (),
) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
    """The newest row of each key, deduplicating; only for primary-key tables.

    keys (m,): the primary key columns, in the table's types; a key may occur twice.
    deleted_too (m,): where a key that was deleted since still gives its last row, if a file still has it.
    uncommitted: rows that are not in the snapshot: the table's columns, `_VALUE_KIND` and `_SEQUENCE_NUMBER`.
    Returns (found (m,), rows (m,) with the table's columns, all null where nothing was found).
    """
    names = context.schema.names
    target = pa.schema([field.with_nullable(True) for field in context.schema.arrow])
    condition = _condition_on(keys)
    expression = condition.expression(context.schema.arrow)
    parts = [batch.filter(expression) for batch in (*_committed(context, snapshot, condition), *uncommitted)]
    columns = [*names, SEQUENCE_COLUMN, KIND_COLUMN]
    versions = pa.Table.from_batches([part.select(columns) for part in parts]) if parts else None
    if versions is None or not versions.num_rows:
        nothing = pa.RecordBatch.from_pylist([], target)
        return np.zeros(keys.num_rows, np.bool_), nothing.take(pa.nulls(keys.num_rows, pa.int64()))
    rows = versions.combine_chunks().to_batches()[0]
    visible, last_added = _winners(context, rows)
    at = np.where(deleted_too, _positions(keys, rows, last_added), _positions(keys, rows, visible))
    found: NDArray[np.bool_] = at >= 0
    return found, rows.select(names).cast(target).take(pa.array(at, mask=~found))


def _condition_on(keys: pa.RecordBatch) -> Predicate:
    """True for every row whose key is among these (and, where a key has several columns, for some others)."""
    parts = tuple(IsIn(name, tuple(set(keys.column(name).to_pylist()))) for name in keys.schema.names)
    return parts[0] if len(parts) == 1 else And(parts)


def _committed(context: TableContext, snapshot: Snapshot | None, condition: Predicate) -> Iterator[pa.RecordBatch]:
    fields = [*context.schema.fields, SEQUENCE_FIELD, KIND_FIELD]
    for split in TableScan(context, condition).plan(snapshot):
        directory = bucket_directory(context, split.partition, split.bucket)
        for file in split.files:
            path = data_file_path(directory, file)
            yield from read_data_file(context, file, path, fields, partition=split.partition, batch_rows=_BATCH_ROWS)


def _winners(context: TableContext, rows: pa.RecordBatch) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices of each key's newest row unless that is a retract, and of each key's newest added row."""
    options = context.options
    keys = aligned_words([[column_words(rows.column(n), nullable=True) for n in context.schema.primary_keys]])[0]
    added = ~is_retract(rows.column(KIND_COLUMN).to_numpy())
    sequences = [
        word
        for name in options.sequence_fields
        for word in column_words(rows.column(name), nullable=True, descending=options.sequence_descending)
    ]
    sequences += [rows.column(SEQUENCE_COLUMN).to_numpy(), added.astype(np.int64)]
    order, is_last = merge_order(keys, sequences)
    newest = order[is_last]
    only_added = order[added[order]]
    of_added, last_of_added = merge_order(
        tuple(word[only_added] for word in keys), [np.arange(len(only_added), dtype=np.int64)]
    )
    return newest[added[newest]], only_added[of_added[last_of_added]]


def _positions(keys: pa.RecordBatch, rows: pa.RecordBatch, candidates: NDArray[np.intp]) -> NDArray[np.int64]:
    """For each key, which of the candidate rows has it; -1 for none. No two candidates have one key."""
    of_rows = rows.select(keys.schema.names).take(pa.array(candidates))
    both = aligned_words([[column_words(c, nullable=True) for c in batch.columns] for batch in (of_rows, keys)])
    words = np.stack([np.concatenate(pair).astype(np.uint64) for pair in zip(*both, strict=True)], axis=1)
    _, codes = np.unique(words, axis=0, return_inverse=True)
    row_of_code = np.full(int(codes.max(initial=-1)) + 1, -1)
    row_of_code[codes[: len(candidates)]] = candidates
    return row_of_code[codes[len(candidates) :]]
