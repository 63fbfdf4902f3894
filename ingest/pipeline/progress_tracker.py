"""A pipeline's progress outside of snapshots: the progress file, and the consumer registration at each table.

Neither decides the pipeline's position. The progress file, a small file in the warehouse, avoids reading records again
that had no rows for idle tables, and records the state if the snapshots expire anyway
(`tidelake.checkpoint.idle_progress`). The registration keeps the newest snapshots of a table from expiring.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from tidelake.checkpoint.epoch import Epoch
from tidelake.checkpoint.idle_progress import IdleProgress, ProgressEntry
from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, SourcePosition, TopicPartition
from tidelake.checkpoint.routing import Routing
from tidelake.errors import TidelakeError
from tidelake.ingest.clock import Clock, wait_at_most
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import map_uncancellable, run_uncancellable
from tidelake.storage.fileio.base import FileIO

INTERVAL_MS: Final = 60_000  # between two writes of either one, while the pipeline runs
REFRESH_MS: Final = 3_600_000  # age at which an unchanged registration is written again: some setups expire old ones
_READ_PARALLELISM: Final = 32

_log = get_logger(__name__)


def progress_path(warehouse: str, pipeline: str) -> str:
    return f"{warehouse.rstrip('/')}/{quote(pipeline, safe='')}.progress"


class ProgressFile:
    """The progress file of a pipeline. Methods block.

    path: see `progress_path`.
    """

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self._path = path

    def read(self) -> IdleProgress:
        """Return the progress. It is empty if the file is missing or invalid; then some records are read again."""
        try:
            return IdleProgress.from_text(self._io.read(self._path), self._path)
        except FileNotFoundError:
            return IdleProgress()
        except TidelakeError as error:
            _log.warning("the progress file is ignored; idle tables are read from their last row", error=str(error))
            return IdleProgress()

    def write(self, progress: IdleProgress) -> None:
        """Replace the file atomically and durably."""
        self._io.write(self._path, progress.to_text().encode())


class ProgressTracker:
    """Maintains the progress file and the consumer registrations of a pipeline.

    sinks: all tables that exist, by name; it may grow
    tables: all configured tables
    routings: their configured routings
    file: the progress file; None if progress is not stored
    left_out: tables in quarantine: their progress doesn't follow the source's. It may change

    Call the methods on progress between checkpoints, or with writing excluded.
    """

    def __init__(
        self,
        sinks: Mapping[str, TableSink],
        tables: Collection[str],
        routings: Mapping[str, Routing],
        file: ProgressFile | None,
        clock: Clock,
        left_out: Collection[str] = (),
    ) -> None:
        self._left_out = left_out
        self._sinks = sinks
        self._tables = tables
        self._routings = routings
        self._file = file
        self._clock = clock
        self._written = IdleProgress()
        self._others: dict[str, ProgressEntry] = {}  # tables that are not configured now, or unreadable
        self._tables_with_snapshot: set[str] = set()  # tables with a snapshot since the progress was written
        self._identifier, self._epoch = 0, 0
        self._written_ms = clock.now_ms()
        self._registered: dict[str, tuple[int, int]] = {}  # table to snapshot and time

    # ------------------------------------------------------------ progress

    async def begin(
        self,
        identity: SourceIdentity,
        reached: Mapping[TopicPartition, int],
        identifier: int,
        epoch: Epoch,
        before: IdleProgress,
    ) -> None:
        """Begin after the take-over. No record was read yet, so every table is idle.

        before: the contents of the file so far
        """
        self._identifier, self._epoch = identifier, epoch.number
        if left := before.removed_tables(self._tables):
            _log.warning(
                "tables of the pipeline that no entry names any more",
                tables=left,
                effect="no records are written to them; tables with other names begin at the current position",
                remedy="undo the change of names, or also rename the tables in the catalog",
            )
        committed_to = {name: entry for name, entry in before.tables.items() if entry.snapshot_id is not None}
        known = {**before.active, **committed_to}
        self._others = {
            name: entry for name, entry in known.items() if name not in self._tables or name in self._left_out
        }
        await self._write(self._tables, identity, reached)

    async def mark_active(self, tables: Collection[str], identifier: int) -> None:
        """Mark tables as active before they get a snapshot: the file must not call them idle any longer.

        Raises the store's errors. After an error, the snapshots must not be published.
        """
        self._tables_with_snapshot |= set(tables)
        self._others = {name: entry for name, entry in self._others.items() if name not in tables}
        self._identifier = identifier
        if self._file is not None and any(name in self._written.tables for name in tables):
            await run_uncancellable(self._write_active, self._file, tables)

    def _write_active(self, file: ProgressFile, tables: Collection[str]) -> None:
        """Write the file with these tables as active. Blocks."""
        idle = {name: entry for name, entry in self._written.tables.items() if name not in tables}
        active = {**self._written.active, **self._states(tables)}
        progress = IdleProgress(self._written.reached, idle, self._identifier, self._epoch, active)
        file.write(progress)
        self._written = progress

    async def committed(
        self, identity: SourceIdentity, reached: Mapping[TopicPartition, int], held_back: Collection[str] = ()
    ) -> None:
        """Record a complete checkpoint. Tables without rows for a while are written as idle, at intervals.

        held_back: tables whose rows a later checkpoint commits. They are not idle.
        """
        self._tables_with_snapshot |= set(held_back)
        if self._clock.now_ms() - self._written_ms >= INTERVAL_MS:
            idle = [table for table in self._tables if table not in self._tables_with_snapshot]
            if idle or self._written.tables:
                await self._write(idle, identity, reached)
            self._written_ms = self._clock.now_ms()
            self._tables_with_snapshot = set()

    async def end(self, identity: SourceIdentity, reached: Mapping[TopicPartition, int]) -> None:
        """Record the end of the run. All records are committed and none is read any more, so every table is idle."""
        await self._write(self._tables, identity, reached)

    async def _write(
        self, idle: Collection[str], identity: SourceIdentity, reached: Mapping[TopicPartition, int]
    ) -> None:
        if self._file is not None:
            idle = [table for table in idle if table not in self._left_out]
            position = SourcePosition(ranges={p: OffsetRange(at, at) for p, at in reached.items()})
            await run_uncancellable(self._save, self._file, idle, position.with_identity(identity))

    def _save(self, file: ProgressFile, idle: Collection[str], reached: SourcePosition) -> None:
        """Write the file with these idle tables. Blocks."""
        active = {**self._states(name for name in self._tables if name not in idle), **self._others}
        progress = IdleProgress(reached, self._states(idle), self._identifier, self._epoch, active)
        if progress == self._written:
            return
        try:
            file.write(progress)
            self._written = progress
        except OSError as error:
            # The file may now be the old or the new one. Both are valid: no idle table in them got a snapshot since.
            self._written = replace(progress, tables={**self._written.tables, **progress.tables})
            _log.warning("progress was not written; after a restart more is read again", error=str(error))

    def _states(self, tables: Iterable[str]) -> dict[str, ProgressEntry]:
        """Return the entry of each table for its current state."""
        return {table: self._state(table) for table in tables}

    def _state(self, table: str) -> ProgressEntry:
        sink, routing = self._sinks.get(table), self._routings.get(table)
        if sink is None:
            return ProgressEntry.of(None, None, routing)
        return ProgressEntry.of(sink.history.created_ms, sink.latest_of_user(), routing)

    # ------------------------------------------------------------ registration

    async def register(self) -> None:
        """Register as a consumer of each table, so that expiry keeps the newest own snapshot and all later ones.

        An unchanged registration younger than REFRESH_MS is not written again. If the registration fails, the table is
        logged: its snapshots may then expire like others.
        """
        now_ms = self._clock.now_ms()

        def register(newest: tuple[str, int]) -> None:
            table, snapshot_id = newest
            try:
                self._sinks[table].history.register(snapshot_id)
            except (OSError, TidelakeError) as error:
                _log.warning("not registered as a consumer", table=table, error=str(error))
            else:
                self._registered[table] = snapshot_id, now_ms

        newest = {
            name: found.id for name, sink in list(self._sinks.items()) if (found := sink.latest_of_user()) is not None
        }
        outdated = [(name, id_) for name, id_ in newest.items() if self._is_outdated(name, id_, now_ms)]
        await map_uncancellable(register, outdated, _READ_PARALLELISM)

    async def keep_registered(self, end: asyncio.Event) -> None:
        """Call `register` at intervals until the end, also while nothing is committed."""
        while not await wait_at_most(end, INTERVAL_MS, self._clock):
            await self.register()

    def _is_outdated(self, table: str, snapshot_id: int, now_ms: int) -> bool:
        registered_id, at_ms = self._registered.get(table, (0, 0))
        return registered_id != snapshot_id or now_ms - at_ms >= REFRESH_MS
