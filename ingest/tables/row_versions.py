"""Versions of rows (`mode: scd2`): a change ends the version before it and begins another one; a delete only ends it.

The versions of a key are a function of its changes, whatever order they arrive in. A change has the time at which the
source made it; of two changes at one time, the one that arrives last counts. A version lasts until the next change.
So a change that arrives late splits the version of its time, and one that arrives again changes nothing.

A delete is stored as the end of the version before it. If there is no such version, because the delete arrived before
the change that it follows, it is a row of its own that lasts no time: `valid_to` is `valid_from`. Otherwise a version
that arrives later would not end at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.base import TableRows, VersionColumns
from tidelake.ingest.tables.earlier_rows import key_codes
from tidelake.storage.model.format import KIND_COLUMN, RowKind


class VersionLookup(Protocol):
    """Looks up the versions of rows in one table, including those in its write buffer."""

    def with_key(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that have one of these keys, in any order, with the table's columns.

        keys: columns of the primary key, but not all.
        """
        ...


def with_versions(part: TableRows, lookup: VersionLookup) -> TableRows:
    """Return the versions that the changes of a batch make, alter or drop.

    part: rows that have all their values, and the time of their change in `VersionColumns.valid_from`.

    A row that is returned has the offset of its key's last change.
    """
    names = part.target.versions
    assert names is not None, part.target.name
    is_change = part.rows[KIND_COLUMN].to_numpy(zero_copy_only=False) != RowKind.UPDATE_BEFORE
    changes, offsets = part.rows.filter(pa.array(is_change)), part.offsets[is_change]
    if not len(changes):
        return TableRows(part.target, changes, offsets)
    keys = changes.select(names.key)
    _, firsts = np.unique(key_codes(keys.columns), return_index=True)
    old = lookup.with_key(keys.take(pa.array(firsts)))
    timeline = _Timeline.of(names, old, changes)

    last_offset = np.zeros(int(timeline.codes_of_rows.max()) + 1, np.int64)
    np.maximum.at(last_offset, timeline.codes_of_rows[len(old) :], offsets)
    # A row under another key does not replace the one before. Keys only differ in computed columns of the key.
    is_exact = set(part.target.schema.primary_keys) == {*names.key, names.valid_from}
    dropped = timeline.dropped(replaced=not is_exact)
    written = np.flatnonzero(timeline.is_written)
    codes = np.concatenate([timeline.codes_of_rows[dropped], timeline.codes[written]])
    order = np.argsort(last_offset[codes], kind="stable")

    columns = []
    takes = pa.array(np.concatenate([dropped, timeline.rows[written]]))
    is_marker = np.concatenate([np.zeros(len(dropped), np.bool_), timeline.is_delete[written]])
    own = {
        names.valid_from: timeline.valid_from,
        names.valid_to: timeline.valid_to,
        names.current: timeline.current,
    }
    keys_and_partitions = {*part.target.schema.primary_keys, *part.target.schema.partition_keys}
    for field in part.rows.schema:
        if field.name == KIND_COLUMN:
            kinds = np.repeat(np.array([RowKind.DELETE, RowKind.UPDATE_AFTER], np.int8), [len(dropped), len(written)])
            columns.append(pa.array(kinds, field.type))
            continue
        cells = pa.concat_arrays([old[field.name], changes[field.name]])
        if field.name in own:
            made = own[field.name].take(pa.array(written)).cast(field.type)
            columns.append(pa.concat_arrays([cells.take(pa.array(dropped)), made]))
        elif field.nullable and field.name not in keys_and_partitions and is_marker.any():
            columns.append(cells.take(pa.array(takes.to_numpy(), mask=is_marker)))
        else:
            columns.append(cells.take(takes))
    rows = pa.RecordBatch.from_arrays(columns, schema=part.rows.schema).take(pa.array(order))
    return TableRows(part.target, rows, last_offset[codes[order]])


