"""Builds the stages that write batches: one for all tables, and one for each table that catches up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.formats.base import DecodedBatch
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.pipeline.batch_writer import BatchWriter
from tidelake.ingest.pipeline.building.parts import FailingRecords, SourceParts, TableParts
from tidelake.ingest.pipeline.checkpointer import Checkpointer
from tidelake.ingest.pipeline.write_stage import CommitBarriers, WriteStage
from tidelake.ingest.quarantine.failures import TableScope, owner_of
from tidelake.ingest.quarantine.quarantine import Quarantine
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.tables.truncate_filter import TruncateFilter
from tidelake.ingest.tables.truncate_handler import TruncateHandler

Decode: TypeAlias = Callable[[RawBatch], DecodedBatch]


class Writes:
    def __init__(
        self,
        source: SourceParts,
        tables: TableParts,
        failing: FailingRecords,
        checkpoints: Checkpointer,
        observed: RunObservations,
        quarantine: Quarantine | None,
    ) -> None:
        self._source = source
        self._tables = tables
        self._failing = failing
        self._checkpoints = checkpoints
        self._observed = observed
        self._quarantine = quarantine
        self._owner = owner_of(tables.router)
        self._truncate_filter = TruncateFilter(tables.lineage, source.order_of)
        truncates = TruncateHandler(
            tables.sinks, tables.lineage, are_applied=tables.applies_truncates, reader=source.reader
        )
        self._barriers = CommitBarriers(tables.schemas, truncates)
        failed = {} if quarantine is None else quarantine.failed
        self.writer = self._writer(TableScope(self._owner, failed))

    def of_all(self) -> WriteStage:
        return WriteStage(
            self.writer,
            self._failing.pending,
            self._observed,
            self._source.decoder.decode,
            self._barriers,
            self._checkpoints.take,
            self._quarantine,
            self._source.run_write,
        )

    def of_one(self, table: str, ends: Mapping[TopicPartition, int], decode: Decode) -> WriteStage:
        """Build the write stage of one table.

        ends: offsets below which the table has all its records.
        """
        writer = self._writer(TableScope(self._owner, only=table))
        writer.start_from({table: ends})
        return WriteStage(
            writer,
            self._failing.pending.new(),
            self._observed,
            decode,
            self._barriers,
            lambda progress: self._checkpoints.take(progress.coordinator),
        )

    def _writer(self, scope: TableScope) -> BatchWriter:
        tables, failing = self._tables, self._failing
        return BatchWriter(
            tables.sinks,
            failing.dead_letters,
            failing.policy,
            tables.moved,
            scope,
            tables.lineage.add_topic,
            self._truncate_filter,
        )
