"""Restores the order in which the rows of a batch were written at their source. A shuffle loses it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.ingest.formats.base import KeyChange, KeyChanges
from tidelake.ingest.spark.batch_rows import KEY_CHANGE_COLUMN, ORDER_PREFIX, TIME_COLUMN, order_columns
from tidelake.ingest.spark.shuffling.key_groups import keys_change_partition
from tidelake.ingest.spark.shuffling.shuffle import BUCKET_COLUMN
from tidelake.storage.merge.aggregate_functions import is_order_free
from tidelake.storage.merge.normalized_keys import align_keys, merge_order, normalize_column
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.table import TableContext

Order = NDArray[np.intp]

_CODE_WORDS: Final = 8
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)  # odd, so that the multiplication is invertible


def ordering_columns(names: list[str]) -> list[str]:
    """Return the columns that `source_order` needs.

    names: the names of all columns.
    """
    ordered_by = [*order_columns(names), TIME_COLUMN, KEY_CHANGE_COLUMN, KIND_COLUMN]
    return [name for name in names if name in ordered_by]


def source_order(rows: pa.RecordBatch) -> Order:
    """Return (n,) indices of the rows, oldest first. Without order columns, it is the order in which they arrived.

    For typed rows, call `check_order_is_known` before.
    """
    names = order_columns(rows.schema.names)
    if not names:
        return np.arange(rows.num_rows)
    words = [normalize_column(rows.column(name), nullable=True) for name in names]
    order, _ = merge_order(align_keys([words])[0])
    if TIME_COLUMN not in rows.schema.names:
        return order
    ordered = rows.take(pa.array(order))
    return order[_by_time(ordered)]


def check_order_is_known(parts: Sequence[pa.RecordBatch], context: TableContext) -> None:
    """Check typed rows. Raises BadInput if a key occurs twice and it is unknown which row is newer.

    Rows of a key that are equal by the order columns and the sequence fields have no order, as a shuffle loses that of
    their arrival. Without either, no two rows of a key have one. No error is raised if the result doesn't depend on the
    order, and for rows that are the same in each column, as a source sends them that repeats itself.

    It needs 8 bytes of memory per row.
    """
    schema, options = context.schema, context.options
    # If keys change their partition, the first row of a key determines the partition of its other rows.
    is_free = is_order_free(schema, options) and not keys_change_partition(context)
    if not schema.has_primary_key or is_free or not parts:
        return
    ordered_by = [*options.sequence_fields, *order_columns(parts[0].schema.names)]
    compared = list(dict.fromkeys([*schema.primary_keys, *ordered_by]))
    columns = [part.select(compared) for part in parts]
    codes = np.concatenate([_codes(of_part) for of_part in columns])
    codes.sort()  # in place
    duplicates = np.unique(codes[1:][codes[1:] == codes[:-1]])
    if not len(duplicates):
        return
    candidates = [
        part.filter(pa.array(np.isin(_codes(of_part), duplicates))).replace_schema_metadata(None)
        for part, of_part in zip(parts, columns, strict=True)
    ]
    found = _unordered_row(pa.concat_batches(candidates), compared, has_order=bool(ordered_by))
    if found is not None:
        raise _unknown_order(found, context, ordered_by)


def record_numbers(rows: pa.RecordBatch) -> NDArray[np.int64]:
    """Return rising numbers, which are equal for the rows of one record. Rows of a record are next to each other."""
    columns = [rows.column(name) for name in order_columns(rows.schema.names)]
    codes = [column.dictionary_encode().indices.to_numpy() for column in columns]
    is_new = np.logical_or.reduce([np.diff(code, prepend=code[:1]) != 0 for code in codes])
    return np.cumsum(is_new)


def key_changes(rows: pa.RecordBatch) -> KeyChanges | None:
    if KEY_CHANGE_COLUMN not in rows.schema.names:
        return None
    column = rows.column(KEY_CHANGE_COLUMN)
    places = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    return KeyChanges(places, [KeyChange(**half) for half in column.take(pa.array(places)).to_pylist()])


def _codes(keys: pa.RecordBatch) -> NDArray[np.uint64]:
    """Return (n,) codes of rows. Equal rows have equal codes, in every batch. Others rarely do, unless long texts have
    the same beginning.

    A text has as many words as the longest text of its batch, filled with 0. So a word of 0 must not change the code.
    """
    codes = np.zeros(keys.num_rows, np.uint64)
    for column in keys.columns:
        words = normalize_column(column, nullable=True)
        of_column = np.zeros(keys.num_rows, np.uint64)
        for number, word in enumerate(words.first(min(words.width, _CODE_WORDS))):
            mixed = word.view(np.uint64) * (_MIXER + np.uint64(2 * number))
            of_column += mixed ^ (mixed >> np.uint64(29))
        codes = (codes ^ of_column) * _MIXER
        codes ^= codes >> np.uint64(29)
    return codes


def _unordered_row(rows: pa.RecordBatch, compared: Sequence[str], *, has_order: bool) -> pa.RecordBatch | None:
    """Return one of two rows that are equal by the compared columns, and differ in others; None if there are none.

    has_order: False: two such rows are returned even if they don't differ.
    """
    words = [normalize_column(rows.column(name), nullable=True) for name in compared]
    order, is_last = merge_order(align_keys([words])[0])
    follows = np.flatnonzero(~is_last)  # places in `order` whose next row is equal by the compared columns
    if has_order:
        others = [name for name in rows.schema.names if name not in (*compared, BUCKET_COLUMN)]
        one, two = (rows.select(others).take(pa.array(order[follows + step])) for step in (0, 1))
        follows = follows[_rows_differ(one, two)]
    return rows.slice(int(order[follows[0]]), 1) if len(follows) else None


def _rows_differ(one: pa.RecordBatch, two: pa.RecordBatch) -> NDArray[np.bool_]:
    """Return (n,) whether two rows with the same number differ."""
    differ = np.zeros(one.num_rows, np.bool_)
    for ours, theirs in zip(one.columns, two.columns, strict=True):
        if pa.types.is_nested(ours.type):
            differ |= np.array([repr(a) != repr(b) for a, b in zip(ours.to_pylist(), theirs.to_pylist(), strict=True)])
            continue
        of_values = align_keys([[normalize_column(column, nullable=True)] for column in (ours, theirs)])
        for word, other in zip(*of_values, strict=True):
            differ |= word != other
    return differ


def _unknown_order(row: pa.RecordBatch, context: TableContext, ordered_by: Sequence[str]) -> BadInput:
    key = row.select(context.schema.primary_keys).to_pylist()[0]
    if not ordered_by:
        return BadInput(
            f"{context.name}: key {key} occurs twice in one batch, and it is unknown which row is newer: a shuffle "
            "loses arrival order. Pass order_by=[…] to sink(), set the table option sequence.field, or keep one row "
            "per key in the query"
        )
    shown = ", ".join(str(value) for value in row.select(ordered_by).to_pylist()[0].values())
    sequence = context.options.sequence_fields
    named = [f"sequence.field ({', '.join(sequence)})"] if sequence else []
    if len(ordered_by) > len(sequence):
        named.append("order_by")
    return BadInput(
        f"{context.name}: key {key} occurs twice in one batch, in rows that differ and are equal by "
        f"{' and '.join(named)} ({shown}): it is unknown which one is newer. Add a column to order_by=[…] of sink() "
        "that differs between them, such as an offset, or keep one row per key in the query. The same batch is then "
        "written after a restart"
    )


def _by_time(rows: pa.RecordBatch) -> Order:
    """Merge partitions by time. Within a partition the order is kept, even if its clock ran backwards.

    For a row that moved from one partition to another, the -D of its old key comes first, whatever the times are.

    rows: one partition after the other, by offset.
    """
    topics = rows.column(f"{ORDER_PREFIX}0").dictionary_encode().indices.to_numpy().astype(np.int64)
    partitions = topics << 32 | rows.column(f"{ORDER_PREFIX}1").to_numpy()
    edges = np.flatnonzero(np.diff(partitions, prepend=-1, append=-1))
    if len(edges) <= 2:
        return np.arange(rows.num_rows)
    times = rows.column(TIME_COLUMN).to_numpy().copy()
    halves = _matched(rows)
    for _ in range(len(halves) + 1):
        for start, stop in pairwise(edges.tolist()):
            np.maximum.accumulate(times[start:stop], out=times[start:stop])
        out_of_order = [(left, came) for left, came in halves if times[came] <= times[left]]
        for left, came in out_of_order:
            times[came] = times[left] + 1
        if not out_of_order:
            break
    return np.argsort(times, kind="stable")


def _matched(rows: pa.RecordBatch) -> list[tuple[int, int]]:
    """Return key changes with halves in different partitions: the row of the old key, and the row of the new key."""
    changes = key_changes(rows)
    if changes is None:
        return []
    kinds = rows.column(KIND_COLUMN).to_numpy()
    partitions = rows.column(f"{ORDER_PREFIX}1").to_numpy()
    by_id: dict[bytes, tuple[list[int], list[int]]] = {}
    for row, change in zip(changes.rows.tolist(), changes.changes, strict=True):
        by_id.setdefault(change.id, ([], []))[int(kinds[row] != RowKind.DELETE)].append(row)
    pairs = [pair for left, came in by_id.values() for pair in zip(left, came, strict=False)]
    return [(left, came) for left, came in pairs if partitions[left] != partitions[came]]
