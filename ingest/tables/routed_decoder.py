"""Decodes records for all tables that they belong to.

A decoder of a format decodes into one table for each source table. If source tables have several tables, there are
several decoders, called lanes: the first one decodes for the first table of each source table, the second one for the
second, and so on. A lane only decodes batches that have records of a source table with so many tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidelake.ingest.formats.base import DecodedBatch, DecodeFailure, Decoder, Target, TargetOf
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.tables.table_router import TableRouter


class RoutedDecoder:
    """A decoder of a pipeline. See `tidelake.ingest.formats.base.Decoder`.

    new_decoder: makes a decoder of the source's records.
    only: decodes only for this table; None: for all.
    tables_for: returns the tables of a source table; default: those of the router.
    """

    def __init__(
        self,
        router: TableRouter,
        new_decoder: Callable[[TargetOf], Decoder],
        only: str | None = None,
        tables_for: Callable[[SourceTable], Sequence[str]] | None = None,
    ) -> None:
        self._router = router
        self._all_tables_for = tables_for or router.tables_for
        self._new_decoder = new_decoder
        self._only = only
        self._lanes: list[Decoder] = [new_decoder(self._target_of(0))]  # wrong options are refused at the start
        self._lanes_needed = 1  # by the batch that is being decoded

    def decode(self, batch: RawBatch) -> DecodedBatch:
        """Return the rows for all tables. Source tables are unrouted if any of their tables has no target."""
        self._lanes_needed, decoded, number = 1, None, 0
        while number < self._lanes_needed:
            if number == len(self._lanes):
                self._lanes.append(self._new_decoder(self._target_of(number)))
            of_lane = self._with_tables(self._lanes[number].decode(batch), number)
            decoded = of_lane if decoded is None else self._joined(decoded, of_lane, number)
            number += 1
        assert decoded is not None
        return decoded

    def _tables_for(self, source: SourceTable) -> Sequence[str]:
        tables = self._all_tables_for(source)
        return tables if self._only is None else [table for table in tables if table == self._only]

    def _target_of(self, number: int) -> TargetOf:
        def target_of(source: SourceTable) -> Target | None:
            tables = self._tables_for(source)
            self._lanes_needed = max(self._lanes_needed, len(tables))
            return self._router.target(tables[number]) if number < len(tables) else None

        return target_of

    def _with_tables(self, decoded: DecodedBatch, number: int) -> DecodedBatch:
        """Name the tables of failed records whose source table has several tables."""
        if not decoded.failures:
            return decoded
        return replace(decoded, failures=tuple(self._with_table(failure, number) for failure in decoded.failures))

    def _with_table(self, failure: DecodeFailure, number: int) -> DecodeFailure:
        if failure.target is not None or failure.source is None or len(self._all_tables_for(failure.source)) < 2:
            return failure
        tables = self._tables_for(failure.source)
        return replace(failure, table=tables[number]) if number < len(tables) else failure

    def _joined(self, decoded: DecodedBatch, of_lane: DecodedBatch, number: int) -> DecodedBatch:
        """Add what a lane decoded. Records without a table in this lane were counted by the first one."""
        failures = [failure for failure in of_lane.failures if failure.table_name is not None]
        unrouted = {source: row for source, row in of_lane.unrouted.items() if number < len(self._tables_for(source))}
        return DecodedBatch(
            (*decoded.tables, *of_lane.tables),
            tuple(sorted((*decoded.failures, *failures), key=lambda failure: failure.row)),
            decoded.skipped,
            {**unrouted, **decoded.unrouted},
            decoded.unrouted_records,
            decoded.only_deleted | (of_lane.only_deleted & unrouted.keys()),
        )
