"""Finds the newest row of each key of a batch, among committed rows and rows that a writer has not committed yet.

This is used for values that a change record leaves out because they did not change (PostgreSQL's unchanged TOAST
values), and for tables that keep deleted rows or the versions of rows. All versions of the keys are read from all
levels, and merged once. It should be called for batches, not for each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.merge.merge_functions import merge_function_of
from tidelake.storage.merge.merge_reader import MergeOrder, drop_retracts, merge_batch
from tidelake.storage.merge.normalized_keys import align_keys, normalize_column
from tidelake.storage.model.deletion_vectors.vector_file import read_vector
from tidelake.storage.model.format import KIND_COLUMN, LEVEL_COLUMN, SEQUENCE_COLUMN
from tidelake.storage.model.schema.table_schema import KIND_FIELD, LEVEL_FIELD, SEQUENCE_FIELD
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import arrow_field
from tidelake.storage.read.predicate import And, IsIn, IsNan, Or, Predicate
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.state_files import StateFiles

_BATCH_ROWS: Final = 65_536


def lookup_newest_rows(
    context: TableContext,
    snapshot: Snapshot | None,
    keys: pa.RecordBatch,
    uncommitted: Iterable[pa.RecordBatch] = (),
) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
    """Return the row of each key as merged by the table's merge engine. Only for primary-key tables.

    keys (m,): the columns of the primary key, in the table's types. A key may occur more than once.
    uncommitted: rows that are not in the snapshot, with the table's columns, `_VALUE_KIND` and `_SEQUENCE_NUMBER`.

    Returns (found (m,), rows (m,)). The rows have the table's columns, which are all null if no row was found.
    """
    merged = _matching(context, snapshot, keys, uncommitted)
    if not merged.num_rows:
        return np.zeros(keys.num_rows, np.bool_), merged.take(pa.nulls(keys.num_rows, pa.int64()))
    codes, of_keys = _codes(keys, merged)
    row_of_code = np.full(int(max(codes.max(initial=-1), of_keys.max(initial=-1))) + 1, -1)
    row_of_code[codes] = np.arange(merged.num_rows)
    at = row_of_code[of_keys]
    found: NDArray[np.bool_] = at >= 0
    return found, merged.take(pa.array(at, mask=~found))


def lookup_rows_with(
    context: TableContext,
    snapshot: Snapshot | None,
    keys: pa.RecordBatch,
    uncommitted: Iterable[pa.RecordBatch] = (),
) -> pa.RecordBatch:
    """Return all rows that have one of these values in some columns of the primary key, with the table's columns.

    keys (m,): columns of the primary key, in the table's types.
    uncommitted: as above.
    """
    merged = _matching(context, snapshot, keys, uncommitted)
    if not merged.num_rows or keys.num_columns == 1:
        return merged  # one column's values are exact
    codes, of_keys = _codes(keys, merged)
    return merged.filter(pa.array(np.isin(codes, of_keys)))


def _matching(
    context: TableContext, snapshot: Snapshot | None, keys: pa.RecordBatch, uncommitted: Iterable[pa.RecordBatch]
) -> pa.RecordBatch:
    """Return the merged rows that have one of the values of each of these columns of the primary key."""
    names = context.schema.names
    target = pa.schema([field.with_nullable(True) for field in context.schema.arrow])
    values = {name: pc.unique(keys.column(name)) for name in keys.schema.names}
    committed = _committed(context, snapshot, And(tuple(_is_one_of(name, of) for name, of in values.items())))
    # batch by batch, because all batches together may be the whole table
    parts = [_with_one_of(batch, values) for batch in chain(committed, map(_on_level_0, uncommitted))]
    columns = [*names, SEQUENCE_COLUMN, KIND_COLUMN, LEVEL_COLUMN]
    versions = pa.Table.from_batches([part.select(columns) for part in parts]) if parts else None
    if versions is None or not versions.num_rows:
        return pa.RecordBatch.from_pylist([], target)
    return _merged(context, versions.combine_chunks().to_batches()[0]).select(names).cast(target)


def _with_one_of(batch: pa.RecordBatch, values: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return the rows that have one of these values in each of these columns.

    With several columns these are more rows than those with the keys.
    """
    # kernels: a batch often has few rows, and an expression is prepared for each batch anew
    return batch.filter(reduce(pc.and_, [pc.is_in(batch.column(name), value_set=of) for name, of in values.items()]))


def _is_one_of(name: str, values: pa.Array) -> Predicate:
    """Return a condition that skips files. It also matches NaN: in Java NaN is a key like others."""
    is_one = IsIn(name, values)
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return Or((is_one, IsNan(name)))
    return is_one


def _committed(context: TableContext, snapshot: Snapshot | None, condition: Predicate) -> Iterator[pa.RecordBatch]:
    fields = [*context.schema.fields, SEQUENCE_FIELD, KIND_FIELD, LEVEL_FIELD]
    for split in TableScan(context, condition, files=StateFiles.ALL).plan(snapshot):
        directory = bucket_directory(context, split.partition, split.bucket)
        for file in split.files:
            deletion = split.deletion_files.get(file.file_name)
            yield from read_data_file(
                context,
                file,
                data_file_path(directory, file),
                fields,
                partition=split.partition,
                batch_rows=_BATCH_ROWS,
                deleted=None if deletion is None else read_vector(context.io, deletion),
            )


def _on_level_0(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(arrow_field(LEVEL_FIELD), pa.array(np.zeros(batch.num_rows, np.int32)))


def _merged(context: TableContext, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the row of each key that has one.

    The rows are in key order. If keys can move between partitions, rows of different partitions are merged separately,
    because sequence numbers are only comparable within a partition. A key is deleted in the partition that it left.
    """
    keys = dict.fromkeys([*context.schema.primary_keys, *context.schema.partition_keys])
    order = MergeOrder.of(tuple(keys), context.options)
    return next(drop_retracts(iter([merge_batch(rows, order, merge_function_of(context).merge)])))


def _codes(keys: pa.RecordBatch, rows: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a number for each row, and for each key. Numbers are equal if the columns of the keys are equal."""
    of_rows = rows.select(keys.schema.names)
    both = align_keys([[normalize_column(c, nullable=True) for c in batch.columns] for batch in (of_rows, keys)])
    words = np.stack([np.concatenate(pair).astype(np.uint64) for pair in zip(*both, strict=True)], axis=1)
    _, codes = np.unique(words, axis=0, return_inverse=True)
    return codes[: rows.num_rows], codes[rows.num_rows :]
