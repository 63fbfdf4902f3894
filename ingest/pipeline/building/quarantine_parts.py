"""What a pipeline with a quarantine is made of besides the parts of every pipeline."""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping
from dataclasses import dataclass, field

from ingest.clock import Clock
from ingest.formats.base import Decoder, TargetOf
from ingest.quarantine.catch_up import TableOpener
from ingest.quarantine.failures import owner_of
from ingest.quarantine.quarantine import Quarantine, open_logs
from ingest.quarantine.record_log import RecordLog
from ingest.settings import QuarantineSettings
from ingest.tables.moved_rows.moved_rows import MovedRowsByTable
from ingest.tables.table_router import TableRouter
from ingest.tables.table_sink import TableSink
from storage.fileio import FileIO


@dataclass(frozen=True, slots=True)
class QuarantineParts:
    """io, location: where records wait.
    sinks: the tables that take part.
    opener: opens tables again.
    decoder: makes decoders of the pipeline's format.
    unreadable: tables that are left out from the start.
    """

    settings: QuarantineSettings
    io: FileIO
    location: str
    sinks: MutableMapping[str, TableSink]
    opener: TableOpener
    decoder: Callable[[TargetOf], Decoder]
    unreadable: MutableMapping[str, Exception] = field(default_factory=dict)

    def connect(self, router: TableRouter, moved: MovedRowsByTable, clock: Clock) -> Quarantine:
        return Quarantine(
            router.tables,
            self.sinks,
            router,
            owner_of(router),
            self.io,
            self.location,
            self.settings,
            clock,
            moved.forget,
        )

    def open_logs(self, tables: Collection[str]) -> dict[str, RecordLog]:
        return open_logs(self.io, self.location, tables)
