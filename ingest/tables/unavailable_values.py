"""Fills in values that a record left out because they did not change.

1. Some sources leave out large values (PostgreSQL's TOAST) that an update did not change. The old value must stay.
2. The old value is in the row before the record, in the same batch or in the table.
3. If the record moved the row to another key, it is in the row as it left its old key
(`tidelake.ingest.tables.moved_rows`). The
   record that deletes it there may be in another batch, and may not have arrived yet.
4. A killed connector sends records again. The row of a repeated update may be deleted already, by a record that the
   table has. The update is left out if the batch has a later record of its key, which defines the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.ingest.formats.base import KeyChange, TableRows, UnavailableValues
from tidelake.ingest.tables.earlier_rows import RowLookup, key_codes, newest_before, resolve_sources
from tidelake.ingest.tables.moved_rows import (
    MERGED_ROW_REASON,
    NOT_IN_TABLE_REASON,
    READ_AGAIN_REASON,
    MovedRow,
    MovedRows,
)
from tidelake.storage.model.format import KIND_COLUMN, RowKind

VERSIONS_REASON: Final = (
    "a value did not change, and the record leaves it out, but a version of a row needs all values. Let the source "
    "send all columns (PostgreSQL: REPLICA IDENTITY FULL)"
)
NO_OLD_ROW_REASON: Final = "a value did not change, and the row that holds it is not in the table"
_NO_SOURCE: Final = -1
# Default values that a connector sends for unknown columns are never this long.
_LENGTH_OF_REAL_VALUES: Final = 64


@dataclass(frozen=True, slots=True)
class AwaitedRow:
    """A moved row that a record waits for: its deletion under the old key has not arrived yet.

    offset: the offset of the waiting record.
    """

    offset: int
    table: str
    change: KeyChange


@dataclass(frozen=True, slots=True, eq=False)
class FilledRows:
    """The rows of a batch with looked-up values.

    rows: the batch's n rows, with unavailable values filled in.
    lost: (n,) rows whose values were not found. They must not be written.
    reasons: the reason of each lost row, by row number. Rows that a later record of the batch replaces have none.
    waiting: lost rows whose key change has a half that another batch may still deliver.
    """

    rows: pa.RecordBatch
    lost: NDArray[np.bool_]
    reasons: Mapping[int, str]
    waiting: Mapping[int, KeyChange]

    @staticmethod
    def of(batch: TableRows) -> FilledRows:
        """Return the rows of a batch without unavailable values."""
        return FilledRows(batch.rows, np.zeros(len(batch.rows), np.bool_), {}, {})


def fill_unavailable(
    batch: TableRows, unavailable: UnavailableValues, lookup: RowLookup, moved: MovedRows, read_again: NDArray[np.bool_]
) -> FilledRows:
    """Fill in the unavailable values of a batch. No value can be looked up in a table without a
    primary key, or with versions of rows.

    read_again: (n,) rows whose records the table has had before.
    """
    rows, n = batch.rows, len(batch.rows)
    if not unavailable.keys.schema.names:
        lost = np.zeros(n, np.bool_)
        lost[unavailable.rows] = True
        no_key = f"{NO_OLD_ROW_REASON}: the table has no primary key by which the row could be found"
        reason = no_key if batch.target.versions is None else VERSIONS_REASON
        return FilledRows(rows, lost, dict.fromkeys(unavailable.rows.tolist(), reason), {})
    origins = _ValueSources.of(batch, unavailable, moved, read_again)
    versions = _RowVersions(batch)
    sources = versions.before(origins.keys, origins.before)
    sources[~origins.are_looked_up] = _NO_SOURCE
    # The source of a flagged row's values: a row of the batch, a looked-up row (from n on), or a kept moved row.
    outside = np.flatnonzero(origins.are_looked_up & (sources == _RowVersions.OUTSIDE))
    found, old = (
        lookup.newest(origins.keys.take(pa.array(outside))) if len(outside) else (outside > 0, rows.slice(0, 0))
    )
    sources[outside] = np.where(found, n + np.arange(len(outside)), _NO_SOURCE)
    kept = list(origins.kept)
    sources[kept] = n + len(old) + np.arange(len(kept))

    columns = list(rows.columns)
    lost = np.zeros(n, np.bool_)
    for name, flags in unavailable.columns.items():
        usable = np.where(flags & origins.knows(name), sources, _NO_SOURCE)
        take = resolve_sources(n + len(old) + len(kept), unavailable.rows[flags], usable[flags])[:n]
        lost |= take < 0
        cells = pa.concat_arrays([rows[name], old[name], *(values[name] for values in origins.kept_values)])
        columns[rows.schema.get_field_index(name)] = cells.take(pa.array(np.where(take < 0, np.arange(n), take)))
    filled = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
    needed = lost.copy()
    needed[unavailable.rows[origins.are_looked_up]] &= ~versions.are_replaced(
        unavailable.rows[origins.are_looked_up], lost
    )
    reasons = {row: origins.reason(at) for at, row in enumerate(unavailable.rows.tolist()) if needed[row]}
    return FilledRows(filled, lost, reasons, {row: change for row, change in origins.waiting.items() if lost[row]})


def rows_leaving_key(
    batch: TableRows,
    filled: FilledRows,
    at: NDArray[np.int64],
    lookup: RowLookup,
    moved: MovedRows,
    read_again: NDArray[np.bool_],
) -> list[MovedRow]:
    """Return the values of rows that are deleted under their old key, and whose new key is not in this batch.

    batch: the decoded batch
    filled: its rows with looked-up values
    at: (k,) the deleted rows, rising
    read_again: (n,) rows whose records the table has had before
    """
    assert batch.key_changes is not None
    changes = [batch.key_changes.changes[place] for place in np.searchsorted(batch.key_changes.rows, at).tolist()]
    names = batch.target.schema.names
    keys = batch.rows.select(batch.target.schema.primary_keys).take(pa.array(at))
    trusted = ~read_again[at] & batch.target.holds_source_rows
    sources = np.where(trusted, _RowVersions(batch).before(keys, at), _NO_SOURCE)
    sources[(sources >= 0) & filled.lost[np.maximum(sources, 0)]] = _NO_SOURCE
    outside = np.flatnonzero(sources == _RowVersions.OUTSIDE)
    rows = filled.rows.select(names)
    old = rows.slice(0, 0)
    if len(outside):
        found, old = lookup.newest(keys.take(pa.array(outside)))
        sources[outside] = np.where(found, len(rows) + np.arange(len(outside)), _NO_SOURCE)
    take = pa.array(sources, mask=sources < 0)
    sent_rows = batch.rows.take(pa.array(at))
    is_sent = {name: certain_source_values(sent_rows[name]) for name in names}
    columns = [
        pc.if_else(pa.array(is_sent[name]), sent_rows[name], pa.concat_arrays([rows[name], old[name]]).take(take))
        for name in names
    ]
    fields = [field.with_nullable(True) for field in batch.target.schema.arrow]
    values = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    why = NOT_IN_TABLE_REASON if batch.target.holds_source_rows else MERGED_ROW_REASON
    left = []
    for i, change in enumerate(changes):
        known = [name for name in names if sources[i] >= 0 or is_sent[name][i]]
        one = values.take(pa.array([i])) if known else None  # not a slice, which would keep all rows in memory
        reason = READ_AGAIN_REASON if read_again[at[i]] else why
        left.append(MovedRow(change, one, moved.now_ms, frozenset(names) - frozenset(known), reason))
    return left


def certain_source_values(column: pa.Array) -> NDArray[np.bool_]:
    """Return which cells of before images are certainly values of the source.

    PostgreSQL knows the old row only with REPLICA IDENTITY FULL, and a record doesn't show whether this is set. Default
    values that connectors send instead are short: zeros and empty texts.
    """
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        is_sent = pc.greater(pc.binary_length(column), _LENGTH_OF_REAL_VALUES)
    elif pa.types.is_list(column.type):
        is_sent = pc.greater(pc.list_value_length(column), 0)
    elif pa.types.is_map(column.type):  # Arrow's function only counts entries of lists
        lengths = np.diff(column.offsets.to_numpy())
        is_sent = pa.array(lengths > 0, mask=column.is_null().to_numpy(zero_copy_only=False))
    else:
        return np.zeros(len(column), np.bool_)
    flags: NDArray[np.bool_] = is_sent.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


# ---------------------------------------------------------------- sources of a flagged row's values


@dataclass(frozen=True, slots=True, eq=False)
class _ValueSources:
    """Where the values of the m flagged rows of a batch come from.

    keys: (m,) the key under which the old row is looked up.
    before: (m,) the row of the batch before which the old row is searched.
    are_looked_up: (m,) whether `keys` and `before` apply.
    kept: index of a flagged row to its kept moved row.
    unknown: index of a flagged row to the reason why the values of its moved row are unknown.
    waiting: row of the batch to the key change whose other half has not arrived.
    """

    keys: pa.RecordBatch
    before: NDArray[np.int64]
    are_looked_up: NDArray[np.bool_]
    kept: Mapping[int, MovedRow]
    unknown: Mapping[int, str]
    waiting: Mapping[int, KeyChange]

    @staticmethod
    def of(
        batch: TableRows, unavailable: UnavailableValues, moved: MovedRows, read_again: NDArray[np.bool_]
    ) -> _ValueSources:
        m = len(unavailable.rows)
        # A record that alone moves a row also gives a -D before it. The old row is before both.
        before = np.searchsorted(batch.offsets, batch.offsets[unavailable.rows])
        needs_lookup = np.ones(m, np.bool_)
        names = unavailable.keys.schema.names
        own = batch.rows.select(names)
        # Indices into the rows' own keys, followed by the keys in `unavailable`.
        take = np.arange(len(own), len(own) + m)
        kept: dict[int, MovedRow] = {}
        unknown: dict[int, str] = {}
        waiting: dict[int, KeyChange] = {}
        not_left = "" if batch.key_changes is None else f"no {batch.key_changes.departure} has arrived"
        for row, change, left, is_again in _matched(batch, moved):
            index = int(np.searchsorted(unavailable.rows, row))
            if index == m or unavailable.rows[index] != row:
                continue  # the row has all its values
            if isinstance(left, MovedRow) and left.values is not None:
                kept[index], needs_lookup[index] = left, False
            elif is_again or read_again[row]:
                take[index] = row  # the table has its later version; later records are sent again, too
            elif isinstance(left, int):
                before[index] = take[index] = left
            else:
                needs_lookup[index] = False
                if left is None:
                    unknown[index] = _reason(change, not_left)
                    waiting[row] = change
                else:
                    unknown[index] = _reason(change, left.why_unknown)
        keys = pa.RecordBatch.from_arrays(
            [pa.concat_arrays([own[name], unavailable.keys[name]]).take(pa.array(take)) for name in names], names
        )
        return _ValueSources(keys, before, needs_lookup, kept, unknown, waiting)

    @property
    def kept_values(self) -> list[pa.RecordBatch]:
        return [row.values for row in self.kept.values() if row.values is not None]

    def knows(self, name: str) -> NDArray[np.bool_]:
        """Return (m,) flags: False if the kept moved row lacks a value of this column."""
        flags = np.ones(len(self.before), np.bool_)
        flags[[index for index, row in self.kept.items() if name in row.unknown]] = False
        return flags

    def reason(self, index: int) -> str:
        """Return the reason why values of the flagged row were not found."""
        if index in self.kept:
            return _reason(self.kept[index].change, self.kept[index].why_unknown)
        key = ", ".join(f"{name}={value}" for name, value in self.keys.slice(index, 1).to_pylist()[0].items())
        return self.unknown.get(index, f"{NO_OLD_ROW_REASON}: {key}")


def _reason(change: KeyChange, why: str) -> str:
    return f"a value did not change, and the values of the row under its old key are unknown: {why} ({change})"


def _matched(batch: TableRows, moved: MovedRows) -> list[tuple[int, KeyChange, MovedRow | int | None, bool]]:
    """Return the rows of a batch that moved from another key: (row, key change, old row, whether it was sent again).

    The old row is a row number of the batch, a kept moved row, or None if it has not arrived yet.
    """
    if batch.key_changes is None:
        return []
    pairs = moved.pairs.subset({change.id for change in batch.key_changes.changes})
    arrived: set[bytes] = set()
    matched = []
    for row, change, is_departure in key_change_halves(batch):
        if is_departure:
            pairs.add_departure(change, row)
        else:
            matched.append(
                (row, change, pairs.match_new_half(change), change.id in arrived or moved.has_arrived(change))
            )
            arrived |= {change.id} if change.is_exact else set()
    return matched


def key_change_halves(batch: TableRows) -> Iterator[tuple[int, KeyChange, bool]]:
    """Yield the halves of key changes in a batch: row, change, and whether the row is deleted under its old key."""
    if batch.key_changes is not None:
        kinds = batch.rows[KIND_COLUMN].to_numpy()
        for row, change in zip(batch.key_changes.rows.tolist(), batch.key_changes.changes, strict=True):
            yield row, change, bool(kinds[row] == RowKind.DELETE)


# ---------------------------------------------------------------- the previous row


class _RowVersions:
    """The versions of rows in a batch, without old images (-U), which repeat the previous version."""

    OUTSIDE: Final = -2  # the batch has no version of the key before the row; the table may have one

    def __init__(self, batch: TableRows) -> None:
        kinds = batch.rows[KIND_COLUMN].to_numpy()
        self._keys = batch.rows.select(batch.target.schema.primary_keys)
        self._candidates = np.flatnonzero(kinds != RowKind.UPDATE_BEFORE)
        self._is_deleted = kinds == RowKind.DELETE
        self._offsets = batch.offsets
        self._last_wins = batch.target.last_record_wins

    def before(self, keys: pa.RecordBatch, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (m,) for each key its newest row in the batch before the given row.

        OUTSIDE: the batch has no such row. -1: the key's row is deleted.
        """
        names, n = self._keys.schema.names, len(self._keys)
        codes = key_codes([pa.concat_arrays([self._keys[name], keys[name]]) for name in names])
        nearest = newest_before(codes[:n], self._candidates, rows, codes[n:])
        is_deleted = (nearest >= 0) & self._is_deleted[nearest] if n else np.zeros(len(rows), np.bool_)
        return np.where(is_deleted, _NO_SOURCE, np.where(nearest < 0, self.OUTSIDE, nearest))

    def are_replaced(self, rows: NDArray[np.int64], lost: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return (k,) whether a later, completely filled record of the batch replaces or deletes each of these rows.

        It is False for rows of records that also delete a row: such a record moves its row from one key to another.
        """
        if not self._last_wins or not lost[rows].any():
            return np.zeros(len(rows), np.bool_)
        codes = key_codes(self._keys.columns)
        is_whole = ~np.isin(self._offsets, self._offsets[lost])
        whole = self._candidates[is_whole[self._candidates]]
        last = np.full(len(codes), _NO_SOURCE)
        np.maximum.at(last, codes[whole], whole)
        moves = np.isin(self._offsets[rows], self._offsets[self._is_deleted])
        return (last[codes[rows]] > rows) & ~moves