@dataclass(frozen=True, slots=True, eq=False)
class _Timeline:
    """The changes of all keys of a batch: one for each key and time, by key and time.

    codes_of_rows: (m + n,) a number for the key of each of the m old rows and the n changes.
    codes: (w,) the number of the key of each change that counts.
    rows: (w,) its row: an old one, or a change (from m on). For the end of an old version, that version.
    is_delete: (w,) whether it ends a version without beginning one.
    valid_from, valid_to, current: (w,) values of its row in the table.
    is_kept: (w,) whether it has a row in the table: it is a version, or a delete that no version shows.
    is_written: (w,) whether that row differs from the old one.
    slots: (m,) the change that counts at the beginning of each old row.
    """

    codes_of_rows: NDArray[np.int64]
    codes: NDArray[np.int64]
    rows: NDArray[np.int64]
    is_delete: NDArray[np.bool_]
    valid_from: pa.Array
    valid_to: pa.Array
    current: pa.Array
    is_kept: NDArray[np.bool_]
    is_written: NDArray[np.bool_]
    slots: NDArray[np.int64]

    @classmethod
    def of(cls, names: VersionColumns, old: pa.RecordBatch, changes: pa.RecordBatch) -> Self:
        m, n = len(old), len(changes)
        row_codes = key_codes([pa.concat_arrays([old[name], changes[name]]) for name in names.key])
        row_times = _numbers(pa.concat_arrays([old[names.valid_from], changes[names.valid_from]]))
        ended = np.flatnonzero(old[names.valid_to].is_valid().to_numpy(zero_copy_only=False))
        ends = _numbers(old[names.valid_to].fill_null(0))
        is_marker = np.zeros(m, np.bool_)
        is_marker[ended] = ends[ended] == row_times[ended]
        ended = ended[~is_marker[ended]]
        e = len(ended)
        # Ends of old versions, old rows, changes in the order of their arrival. At one time the last one counts.
        codes = np.concatenate([row_codes[ended], row_codes])
        times = np.concatenate([ends[ended], row_times])
        rows = np.concatenate([ended, np.arange(m + n)])
        is_delete_of_row = changes[KIND_COLUMN].to_numpy(zero_copy_only=False) == RowKind.DELETE
        is_delete = np.concatenate([np.ones(e, np.bool_), is_marker, is_delete_of_row])

        order = np.lexsort((np.arange(e + m + n), times, codes))
        is_last = np.ones(len(order), np.bool_)
        is_last[:-1] = (codes[order][1:] != codes[order][:-1]) | (times[order][1:] != times[order][:-1])
        slot_of = np.empty(len(order), np.int64)
        slot_of[order] = np.cumsum(is_last) - is_last
        counts = order[is_last]
        codes, times, rows, is_delete = codes[counts], times[counts], rows[counts], is_delete[counts]

        has_next, follows_version = np.zeros(len(counts), np.bool_), np.zeros(len(counts), np.bool_)
        has_next[:-1] = codes[1:] == codes[:-1]
        follows_version[1:] = has_next[:-1] & ~is_delete[:-1]
        valid_to = np.where(is_delete, times, np.append(times[1:], 0))
        has_end = is_delete | has_next
        is_kept = ~is_delete | ~follows_version
        is_old_row = (counts >= e) & (counts < e + m)
        had = np.where(is_old_row, rows, 0)
        had_end = old[names.valid_to].is_valid().to_numpy(zero_copy_only=False) if m else np.zeros(1, np.bool_)
        old_ends = ends if m else np.zeros(1, np.int64)
        same_end = (had_end[had] == has_end) & (~has_end | (old_ends[had] == valid_to))
        return cls(
            row_codes,
            codes,
            rows,
            is_delete,
            pa.array(times),
            pa.array(valid_to, mask=~has_end),
            pa.array(~has_end),
            is_kept,
            is_kept & ~(is_old_row & same_end),
            slot_of[e : e + m],
        )

    def dropped(self, *, replaced: bool) -> NDArray[np.int64]:
        """Return the old rows without a change that counts.

        replaced: also return those in whose place another row counts.
        """
        is_dropped = ~self.is_kept[self.slots]
        if replaced:
            is_dropped |= self.rows[self.slots] != np.arange(len(self.slots))
        return np.flatnonzero(is_dropped)


def _numbers(times: pa.Array) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
