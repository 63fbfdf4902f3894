"""The additional parts of a pipeline with a quarantine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tidelake.ingest.clock import Clock
from tidelake.ingest.formats.base import Decoder, OpenedFormat, TargetOf
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.pipeline.building.parts import FailingRecords, TableParts
from tidelake.ingest.pipeline.building.writes import Writes
from tidelake.ingest.pipeline.flow import CreateTables
from tidelake.ingest.quarantine.catch_up import CatchUp
from tidelake.ingest.quarantine.failures import failures_of, owner_of
from tidelake.ingest.quarantine.quarantine import Quarantine, open_logs
from tidelake.ingest.quarantine.record_log import RecordLog
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import Config, QuarantineSettings
from tidelake.ingest.tables.pipeline_tables import PipelineTables
from tidelake.storage.fileio import FileIO, open_retrying_file_io


@dataclass(frozen=True, slots=True)
class QuarantineParts:
    """The parts of a pipeline's quarantine.

    io: the file system for waiting records
    location: the folder for waiting records
    opener: opens tables again; it knows the tables that were excluded at the start
    decoder: creates decoders of the pipeline's format
    """

    settings: QuarantineSettings
    io: FileIO
    location: str
    opener: PipelineTables
    decoder: Callable[[TargetOf], Decoder]

    def quarantine(self, tables: TableParts, clock: Clock) -> Quarantine:
        router = tables.router
        return Quarantine(
            router.tables,
            self.opener.sinks,
            router,
            owner_of(router),
            self.io,
            self.location,
            self.settings,
            clock,
            tables.moved.forget,
        )

    def open_logs(self, tables: Collection[str]) -> dict[str, RecordLog]:
        return open_logs(self.io, self.location, tables)

    def catch_up(self, quarantine: Quarantine, tables: TableParts, failing: FailingRecords, writes: Writes) -> CatchUp:
        return CatchUp(
            quarantine,
            self.opener,
            quarantine.sinks,
            tables.routings,
            tables.moved_files,
            failing.dead_letters,
            writes.of_one,
            self.decoder,
            quarantine.clock,
            tables.lineage,
            failing.policy.tolerates,
        )


def has_quarantine(config: Config) -> bool:
    """Return whether the pipeline has a quarantine. A pipeline with a single table can't continue without it."""
    return config.quarantine.enabled and (len(config.tables) > 1 or bool(config.templates))


def build_quarantine(
    config: Config, io: FileIO | None, opener: PipelineTables, format_: OpenedFormat
) -> QuarantineParts | None:
    if not has_quarantine(config):
        return None
    location = config.quarantine_location
    io = io or open_retrying_file_io(location, config.warehouse_options)
    return QuarantineParts(config.quarantine, io, location, opener, format_.decoder)


def creation_by_table(tables: TableParts, failed: Collection[str]) -> CreateTables:
    """Return a function that creates tables, but not those in quarantine.

    The function raises TableFailed for a table that can't be created.
    """

    def create_each(batch: RawBatch, unrouted: Mapping[SourceTable, int]) -> bool:
        created = False
        for source, row in unrouted.items():
            table = tables.router.table_of(source)
            if table is not None and table not in failed:
                with failures_of(table):
                    created |= tables.create(batch, {source: row})
        return created

    return create_each
