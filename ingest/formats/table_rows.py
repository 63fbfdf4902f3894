"""Selects rows of a table in a batch by the offsets of their records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.base import KeyChanges, TableRows, UnavailableValues


def slice_by_offset(batch: TableRows, start: int, stop: int | None) -> TableRows:
    """Return the rows of records with offsets in [start, stop); None: no upper bound. Copies nothing."""
    first = int(np.searchsorted(batch.offsets, start))
    last = len(batch.offsets) if stop is None else int(np.searchsorted(batch.offsets, stop))
    if first == 0 and last == len(batch.offsets):
        return batch
    return TableRows(
        batch.target,
        batch.rows.slice(first, max(0, last - first)),
        batch.offsets[first:last],
        None if batch.unavailable is None else _unavailable_between(batch.unavailable, first, last),
        None if batch.key_changes is None else _key_changes_between(batch.key_changes, first, last),
    )


def drop_records(batch: TableRows, rows: NDArray[np.bool_]) -> TableRows:
    """Remove the marked rows (n,) and the other rows of their records. No remaining row has unavailable values.

    The result does not have the key changes.
    """
    keep = ~np.isin(batch.offsets, batch.offsets[rows])
    return TableRows(batch.target, batch.rows.filter(pa.array(keep)), batch.offsets[keep])


def keep_records(batch: TableRows, keep: NDArray[np.bool_]) -> TableRows:
    """Return the marked rows (n,). They include all rows of their records."""
    number = np.cumsum(keep) - 1
    unavailable, changes = batch.unavailable, batch.key_changes
    if unavailable is not None:
        inside = keep[unavailable.rows]
        columns = {name: flags[inside] for name, flags in unavailable.columns.items() if flags[inside].any()}
        keys = unavailable.keys_of(inside)
        unavailable = UnavailableValues(number[unavailable.rows[inside]], columns, keys) if columns else None
    if changes is not None:
        kept = np.flatnonzero(keep[changes.rows])
        of_rows = [changes.changes[place] for place in kept.tolist()]
        changes = replace(changes, rows=number[changes.rows[kept]], changes=of_rows) if of_rows else None
    return TableRows(batch.target, batch.rows.filter(pa.array(keep)), batch.offsets[keep], unavailable, changes)


def _unavailable_between(unavailable: UnavailableValues, first: int, last: int) -> UnavailableValues | None:
    inside = (unavailable.rows >= first) & (unavailable.rows < last)
    if not inside.any():
        return None
    columns = {name: flags[inside] for name, flags in unavailable.columns.items() if flags[inside].any()}
    return UnavailableValues(unavailable.rows[inside] - first, columns, unavailable.keys_of(inside))


def _key_changes_between(changes: KeyChanges, first: int, last: int) -> KeyChanges | None:
    start, stop = np.searchsorted(changes.rows, (first, last)).tolist()
    if start == stop:
        return None
    return replace(changes, rows=changes.rows[start:stop] - first, changes=changes.changes[start:stop])
