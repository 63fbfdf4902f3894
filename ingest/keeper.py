"""What a pipeline leaves beside its snapshots: its registration as a consumer of its tables, and its progress file.

Neither decides where it stands. The one keeps its newest snapshots from expiring, the other spares it from reading
again what idle tables had no rows in (`checkpoint.progress`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from checkpoint.epoch import Epoch
from checkpoint.offsets import OffsetRange, SourceIdentity, SourcePosition, TopicPartition
from checkpoint.progress import IdleTable, Progress
from checkpoint.routing import Routing
from ingest.clock import Clock
from ingest.progress_file import ProgressFile
from ingest.table_writer import TableSink
from ingest.threads import to_its_end
from storage.errors import TidelakeError
from storage.logs import get_logger

INTERVAL_MS: Final = 60_000  # between two writes of either, while the pipeline runs
REFRESH_MS: Final = 3_600_000  # a registration that doesn't move is written anew: some expire consumers by their age
_AT_ONCE: Final = 8

log = get_logger(__name__)


class Keeper:
    """sinks: all tables that exist, by name; it may grow. tables: all that are configured. routings: what is said of
    them. file: None keeps none.

    Call everything but `register` between checkpoints, or with writing excluded.
    """

    def __init__(
        self,
        sinks: Mapping[str, TableSink],
        tables: Collection[str],
        routings: Mapping[str, Routing],
        file: ProgressFile | None,
        clock: Clock,
    ) -> None:
        self._sinks = sinks
        self._tables = tables
        self._routings = routings
        self._file = file
        self._clock = clock
        self._written = Progress()
        self._busy: set[str] = set()  # had a snapshot since the progress was written
        self._identifier, self._epoch = 0, 0
        self._written_ms = self._registered_ms = clock.now_ms()
        self._registered: dict[str, tuple[int, int]] = {}  # table to snapshot and time

    # ------------------------------------------------------------ progress

    async def begin(
        self, identity: SourceIdentity, reached: Mapping[TopicPartition, int], identifier: int, epoch: Epoch
    ) -> None:
        """Everything is taken over, nothing is read yet: every table is idle."""
        self._identifier, self._epoch = identifier, epoch.number
        await self._write(self._tables, identity, reached)

    async def strike(self, tables: Collection[str], identifier: int) -> None:
        """These tables get a snapshot next: the file must not go on to speak of their last one.

        Raises what the store raises: then the snapshots must not be made.
        """
        self._busy |= set(tables)
        self._identifier = identifier
        kept = {name: entry for name, entry in self._written.tables.items() if name not in tables}
        if self._file is not None and len(kept) < len(self._written.tables):
            struck = Progress(self._written.reached, kept, identifier, self._epoch)
            await to_its_end(self._file.write, struck)
            self._written = struck

    async def committed(self, identity: SourceIdentity, reached: Mapping[TopicPartition, int]) -> None:
        """A checkpoint is complete. Tables that had nothing for a while are noted, now and then."""
        if self._clock.now_ms() - self._written_ms >= INTERVAL_MS:
            idle = [table for table in self._tables if table not in self._busy]
            if idle or self._written.tables:
                await self._write(idle, identity, reached)
            self._written_ms = self._clock.now_ms()
            self._busy = set()

    async def end(self, identity: SourceIdentity, reached: Mapping[TopicPartition, int]) -> None:
        """Everything is committed, nothing more is read: every table is idle."""
        await self._write(self._tables, identity, reached)

    async def _write(
        self, tables: Collection[str], identity: SourceIdentity, reached: Mapping[TopicPartition, int]
    ) -> None:
        if self._file is not None:
            position = SourcePosition(ranges={p: OffsetRange(at, at) for p, at in reached.items()})
            await to_its_end(self._save, self._file, tables, position.identified(identity))

    def _save(self, file: ProgressFile, tables: Collection[str], reached: SourcePosition) -> None:
        """Blocks."""
        progress = Progress(reached, {name: self._idle(name) for name in tables}, self._identifier, self._epoch)
        if progress == self._written:
            return
        try:
            file.write(progress)
            self._written = progress
        except OSError as error:
            # What is there now may be either file, and both are true: no table named in them has had a snapshot since.
            self._written = replace(progress, tables={**self._written.tables, **progress.tables})
            log.warning("progress was not written; after a restart more is read again", error=str(error))

    def _idle(self, table: str) -> IdleTable:
        sink, routing = self._sinks.get(table), self._routings.get(table)
        if sink is None:
            return IdleTable.of(None, None, routing)
        return IdleTable.of(sink.created_ms, sink.newest_own(), routing)

    # ------------------------------------------------------------ registration

    @property
    def is_register_due(self) -> bool:
        return self._clock.now_ms() - self._registered_ms >= INTERVAL_MS

    async def register(self) -> None:
        """Tell everybody's expiry which snapshots to spare: each table's newest own one, and all after it.

        A table that can't be told is logged: its snapshots then live no longer than others do.
        """
        self._registered_ms = now_ms = self._clock.now_ms()
        limit = asyncio.Semaphore(_AT_ONCE)

        async def tell(table: str, snapshot_id: int) -> None:
            async with limit:
                try:
                    await to_its_end(self._sinks[table].register, snapshot_id)
                except (OSError, TidelakeError) as error:
                    log.warning("not registered as a consumer", table=table, error=str(error))
                else:
                    self._registered[table] = snapshot_id, now_ms

        newest = {
            name: found.id for name, sink in list(self._sinks.items()) if (found := sink.newest_own()) is not None
        }
        await asyncio.gather(*(tell(name, id_) for name, id_ in newest.items() if self._is_news(name, id_, now_ms)))

    def _is_news(self, table: str, snapshot_id: int, now_ms: int) -> bool:
        registered_id, at_ms = self._registered.get(table, (0, 0))
        return registered_id != snapshot_id or now_ms - at_ms >= REFRESH_MS
