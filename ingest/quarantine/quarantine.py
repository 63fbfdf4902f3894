"""The quarantine of failed tables, while the others continue: which tables, why, since when, and their waiting records.

If a table fails, its uncommitted rows are dropped, and it is excluded from writes and checkpoints. The source is read
again from the offset up to which the table certainly has all records. The table's records are written to its log
(`record_log`) before any other table's position passes them. `catch_up` tries the table again, and writes the records
of the log. As always, the table's own snapshots have its position. The log only replaces the source.

                  fail                  the source is read again          a retry works         the log's end is reached
    healthy ──────────────► waits for its log ──────────► kept in its log ──────────► catching up ──────────► healthy
                                                               ▲     fails again           │
                                                               └───────────────────────────┘
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tidelake.checkpoint.coordinator import CheckpointCoordinator
from tidelake.checkpoint.offsets import SourceIdentity, TopicPartition
from tidelake.errors import CorruptFile, NotYetCaughtUp, QuarantineFull, TablePaused, TidelakeError
from tidelake.ingest.clock import Clock
from tidelake.ingest.formats.base import DecodedBatch
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.quarantine.failures import owner_of
from tidelake.ingest.quarantine.record_log import (
    QuarantineNotice,
    RecordLog,
    delete_files,
    directory_of,
    kept_records,
    read_notice,
    tables_with_directory,
    write_notice,
)
from tidelake.ingest.quarantine.table_requests import TableRequests, forget_released, read_requests
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import QuarantineSettings
from tidelake.ingest.tables.moved_rows import MovedRowsByTable
from tidelake.ingest.tables.pipeline_tables import FirstRecords, PipelineTables
from tidelake.ingest.tables.table_router import TableRouter
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.base.backoff import ExponentialBackoff
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import IO_THREADS_MAX, map_uncancellable, run_uncancellable
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.requests import map_requests

MARK_INTERVAL_MS: Final = 60_000  # interval at which a log without new records stores its end

_log = get_logger(__name__)


@dataclass(slots=True, eq=False)
class QuarantinedTable:
    """A table in quarantine.

    complete_up_to: all records of the table below these offsets are in it.
    error: its last error.
    retry_at_ms: time of the next retry, on the pipeline's clock.
    log: the log of its records; None until the source is read again for it.
    waits_for_log: the source must be read again for it, from `complete_up_to`.
    is_unreadable: its position can't be read. Until it can, no records are kept.
    base: id and manifest list of the pipeline's newest snapshot in it; None if it has none.
    sources: full names of its source tables, as far as an earlier process knew them.
    is_paused: an operator paused it, so it is not retried.
    """

    name: str
    since_ms: int
    complete_up_to: dict[TopicPartition, int]
    error: Exception
    retry_at_ms: int = 0
    attempts: int = 0
    log: RecordLog | None = None
    waits_for_log: bool = False
    is_catching_up: bool = False
    is_unreadable: bool = False
    base: tuple[int, str] | None = None
    marked_ms: int = 0
    sources: frozenset[str] = frozenset()
    is_paused: bool = False

    def notice(self, sources: Collection[str] = ()) -> QuarantineNotice:
        """Return the notice.

        sources: full names of its source tables that this process knows.
        """
        records, nbytes = (self.log.records, self.log.nbytes) if self.log is not None else (0, 0)
        state = "paused" if self.is_paused else "catching up" if self.is_catching_up else "failed"
        known = sorted(self.sources.union(sources))
        return QuarantineNotice(self.name, state, self.since_ms, str(self.error), self.attempts, records, nbytes, known)


@dataclass(slots=True)
class Quarantine:
    """The quarantine of a pipeline. Call it from the event loop, with writing excluded, unless a method says otherwise.

    tables: the tables of the pipeline; a table that fails is removed from its `sinks`.
    location: the folder of records and notices.
    moved: the moved rows of the tables; those of a table that fails are forgotten.
    leaving: tables that caught up and have not committed yet. If one fails again, its old log and times continue.
    read_again: set when the source must be read again, for tables that wait for their log.
    paused: tables that the configuration pauses.
    routing: rises when a table rejoins: batches that were decoded before lack its rows.
    positions: the positions of all tables, once the process owns the pipeline.
    """

    tables: PipelineTables
    io: FileIO
    location: str
    settings: QuarantineSettings
    clock: Clock
    moved: MovedRowsByTable
    paused: frozenset[str] = frozenset()
    failed: dict[str, QuarantinedTable] = field(default_factory=dict)
    leaving: dict[str, QuarantinedTable] = field(default_factory=dict)
    read_again: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    routing: int = 0
    positions: CheckpointCoordinator | None = None
    _found: dict[str, list[str]] = field(default_factory=dict)  # files of each table that `open_logs` saw

    @property
    def router(self) -> TableRouter:
        return self.tables.router

    # ------------------------------------------------------------ into quarantine

    def can_quarantine(self, tables: Collection[str]) -> bool:
        """Return whether these tables can be quarantined: at least one other table must continue."""
        return self.settings.enabled and bool(set(self.router.tables) - self.failed.keys() - set(tables))

    async def fail(self, failed: Mapping[str, Exception]) -> None:
        """Quarantine these tables. Raises their errors if no other table is left."""
        if failed and not self.can_quarantine(failed.keys()):
            errors = list(failed.values())
            raise errors[0] if len(errors) == 1 else ExceptionGroup("several tables failed", errors)
        reports = list[Callable[[], None]]()
        for table, error in failed.items():
            sink = self.tables.sinks.pop(table, None)
            newest = None if sink is None else sink.latest_of_user()
            entry = self.failed.get(table)
            if entry is None:
                entry = self._quarantined(table, error, None if newest is None else (newest.id, newest.manifest_list))
            is_new_error = entry.attempts == 0 or str(entry.error) != str(error)
            entry.error, entry.is_catching_up = error, False
            entry.is_paused = isinstance(error, TablePaused)
            entry.attempts += 1
            entry.retry_at_ms = self.clock.now_ms() + self._backoff_ms(entry.attempts)
            self.router.remove_target(table)
            self.moved.forget(table)
            if self.positions is not None:
                self.positions.leave_out(table)
            reports.append(partial(self._drop_and_report, entry, sink, is_new_error))
        await map_uncancellable(lambda report: report(), reports, IO_THREADS_MAX)
        self.changed.set()

    def _drop_and_report(self, entry: QuarantinedTable, sink: TableSink | None, is_new_error: bool) -> None:
        if sink is not None:
            _drop(entry.name, sink)
        self._report(entry, is_new_error)

    def _quarantined(self, table: str, error: Exception, base: tuple[int, str] | None) -> QuarantinedTable:
        complete = {} if self.positions is None else self.positions.complete_up_to(table)
        entry = QuarantinedTable(table, epoch_ms(), complete, error, waits_for_log=True, base=base)
        if (left := self.leaving.pop(table, None)) is not None:  # it has not committed since it rejoined
            assert left.log is not None
            entry.complete_up_to, entry.log = {**complete, **left.log.ends}, left.log
            entry.since_ms, entry.attempts = left.since_ms, left.attempts
        self.failed[table] = entry
        self.read_again.set()
        return entry

    async def quarantine_unreadable(self, unreadable: Mapping[str, Exception]) -> None:
        """Quarantine tables that can't be read at the start. Records that an earlier process kept for them stay."""
        new = {table: error for table, error in unreadable.items() if table not in self.failed}
        await self.fail(new)
        for table in new:
            entry = self.failed[table]
            entry.is_unreadable, entry.waits_for_log = True, False
        if not any(entry.waits_for_log for entry in self.failed.values()):
            self.read_again.clear()

    async def continue_at(
        self, table: str, ends: Mapping[TopicPartition, int], base: tuple[int, str], log: RecordLog | None
    ) -> None:
        """Continue with a table whose position can be read now. The source is read again from the position, or from
        the end of the table's log.

        log: the records that an earlier process kept, if they join the position. None: such records are deleted.
        """
        entry = self.failed[table]
        if log is None:
            await run_uncancellable(self._delete_found, {table})
        entry.log, entry.complete_up_to, entry.base = log, dict(ends), base
        entry.is_unreadable, entry.waits_for_log = False, True
        entry.retry_at_ms = self.clock.now_ms()
        self.read_again.set()

    def open_logs(self, tables: Collection[str]) -> dict[str, RecordLog]:
        """Open the logs on disk of these tables, for which the source is not read yet. Blocks.

        Unreadable logs are left out: the source is read instead.
        """

        def of(table: str) -> RecordLog | None:
            directory = directory_of(self.location, table)
            self._found[table] = [f"{directory}/{entry.name}" for entry in self.io.list_directory(directory)]
            try:
                return RecordLog.open(self.io, directory, table)
            except CorruptFile as error:
                effect = "the table is read from its own position, if the source still has it"
                _log.warning("what was kept of a quarantined table can't be read", error=str(error), effect=effect)
                return None

        kept = [table for table in tables_with_directory(self.io, self.location) if table in tables]
        logs = zip(kept, map_requests(self.location, of, kept), strict=True)
        return {table: log for table, log in logs if log is not None}

    async def restore(self, kept: Mapping[str, RecordLog]) -> None:
        """Let tables catch up that an earlier process left in quarantine. Other kept records are deleted."""
        unreadable = {entry.name for entry in self.failed.values() if entry.is_unreadable}
        unneeded = set(self.router.tables) - kept.keys() - unreadable
        await run_uncancellable(self._delete_found, unneeded)
        await run_uncancellable(self._report_unnamed)
        notices = await map_uncancellable(partial(read_notice, self.io, self.location), kept, IO_THREADS_MAX)
        drops = list[Callable[[], None]]()
        for (table, log), notice in zip(kept.items(), notices, strict=True):
            since_ms, attempts = (epoch_ms(), 0) if notice is None else (notice.since_ms, notice.attempts)
            entry = QuarantinedTable(table, since_ms, dict(log.ends), NotYetCaughtUp(), attempts=attempts, log=log)
            entry.sources = frozenset(() if notice is None else notice.sources)
            self.failed[table] = entry
            self.router.remove_target(table)
            self.moved.forget(table)
            _log.warning("table is still in quarantine", table=table, records=log.records, bytes=log.nbytes)
            sink = self.tables.sinks.pop(table, None)
            if sink is not None:
                drops.append(partial(_drop, table, sink))
        await map_uncancellable(lambda drop: drop(), drops, IO_THREADS_MAX)
        self.changed.set()

    def _delete_found(self, tables: Collection[str]) -> None:
        """Delete the files of these tables that `open_logs` found. Blocks.

        A process that is about to be fenced may come here after another one took over. Files that it has not seen may
        be the only copy of records that the source no longer has.
        """
        found = [(directory_of(self.location, table), paths) for table, paths in self._found.items() if table in tables]
        for _ in map_requests(self.location, lambda one: delete_files(self.io, *one), found):
            pass

    def _report_unnamed(self) -> None:
        """Log the tables with kept records that the configuration doesn't name. Blocks."""
        unnamed = set(tables_with_directory(self.io, self.location)) - set(self.router.tables)
        if unnamed:
            _log.warning(
                "kept records of tables that no entry names any more",
                tables=sorted(unnamed),
                kept_in=self.location,
                effect="these tables are not in quarantine; they get no more records",
                remedy="name or include the tables again to write the records, or delete their folders",
            )

    def _backoff_ms(self, attempts: int) -> int:
        backoff = ExponentialBackoff(self.settings.retry_ms_min, self.settings.retry_ms_max)
        return int(backoff.wait_ms(attempts - 1))

    # ------------------------------------------------------------ paused tables

    async def follow_requests(self) -> None:
        """Pause, resume and release the tables for which an operator asked it. Without an answer of the store, nothing
        changes until the next look.
        """
        try:
            found = await run_uncancellable(read_requests, self.io, self.location)
        except (OSError, TidelakeError) as error:
            _log.warning("requests of operators can't be read", location=self.location, error=str(error))
            return
        await self._pause((found.paused | self.paused).intersection(self.router.tables))
        await self._release(found)

    async def _pause(self, wanted: frozenset[str]) -> None:
        """Pause these tables, and resume the others."""
        for entry in self.failed.values():
            if entry.is_paused and entry.name not in wanted:
                entry.is_paused, entry.retry_at_ms, entry.attempts = False, self.clock.now_ms(), 0
                _log.info("table is resumed", table=entry.name)
                self.changed.set()
        held = {entry.name for entry in self.failed.values() if entry.is_paused}
        for table in sorted(wanted - held):
            if not self.can_quarantine([table]):
                reason = "no other table is left. Stop the pipeline instead"
                _log.warning("table can't be paused", table=table, reason=reason)
                continue
            await self.fail({table: TablePaused(table)})

    async def _release(self, found: TableRequests) -> None:
        for entry in self.failed.values():
            if entry.name in found.released and not entry.is_paused:
                entry.retry_at_ms = self.clock.now_ms()
                _log.info("table is released: it is retried now", table=entry.name)
        if found.released:
            await run_uncancellable(forget_released, self.io, self.location, found.released)
            self.changed.set()

    def _report(self, entry: QuarantinedTable, is_new_error: bool) -> None:
        if entry.is_paused:
            _log.info("table is paused", table=entry.name, kept_in=directory_of(self.location, entry.name))
            self._write_notice(entry)
            return
        log = _log.error if is_new_error else _log.debug  # a repeated reason is only written to the notice
        log(
            "table in quarantine",
            table=entry.name,
            reason=str(entry.error),
            attempts=entry.attempts,
            retry_in_ms=max(0, entry.retry_at_ms - self.clock.now_ms()),
            effect="the other tables continue; the records of this table are kept, and written when it works again",
            kept_in=directory_of(self.location, entry.name),
            remedy="follow the remedy in the reason; the next retry continues. With `quarantine.enabled: false` the "
            "pipeline stops instead",
        )
        self._write_notice(entry)

    def _write_notice(self, entry: QuarantinedTable) -> None:
        try:
            write_notice(self.io, self.location, entry.notice(self.router.sources_of(entry.name)))
        except (OSError, TidelakeError) as error:
            _log.warning("the notice of a quarantined table was not written", table=entry.name, error=str(error))

    def create(self, batch: RawBatch, unrouted: Mapping[SourceTable, int], ahead: Sequence[FirstRecords] = ()) -> bool:
        """Create the tables of these records, except those in quarantine. Returns whether any was created. Blocks.

        Raises TableFailed for a table that can't be created.
        """
        return self.tables.create_except(self.failed, batch, unrouted, ahead)

    # ------------------------------------------------------------ records

    def begin_logs(self, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Begin logs, and return the offsets from which the source is read for all tables. `keep` gets all records.

        reached: the offsets up to which the other tables were written.
        """
        starts = dict(reached)
        for entry in self.failed.values():
            if not entry.waits_for_log:
                continue
            entry.waits_for_log = False
            if entry.log is None:
                base_id, manifest_list = entry.base or (None, None)
                directory = directory_of(self.location, entry.name)
                entry.log = RecordLog(self.io, directory, entry.name, entry.complete_up_to, base_id, manifest_list)
            for partition, start in self._begins(entry).items():
                entry.log.add_partition(partition, start)
            for partition, end in entry.log.ends.items():
                starts[partition] = min(end, starts.get(partition, end))
        self.read_again.clear()
        self.changed.set()
        return starts

    def _begins(self, entry: QuarantinedTable) -> dict[TopicPartition, int]:
        """Return where the table's log begins in each partition.

        For a partition that appeared after the failure, this is its first offset: the table got none of its records.
        """
        known = None if self.positions is None else self.positions.positions.get(entry.name)
        return {**(known.ends if known else {}), **entry.complete_up_to}

    def store_first_positions(self, tables: Collection[str], identity: SourceIdentity) -> None:
        """Store the first position of tables without a snapshot in their logs, before the others continue. Blocks."""
        entries = [entry for table in tables if (entry := self.failed.get(table)) is not None and entry.log is None]

        def store(entry: QuarantinedTable) -> None:
            directory = directory_of(self.location, entry.name)
            entry.log = RecordLog(self.io, directory, entry.name, entry.complete_up_to)
            entry.log.store_start(identity)

        for _ in map_requests(self.location, store, entries):
            pass

    def keep(self, raw: RawBatch, decoded: DecodedBatch, start: int, stop: int) -> None:
        """Keep records that may belong to quarantined tables, with offsets in [start, stop). This is fast.

        Raises QuarantineFull; then none of the records is kept.
        """
        partition, owner = TopicPartition(raw.topic, raw.partition), owner_of(self.router)
        found = list[tuple[RecordLog, RawBatch | None]]()
        for entry in self.failed.values():
            if entry.log is None or entry.waits_for_log or entry.name not in self.router.tables_of(raw.topic):
                continue
            first = max(start, entry.log.ends.get(partition, 0))
            records = kept_records(entry.name, raw, decoded, first, stop, self.router, owner)
            if records is not None:
                self._check_room(entry, entry.log.nbytes + records.nbytes)
            found.append((entry.log, records))
        for log, records in found:
            log.append(partition, records, stop)

    def _check_room(self, entry: QuarantinedTable, nbytes: int) -> None:
        limits = (
            ("quarantine.table_bytes_max", nbytes, self.settings.table_bytes_max),
            ("quarantine.bytes_max", nbytes + self._bytes_of_others(entry), self.settings.bytes_max),
        )
        for setting, held, limit in limits:
            if held > limit:
                raise QuarantineFull(
                    f"{entry.name} has been in quarantine too long: its kept records have {held} bytes, but "
                    f"`{setting}` allows {limit}. It failed with: {entry.error}. The kept records stay, and the next "
                    "start continues reading after them. Repair the table, raise the setting, or remove the table "
                    "from `tables`"
                )

    def _bytes_of_others(self, entry: QuarantinedTable) -> int:
        return sum(e.log.nbytes for e in self.failed.values() if e is not entry and e.log is not None)

    @property
    def should_flush(self) -> bool:
        return any(entry.log is not None and entry.log.should_flush for entry in self.failed.values())

    def flush(self, identity: SourceIdentity, *, at_end: bool = False) -> None:
        """Make kept records durable, so that the positions of other tables may pass them. Blocks."""
        now_ms = self.clock.now_ms()

        def flush(entry: QuarantinedTable) -> None:
            if entry.log is None or entry.waits_for_log:
                return
            is_due = at_end or now_ms - entry.marked_ms >= MARK_INTERVAL_MS
            entry.log.flush(identity, force=is_due)
            if is_due:
                entry.marked_ms = now_ms
                self._write_notice(entry)

        for _ in map_requests(self.location, flush, list(self.failed.values())):
            pass

    def read_up_to(self, table: str) -> Mapping[TopicPartition, int] | None:
        """Return the offsets below which the source need not be read again for a quarantined table; None for a healthy
        one.
        """
        entry = self.failed.get(table)
        if entry is None:
            return None
        return entry.complete_up_to if entry.log is None else entry.log.durable_ends

    # ------------------------------------------------------------ out of quarantine

    def raise_failures(self) -> None:
        """Raise the errors of quarantined tables, several as a group. Call it at the end of the run."""
        errors = [entry.error for entry in self.failed.values() if not entry.is_paused]
        if errors:
            raise errors[0] if len(errors) == 1 else ExceptionGroup("several tables failed", errors)

    def due(self, *, at_end: bool) -> list[QuarantinedTable]:
        """Return the tables to retry now.

        at_end: no more records arrive, so all tables are retried at once.
        """
        now_ms = self.clock.now_ms()
        return [
            entry
            for entry in self.failed.values()
            if _is_catch_up_allowed(entry) and (at_end or entry.retry_at_ms <= now_ms)
        ]

    def due_in_ms(self) -> int | None:
        """Return the time until the next retry; None if no table is to be retried."""
        now_ms = self.clock.now_ms()
        waiting = [entry.retry_at_ms for entry in self.failed.values() if _is_catch_up_allowed(entry)]
        return max(0, min(waiting) - now_ms) if waiting else None

    def rejoin(self, table: str) -> None:
        """End the quarantine of a table: its writer has all records of its log. It is read with the others again."""
        self.leaving[table] = self.failed.pop(table)
        self.routing += 1

    def committed(self, published: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Delete kept records that are committed. Blocks.

        published: next offsets in the newest snapshots of these tables; kept records below are deleted.
        """
        for table, ends in published.items():
            if (entry := self.leaving.pop(table, None)) is not None and entry.log is not None:
                records = entry.log.records
                entry.log.delete()
                _log.warning("table is out of quarantine", table=table, records=records, failed_before=str(entry.error))
            elif (entry := self.failed.get(table)) is not None and entry.log is not None:
                entry.log.trim(ends)


def _is_catch_up_allowed(entry: QuarantinedTable) -> bool:
    if entry.is_paused:
        return False
    return entry.is_unreadable or (entry.log is not None and not entry.waits_for_log)


def _drop(table: str, sink: TableSink) -> None:
    sink.writer.cancel_compactions()
    try:
        sink.writer.abort()
    except Exception as error:
        _log.warning("clean-up failed", step=f"drop what {table} holds", error=str(error))
