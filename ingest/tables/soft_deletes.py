"""Soft deletes: a deleted row stays in the table with its last values, and with the time of the delete.

Most sources send only the key of a deleted row, or values that may be made up. So the last values are taken from the
row before the delete: in the same batch, or in the table.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelake.ingest.formats.base import TableRows
from tidelake.ingest.tables.earlier_rows import RowLookup, key_codes, newest_before, resolve_sources
from tidelake.storage.model.format import KIND_COLUMN, RowKind


def with_soft_deletes(part: TableRows, lookup: RowLookup) -> TableRows:
    """Return the rows with updates in place of deletes. A delete of a row that does not exist is left out.

    part: rows that have all their values, and the time of the delete in `Target.deleted_at_column`.
    """
    rows, n = part.rows, len(part.rows)
    is_delete = rows[KIND_COLUMN].to_numpy(zero_copy_only=False) == RowKind.DELETE
    deleted = np.flatnonzero(is_delete)
    if not len(deleted):
        return part
    keys = rows.select(part.target.schema.primary_keys)
    codes = key_codes(keys.columns)
    sources = newest_before(codes, np.arange(n), deleted, codes[deleted])
    outside = np.flatnonzero(sources < 0)
    found, old = outside > 0, rows.slice(0, 0)
    if len(outside):
        found, old = lookup.newest(keys.take(pa.array(deleted[outside])))
    sources[outside] = np.where(found, n + np.arange(len(outside)), -1)
    take = resolve_sources(n + len(old), deleted, sources)[:n]
    exists = take >= 0
    places = pa.array(take[exists])
    columns = []
    for name in part.target.schema.names:
        is_kept = name != part.target.deleted_at_column
        columns.append(
            pa.concat_arrays([rows[name], old[name]]).take(places) if is_kept else rows[name].filter(pa.array(exists))
        )
    kinds = np.where(is_delete, np.int8(RowKind.UPDATE_AFTER), rows[KIND_COLUMN].to_numpy(zero_copy_only=False))
    columns.append(pa.array(kinds[exists], pa.int8()))
    return TableRows(part.target, pa.RecordBatch.from_arrays(columns, schema=rows.schema), part.offsets[exists])
