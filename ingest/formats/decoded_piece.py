"""Rows of one table out of a part of a raw batch, and how such parts are put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.formats.base import TableRows, Target, Unchanged
from ingest.raw_batch import RawBatch
from storage.format import KIND_COLUMN

_KIND_FIELD = pa.field(KIND_COLUMN, pa.int8(), False)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """n rows of one target.

    rows (n,): row of the raw batch that each came from. kinds (n,): int8 row kinds. columns: in the table's order.
    flags: column name to (n,) flags of cells whose old value must stay.
    old_keys: for flagged rows that came to their key from another one, the primary key they had, as cells.
    """

    target: Target
    rows: NDArray[np.int64]
    kinds: NDArray[np.int8]
    columns: Sequence[pa.Array]
    flags: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    old_keys: Mapping[int, Sequence[object]] = field(default_factory=dict)


def assemble(pieces: Sequence[Piece], batch: RawBatch) -> TableRows:
    """The pieces of one target as one batch, in source order. At least one piece."""
    schema = pieces[0].target.schema.arrow
    rows = np.concatenate([piece.rows for piece in pieces])
    kinds = np.concatenate([piece.kinds for piece in pieces])
    columns = [pa.concat_arrays([piece.columns[i] for piece in pieces]) for i in range(len(schema))]
    whole = pa.record_batch([*columns, pa.array(kinds)], schema=schema.append(_KIND_FIELD))
    unchanged = _unchanged(pieces, whole)
    offsets = batch.offsets[rows]
    if np.any(rows[1:] < rows[:-1]):  # records of several shapes took turns
        order = np.argsort(rows, kind="stable")
        whole, offsets = whole.take(pa.array(order)), offsets[order]
        unchanged = None if unchanged is None else _reordered(unchanged, order)
    return TableRows(pieces[0].target, whole, offsets, unchanged)


def _unchanged(pieces: Sequence[Piece], whole: pa.RecordBatch) -> Unchanged | None:
    names = sorted({name for piece in pieces for name in piece.flags})
    if not names:
        return None
    flags = {
        name: np.concatenate([piece.flags.get(name, np.zeros(len(piece.rows), np.bool_)) for piece in pieces])
        for name in names
    }
    rows = np.flatnonzero(np.logical_or.reduce(list(flags.values())))
    keys = whole.select(pieces[0].target.schema.primary_keys).take(pa.array(rows))
    starts = np.cumsum([0, *(len(piece.rows) for piece in pieces)])
    moved = {
        int(start) + row: key
        for start, piece in zip(starts, pieces, strict=False)
        for row, key in piece.old_keys.items()
    }
    return Unchanged(rows, {name: flags[name][rows] for name in names}, _with_old_keys(keys, rows, moved))


def _with_old_keys(
    keys: pa.RecordBatch, rows: NDArray[np.int64], moved: Mapping[int, Sequence[object]]
) -> pa.RecordBatch:
    if not moved:
        return keys
    at = np.searchsorted(rows, sorted(moved))
    mask = np.zeros(len(rows), np.bool_)
    mask[at] = True
    replaced = [
        pa.compute.replace_with_mask(
            column, pa.array(mask), pa.array([moved[row][i] for row in sorted(moved)], column.type)
        )
        for i, column in enumerate(keys.columns)
    ]
    return pa.record_batch(replaced, schema=keys.schema)


def _reordered(unchanged: Unchanged, order: NDArray[np.int64]) -> Unchanged:
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    rows = place[unchanged.rows]
    rising = np.argsort(rows)
    return Unchanged(
        rows[rising],
        {name: flags[rising] for name, flags in unchanged.columns.items()},
        unchanged.keys.take(pa.array(rising)),
    )
