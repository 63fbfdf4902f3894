"""Filters rows that a TRUNCATE deleted at the source, but that arrive after it, because their partition lags behind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidelake.ingest.formats.base import DecodeFailure, FailureKind, TableRows
from tidelake.ingest.formats.format_capabilities import SourceOrder, SourceOrderOf
from tidelake.ingest.formats.table_rows import keep_records
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.tables.table_lineage import TableLineage
from tidelake.storage.base.logs import get_logger

_log = get_logger(__name__)


class TruncateFilter:
    """Drops such rows.

    order_of: reads the order of a record at its source; None if records don't contain it
    """

    def __init__(self, lineage: TableLineage, order_of: SourceOrderOf | None) -> None:
        self._lineage = lineage
        self._order_of = order_of

    def drop(self, raw: RawBatch, rows: TableRows) -> tuple[TableRows, list[DecodeFailure]]:
        """Return the rows from after the truncate, and failures for records that don't show their order."""
        marker = self._lineage.truncate_marker(rows.target.name)
        if marker is None or self._order_of is None or not len(rows.offsets):
            return rows, []
        if not marker.is_behind(raw.topic, raw.partition):
            return rows, []
        orders = orders_of(raw, rows, self._order_of)
        sides = [None if order is None else order.is_before(marker.at) for order in orders]
        unwanted = np.array([side is not False for side in sides])
        if not unwanted.any():
            return rows, []
        table = rows.target.name
        offsets = np.unique(rows.offsets[np.array([side is None for side in sides])])
        reason = (
            f"a truncate in another partition emptied {table}, and this record doesn't show whether it is "
            "older than the truncate (member `source.sequence`)"
        )
        failures = [
            DecodeFailure(
                int(np.searchsorted(raw.offsets, offset)), int(offset), FailureKind.BAD_RECORD, reason, table=table
            )
            for offset in offsets.tolist()
        ]
        dropped = sum(side is True for side in sides)
        _log.info("rows from before a truncate", table=table, rows=dropped, partition=raw.partition)
        return keep_records(rows, ~unwanted), failures

    def mark_written(self, raw: RawBatch, rows: TableRows) -> None:
        """Record written rows. After a row from after the truncate, the partition is not behind any more."""
        table = rows.target.name
        marker = self._lineage.truncate_marker(table)
        if marker is None or self._order_of is None or not len(rows.offsets):
            return
        if not marker.is_behind(raw.topic, raw.partition):
            return
        last = orders_of(raw, TableRows(rows.target, rows.rows.slice(0, 0), rows.offsets[-1:]), self._order_of)[0]
        if last is not None and last.is_before(marker.at) is False:
            behind = marker.behind - {raw.partition}
            self._lineage.set_truncate_marker(table, replace(marker, behind=behind) if behind else None)


def orders_of(raw: RawBatch, rows: TableRows, order_of: SourceOrderOf) -> list[SourceOrder | None]:
    """Return the order of each row."""
    values = (raw.values[row].as_py() for row in np.searchsorted(raw.offsets, rows.offsets).tolist())
    return [None if value is None else order_of(value) for value in values]
