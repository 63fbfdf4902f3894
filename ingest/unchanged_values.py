"""Fills in cells that a record left out because they did not change.

Debezium leaves out large values (PostgreSQL's TOAST) that an update did not touch. Their old value must stay: it is
looked up in the rows before it, first of the same batch, then of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.formats.base import TableRows, Unchanged
from storage.format import KIND_COLUMN, RowKind

NO_OLD_ROW: Final = "a value did not change, and the row that holds it is not in the table"


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """What a record waits for: a row of another record that holds its left-out values.

    offset: of the record that waits. keys: of the table's primary key, one row as a rule.
    """

    offset: int
    table: str
    keys: pa.RecordBatch

    def may_be_in(self, rows: TableRows) -> bool:
        """Whether one of the rows may be wanted."""
        if rows.target.name != self.table:
            return False
        fits = np.ones(len(rows.rows), np.bool_)
        for name in self.keys.schema.names:
            # not `equal`: a NaN is a key like any other
            fits &= pc.is_in(rows.rows[name], value_set=self.keys[name]).to_numpy(zero_copy_only=False)
        return bool(fits.any())


class RowLookup(Protocol):
    """The newest rows of one table, those in its write buffer included."""

    def newest(self, keys: pa.RecordBatch, deleted_too: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
        """The newest row of each key.

        keys (m,): columns of the primary key. deleted_too (m,): where a row that has been deleted since is wanted as
        well. Returns found (m,), and m rows with the table's columns; rows of keys that were not found are all null.
        """
        ...


def fill_unchanged(
    batch: TableRows, unchanged: Unchanged, lookup: RowLookup
) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
    """The batch's n rows with their left-out cells filled, and which of them could not be: those must not be written.

    A record that moved a row to a new key names the old one; the row under it is usually deleted by then, and its last
    values count. In a table without primary key nothing can be looked up.
    """
    rows, n = batch.rows, len(batch.rows)
    if not unchanged.keys.schema.names:
        return rows, _marked(n, unchanged.rows)
    codes = _batch_codes(batch, unchanged)
    row_codes, wanted = codes[:n], codes[n:]
    sources = _newest_before(row_codes, np.flatnonzero(~_retracts(rows)), unchanged.rows, wanted)

    outside = np.flatnonzero(sources < 0)
    moved = wanted != row_codes[unchanged.rows]
    old = rows.slice(0, 0)
    if len(outside):
        found, old = lookup.newest(unchanged.keys.take(pa.array(outside)), moved[outside])
        # Where the values of a flagged row lie: in a row of the batch, in a looked-up one (from n on), nowhere (-1).
        sources[outside] = np.where(found, n + np.arange(len(outside)), -1)

    columns = list(rows.columns)
    lost = np.zeros(n, np.bool_)
    for name, flags in unchanged.columns.items():
        take = _settled(n + len(old), unchanged.rows[flags], sources[flags])[:n]
        lost |= take < 0
        values = pa.concat_arrays([rows[name], old[name]])
        columns[rows.schema.get_field_index(name)] = values.take(pa.array(np.where(take < 0, np.arange(n), take)))
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema), lost


def _marked(n: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    marks = np.zeros(n, np.bool_)
    marks[rows] = True
    return marks


def moved_rows(batch: TableRows, unchanged: Unchanged) -> NDArray[np.bool_]:
    """Which of the n rows lack cells and came from another key: (n,)."""
    codes = _batch_codes(batch, unchanged)
    n = len(batch.rows)
    return _marked(n, unchanged.rows[codes[n:] != codes[:n][unchanged.rows]])


def _batch_codes(batch: TableRows, unchanged: Unchanged) -> NDArray[np.int64]:
    """Key codes of the rows, then of the keys that the flagged ones have their values under."""
    names = unchanged.keys.schema.names
    if not names:
        return np.zeros(len(batch.rows) + len(unchanged.rows), np.int64)
    return _key_codes([pa.concat_arrays([batch.rows[name], unchanged.keys[name]]) for name in names])


def _key_codes(columns: Sequence[pa.Array]) -> NDArray[np.int64]:
    """One number a row, equal where all columns are."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        inner = column.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
        codes = np.unique(codes * len(column) + inner, return_inverse=True)[1]
    return codes


def _retracts(rows: pa.RecordBatch) -> NDArray[np.bool_]:
    kinds = rows[KIND_COLUMN].to_numpy()
    return np.isin(kinds, [kind for kind in RowKind if kind.is_retract])


def _newest_before(
    codes: NDArray[np.int64], candidates: NDArray[np.int64], rows: NDArray[np.int64], wanted: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each of `rows` the nearest candidate before it whose code is the wanted one; -1 where there is none.

    codes (n,): of all rows. candidates, rows: row numbers. wanted (m,): a code for each of `rows`.
    """
    width = len(codes) + 1
    ordered = np.sort(codes[candidates] * width + candidates)
    at = np.searchsorted(ordered, wanted * width + rows) - 1
    nearest = ordered[np.maximum(at, 0)] if len(ordered) else np.full(len(rows), -1)
    return np.where((at >= 0) & (nearest // width == wanted), nearest % width, -1)


def _settled(size: int, flagged: NDArray[np.int64], sources: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each row's cell of one column is to be taken from; -1: its value is nowhere.

    A source may lack the value itself, and stand for its own source. Flagged rows rise and sources lie before them, so
    one pass settles all.
    """
    take = np.arange(size)
    for row, source in zip(flagged.tolist(), sources.tolist(), strict=True):
        take[row] = take[source] if source >= 0 else -1
    return take
