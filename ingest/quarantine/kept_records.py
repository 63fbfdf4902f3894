"""Selects the records of a batch that may belong to a quarantined table.

Records of a quarantined table are not decoded. So if a batch has anything for the table, all records are kept that no
other table took. Records that are kept needlessly (tombstones, records of no table) give no rows when they are decoded
later.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.base import DecodedBatch, Skipped
from tidelake.ingest.quarantine.failures import OwnerOf
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.tables.table_router import TableRouter


def kept_records(
    table: str, raw: RawBatch, decoded: DecodedBatch, start: int, stop: int, router: TableRouter, owner: OwnerOf
) -> RawBatch | None:
    """Return the records to keep, with offsets in [start, stop); None if no record is to be kept."""
    if not _has_rows_of(table, raw, decoded, router, owner):
        return None
    keep = (raw.offsets >= start) & (raw.offsets < stop)
    others = [part.offsets for part in decoded.tables if part.target.name != table]
    if others:  # one search for all: a search for each of a thousand tables would take longer than decoding
        keep[np.searchsorted(raw.offsets, np.concatenate(others))] = False
    for failure in decoded.failures:
        if owner(failure, raw) not in (None, table):
            keep[failure.row] = False
    return _select_records(raw, keep) if keep.any() else None


def _has_rows_of(table: str, raw: RawBatch, decoded: DecodedBatch, router: TableRouter, owner: OwnerOf) -> bool:
    if any(part.target.name == table for part in decoded.tables):
        return True
    if any(router.table_of(source) == table for source in decoded.unrouted):
        return True
    if any(owner(failure, raw) in (None, table) for failure in decoded.failures):
        return True
    # The tables of these records are unknown.
    other = decoded.skipped.get(Skipped.SCHEMA_CHANGE, 0) + decoded.skipped.get(Skipped.TRUNCATE, 0)
    return other > 0 and table in router.tables_of(raw.topic)


def _select_records(raw: RawBatch, keep: NDArray[np.bool_]) -> RawBatch:
    if keep.all():
        return raw
    mask = pa.array(keep)
    rows = np.flatnonzero(keep).tolist()
    numbers = {row: number for number, row in enumerate(rows)}
    return RawBatch(
        raw.topic,
        raw.partition,
        raw.offsets[keep],
        raw.timestamps_ms[keep],
        raw.keys.filter(mask),
        raw.values.filter(mask),
        raw.next_offset,
        {numbers[row]: headers for row, headers in raw.headers.items() if row in numbers},
        None if raw.timestamp_types is None else raw.timestamp_types[keep],
    )
