"""Checkpoints of a pipeline: each makes all written rows visible, together with the position of their source.

1. The source confirms its identity.
2. Dead letters and moved rows are made durable.
3. Writers flush their rows to files.
4. Each table publishes its files and its position.
5. The offsets are committed at the source, only for monitoring.

While files are flushed and published, decoding and compaction pause (`FlushPriority`).

A checkpoint that is due does not wait for a long compaction of one table: it holds this table back, and publishes the
others. The rows of the table stay in its writer, and are published after the end of that compaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelake.checkpoint.committable import TableCommittable
from tidelake.checkpoint.coordinator import CheckpointCoordinator, CheckpointPolicy
from tidelake.checkpoint.epoch import Epoch, new_writer_id
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.checkpoint.ownership import Ownership
from tidelake.checkpoint.record_times import RECORD_TIMES_PROPERTY
from tidelake.checkpoint.recovery import resume_offsets
from tidelake.checkpoint.routing import ROUTING_PROPERTY, Routing
from tidelake.compaction.scheduler import CompactionScheduler, shared_scheduler
from tidelake.errors import RecoveryOutdated, TableFailed, WriterFenced
from tidelake.ingest.clock import Clock, wait_at_most
from tidelake.ingest.dead_letters import DeadLetters
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.monitoring.tracing import span
from tidelake.ingest.pipeline.freshness import FreshnessKeeper, compaction_pause_ms
from tidelake.ingest.pipeline.freshness_control import FreshnessState
from tidelake.ingest.pipeline.pipeline_recovery import RecoveredPipeline
from tidelake.ingest.pipeline.progress_tracker import ProgressTracker
from tidelake.ingest.pipeline.run_metrics import CheckpointTimer
from tidelake.ingest.quarantine.quarantine import Quarantine
from tidelake.ingest.sources.source import Source
from tidelake.ingest.tables.moved_row_files import MovedRowsStore
from tidelake.ingest.tables.table_errors import failures_of
from tidelake.ingest.tables.table_lineage import LINEAGE_PROPERTY, TableLineage
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import map_uncancellable, run_uncancellable
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.write.compactor import LongCompaction

TABLES_AT_ONCE: Final = 64  # tables that flush or publish at the same time; both mostly wait for the store

# A flush that takes longer waits for a store, so more CPU time doesn't help it.
_DECODING_MS_MAX: Final = 100
_COMPACTION_MS_MAX: Final = 200

_log = get_logger(__name__)


class FlushPriority:
    """Pauses decoding and compaction during flush and commit.

    Flush and commit release the GIL at every step and every file, and would wait for milliseconds each time to get it
    back from a decoding thread. A batch that is decoded meanwhile belongs to the next checkpoint at the earliest, so it
    can wait. Compactions that a flush triggers would start while the next bucket is flushed.

    interval_ms: time between checkpoints; decoding pauses for at most a fifth of it, compaction for two fifths. It may
        change
    compaction_pause_ms: no compaction starts by itself for this long after a flush began. It may change
    compactions: scheduler to pause; None: that of the process
    """

    def __init__(self, interval_ms: int, clock: Clock, compactions: CompactionScheduler | None = None) -> None:
        self.interval_ms = interval_ms
        self.compaction_pause_ms = 0
        self._clock = clock
        self._compactions = compactions or shared_scheduler()
        self._published = asyncio.Event()
        self._published.set()
        self._flush_began_ms = 0

    def begin(self) -> None:
        """Record that a flush begins."""
        self._published.clear()
        self._flush_began_ms = self._clock.now_ms()
        self._compactions.pause(min(_COMPACTION_MS_MAX, self.interval_ms * 2 // 5) / 1000)

    def end(self) -> None:
        """Record the end of flush and commit. Without `begin` this does nothing."""
        if self._published.is_set():
            return
        self._published.set()
        left_ms = self._flush_began_ms + self.compaction_pause_ms - self._clock.now_ms()
        if left_ms > 0:
            self._compactions.pause(left_ms / 1000)
        else:
            self._compactions.resume()

    async def wait_for_flush(self) -> None:
        """Wait for a running flush before a batch is decoded."""
        if not self._published.is_set():
            at_most_ms = min(_DECODING_MS_MAX, self.interval_ms // 5)
            left_ms = self._flush_began_ms + at_most_ms - self._clock.now_ms()
            if left_ms > 0:
                await wait_at_most(self._published, left_ms, self._clock)


@dataclass(frozen=True, slots=True)
class SnapshotProperties:
    """Snapshot properties of each table, in addition to position, epoch and moved rows.

    routings: the configured routing of each table.
    lineage: the lineage of each table.
    """

    routings: Mapping[str, Routing]
    lineage: TableLineage

    def properties(self, table: str) -> dict[str, str]:
        properties = {LINEAGE_PROPERTY: self.lineage.of(table).to_text()}
        routing = self.routings.get(table)
        return properties if routing is None else {**properties, ROUTING_PROPERTY: routing.to_text()}


class Checkpointer:
    """Takes the checkpoints of a pipeline.

    sinks: the tables that exist. It may grow during a checkpoint; a new table has no rows yet
    quarantine: takes tables that fail. None: the errors of tables are raised
    """

    def __init__(
        self,
        source: Source,
        sinks: Mapping[str, TableSink],
        dead_letters: DeadLetters,
        tracker: ProgressTracker,
        moved: MovedRowsStore,
        facts: SnapshotProperties,
        policy: CheckpointPolicy,
        observed: RunObservations,
        quarantine: Quarantine | None = None,
        freshness: FreshnessKeeper | None = None,
    ) -> None:
        self._quarantine = quarantine
        self._freshness = freshness
        self._written_bytes = 0  # of the files that the running checkpoint publishes
        self._tables_at_once = min(TABLES_AT_ONCE, policy.tables_at_once)
        self._compacting: dict[str, Sequence[LongCompaction]] = {}  # tables that a checkpoint held back, and for what
        self.failed_at_start: dict[str, Exception] = {}  # tables where `begin` could not publish
        self.has_begun = False  # whether `begin` may have published something
        self._source = source
        self._sinks = sinks
        self._dead_letters = dead_letters
        self._tracker = tracker
        self._moved = moved
        self._facts = facts
        self._policy = policy
        self._observed = observed
        self._clock = observed.clock
        self._times = CheckpointTimer(
            policy.interval_ms,
            observed.clock,
            lambda step: observed.activity(f"checkpoint: {step}"),
            "checkpoint.interval_ms" if freshness is None else "freshness.target_ms",
        )
        self._dead_letters_logged = 0  # dead letters up to the last checkpoint
        self.priority = FlushPriority(policy.interval_ms, observed.clock)

    async def begin(
        self, recovered: RecoveredPipeline, fenced: Callable[[str], None], owned: Ownership | None = None
    ) -> CheckpointCoordinator:
        """Publish an empty snapshot in every table, with a new epoch and the recovered position.

        fenced: called with the name of each table whose snapshot exists.
        owned: what this process owns already. Its tables get no snapshot, and the others the same epoch.

        Raises RecoveryOutdated if an older process committed since the recovery, WriterFenced if a newer one did.
        *Crash in between: some tables have an epoch that no process has; the next process takes a higher one.*
        """
        if owned is not None:
            owned.check(recovered.owners)
        if self._quarantine is not None:
            await self._quarantine.quarantine_unreadable(recovered.unreadable)
        self._moved.begin(recovered.moved_rows)
        self._facts.lineage.restore(recovered.lineage)
        epoch = Epoch(recovered.last_epoch + 1, new_writer_id()) if owned is None else owned.epoch
        # The first offset of a topic may be another one at the next start, so it is published before it is read.
        continued = {} if owned is None else owned.continued(recovered.positions, recovered.chosen)
        new = sorted(self._sinks.keys() - continued.keys())
        used = max(recovered.last_identifier, 0 if owned is None else owned.identifier)
        identifier = used + bool(new)  # without tables no identifier is used

        def extra_properties(table: str) -> dict[str, str]:
            observed = self._observed.tables.get(table)
            times = None if observed is None else observed.uncommitted_times
            of_records = {} if times is None else {RECORD_TIMES_PROPERTY: times.to_text()}
            return {**self._moved.properties(table), **self._facts.properties(table), **of_records}

        coordinator = CheckpointCoordinator(
            {**recovered.positions, **continued}, identifier, self._policy, epoch, extra_properties, recovered.starts
        )
        empty_commits = [
            TableCommittable(table, identifier, (), recovered.positions[table], epoch, extra_properties(table))
            for table in new
        ]
        for table in continued.keys() & self._sinks.keys():
            self._sinks[table].continue_from(recovered.positions[table])
        self.has_begun = True
        # The first table is published alone. If two processes start at once, the winner must be the same in all tables.
        self.failed_at_start = {}
        for commits in (empty_commits[:1], empty_commits[1:]):
            try:
                await self._publish(commits, fenced)
            except (TableFailed, ExceptionGroup) as error:
                self._raise_start_errors(error)
        # These are the positions of the tables, not the read positions: a table in quarantine lacks its kept records.
        held = resume_offsets(recovered.positions.values())
        await self._tracker.begin(self._source.identity, held, identifier, epoch, recovered.progress)
        await self._tracker.register()
        return coordinator

    def _raise_start_errors(self, error: TableFailed | ExceptionGroup[Exception]) -> None:
        """Raise the errors of tables if the pipeline can't start without these tables."""
        errors = [error] if isinstance(error, TableFailed) else list(error.exceptions)
        causes = [e.error if isinstance(e, TableFailed) else e for e in errors]
        failed = {e.table: e.error for e in errors if isinstance(e, TableFailed)}
        is_outdated = any(isinstance(e, RecoveryOutdated) for e in causes) or len(failed) < len(errors)
        all_failed = {**self.failed_at_start, **failed}
        if is_outdated or self._quarantine is None or not self._quarantine.can_quarantine(all_failed.keys()):
            if len(causes) == 1:
                raise causes[0] from causes[0].__cause__
            raise ExceptionGroup("several failed", causes) from None
        self.failed_at_start = all_failed

    async def begin_tables(self, coordinator: CheckpointCoordinator, tables: Collection[str]) -> None:
        """Publish the first position of tables that a record named for the first time.

        This comes before any other table's position passes the record. Nothing may be written meanwhile. A table that
        fails is quarantined, if the pipeline can continue without it.
        """
        committables = coordinator.first_committables(tables, self._source.identity)
        await self._tracker.mark_active(tables, coordinator.identifier)
        try:
            await self._publish(committables, lambda _: None)
        except TableFailed as failed:
            await self._fail({failed.table: failed.error})
        except ExceptionGroup as group:
            await self._fail(_of_tables(group))
        await self._tracker.register()
        await self.store_first_positions(coordinator, [table for table in tables if table not in self._sinks])

    async def store_first_positions(self, coordinator: CheckpointCoordinator, tables: Collection[str]) -> None:
        """Record the first position of failed tables without a snapshot, in the logs of their kept records."""
        if self._quarantine is not None and tables:
            await run_uncancellable(self._quarantine.store_first_positions, tables, self._source.identity)

    async def take(
        self, coordinator: CheckpointCoordinator, always_publish: Collection[str] = (), *, holds_back: bool = False
    ) -> None:
        """Take a checkpoint. Nothing may be written meanwhile.

        always_publish: tables that get a snapshot even without files.
        holds_back: whether tables with a long compaction are left out, rather than waited for.
        """
        self._times.begin()
        oldest_written_ms = coordinator.oldest_written_ms
        if self._freshness is not None:
            self._freshness.begins()
        sinks, bootstrapping = list(self._sinks.items()), self._bootstrapping()
        with_new_base = {name for name, sink in sinks if sink.is_truncated or sink.is_bootstrapping}
        unpublished = (self._facts.lineage.unpublished & self._sinks.keys()) - bootstrapping
        always_publish = {*always_publish, *with_new_base, *unpublished} - bootstrapping
        try:
            with span("checkpoint"):
                identifier, tables = await self._publish_checkpoint(coordinator, always_publish, holds_back=holds_back)
        except BaseException:
            coordinator.failed()
            raise
        self._facts.lineage.unpublished -= unpublished
        times = self._times.end(tables)
        done = self._observed.checkpoint_completed(identifier, tables, times["took_ms"], coordinator.reached)
        self._log_checkpoint(identifier, tables, times)
        if self._freshness is not None and oldest_written_ms is not None:
            self._take(self._freshness.ended(oldest_written_ms, done.nbytes, self._written_bytes))
        await self._source.commit_offsets(self._confirmed(coordinator))

    def _bootstrapping(self) -> set[str]:
        """Return the tables whose bootstrap is not complete. This checkpoint leaves them out."""
        return {name for name, sink in list(self._sinks.items()) if sink.is_held_back}

    def _take(self, state: FreshnessState) -> None:
        """Work with these decisions from now on."""
        self._policy.interval_ms, self._policy.bytes_max = state.interval_ms, state.buffer_bytes
        self._times.interval_ms = self.priority.interval_ms = state.interval_ms
        self.priority.compaction_pause_ms = compaction_pause_ms(state)

    async def keep_registered(self, end: asyncio.Event) -> None:
        """See `ProgressTracker`."""
        await self._tracker.keep_registered(end)

    async def end(self, coordinator: CheckpointCoordinator) -> None:
        """Record the end of a run whose records are all committed."""
        await self._tracker.end(self._source.identity, coordinator.reached)
        await self._tracker.register()

    def _confirmed(self, coordinator: CheckpointCoordinator) -> dict[TopicPartition, int]:
        """Return the offsets below which all tables have the records, or the quarantine keeps them."""
        if self._quarantine is None or not self._quarantine.failed:
            return coordinator.complete_ends(coordinator.positions.keys())
        ends = resume_offsets(coordinator.positions.values())
        ends |= coordinator.complete_ends(coordinator.positions.keys() - self._quarantine.failed.keys())
        for table in self._quarantine.failed:
            for partition, end in (self._quarantine.read_up_to(table) or {}).items():
                ends[partition] = min(end, ends.get(partition, end))
        return ends

    async def _publish_checkpoint(
        self, coordinator: CheckpointCoordinator, always_publish: Collection[str], *, holds_back: bool
    ) -> tuple[int, int]:
        """Publish the checkpoint. Returns its identifier, and the number of tables with a snapshot."""
        identifier = coordinator.begin(self._clock.now_ms())
        try:
            with_moved, messages = await self._prepare_commits(
                identifier, coordinator, always_publish, holds_back=holds_back
            )
            tables = await self._publish_prepared(coordinator, messages, {*always_publish, *with_moved}, with_moved)
            return identifier, tables
        finally:
            self.priority.end()

    async def _prepare_commits(
        self,
        identifier: int,
        coordinator: CheckpointCoordinator,
        always_publish: Collection[str],
        *,
        holds_back: bool,
    ) -> tuple[set[str], Mapping[str, Sequence[CommitMessage]]]:
        """Do all steps before the commits. Returns the tables whose moved rows changed, and the commit messages.

        The source's identity is checked at the same time as writers write files, because no reader sees files that no
        snapshot names. Data that counts without a snapshot is written only after the check. A step without work is
        skipped: each step switches threads, which takes milliseconds while another thread decodes.
        """
        identity_check = asyncio.create_task(self._source.check_identity())
        try:
            if self._dead_letters.has_unflushed:
                with self._times.step("source"):
                    await identity_check
                with self._times.step("dead_letters"):
                    await run_uncancellable(self._dead_letters.flush)
            if self._quarantine is not None and self._quarantine.failed:
                with self._times.step("source"):
                    await identity_check
                with self._times.step("quarantine"):
                    await run_uncancellable(self._quarantine.flush, self._source.identity)
            with_moved = set[str]()
            if not self._moved.is_idle:
                with self._times.step("source"):
                    await identity_check
                with self._times.step("moved_rows"):
                    with_moved = await self._save_moved_rows(coordinator)
            leaving: Collection[str] = () if self._quarantine is None else self._quarantine.leaving.keys()
            needed = {*always_publish, *with_moved, *leaving}
            may_wait = {
                table
                for table in (self._sinks if holds_back else ())
                if table not in needed and not coordinator.is_detached(table)
            }
            with self._times.step("prepare"):
                messages = await self._prepare(identifier, may_wait)
            with self._times.step("source"):
                await identity_check
        finally:
            identity_check.cancel()
            await asyncio.gather(identity_check, return_exceptions=True)
        return with_moved, messages

    async def _publish_prepared(
        self,
        coordinator: CheckpointCoordinator,
        messages: Mapping[str, Sequence[CommitMessage]],
        always_publish: Collection[str],
        with_moved: Collection[str],
    ) -> int:
        """Publish the prepared tables. Returns the number of tables with a snapshot."""
        if self._quarantine is not None:
            always_publish = {*always_publish, *(self._quarantine.leaving.keys() & self._sinks.keys())}
        held_back = {*self._bootstrapping(), *self._compacting}
        committables = coordinator.prepared(messages, self._source.identity, always_publish)
        with self._times.step("progress"):
            # Tables that are held back have rows, too: the file must not say that they have all records.
            with_rows = [*(one.table for one in committables), *held_back]
            await self._tracker.mark_active(with_rows, coordinator.identifier)
        with self._times.step("publish"):
            try:
                await self._publish(committables, coordinator.committed)
            except TableFailed as failed:
                await self._fail({failed.table: failed.error})
            except ExceptionGroup as group:
                await self._fail(_of_tables(group))
        coordinator.completed(held_back, is_due_again=bool(self._compacting))
        if with_moved:
            with self._times.step("moved_rows"):
                await run_uncancellable(self._moved.committed, self._sinks.keys() & set(with_moved))
        if self._quarantine is not None and (self._quarantine.leaving or self._quarantine.failed):
            published = {c.table: c.position.ends for c in committables if c.table in self._sinks}
            with self._times.step("quarantine"):
                await run_uncancellable(self._quarantine.committed, published)
        with self._times.step("progress"):
            await self._tracker.committed(self._source.identity, coordinator.reached, held_back)
        return len(committables)

    async def _prepare(self, identifier: int, may_wait: Collection[str]) -> Mapping[str, Sequence[CommitMessage]]:
        """Flush the tables. Returns their commit messages, without those that are held back.

        may_wait: tables that may be held back.
        """
        prepared = dict[str, Sequence[CommitMessage]]()
        failed = dict[str, Exception]()
        held_back = dict[str, Sequence[LongCompaction]]()

        def prepare(item: tuple[str, TableSink]) -> None:
            table, sink = item
            try:
                with failures_of(table):
                    if table in may_wait and (begun := self._long_compactions(table, sink, identifier)):
                        held_back[table] = begun
                    else:
                        prepared[table] = sink.writer.prepare_commit(identifier)
            except TableFailed as error:
                if self._quarantine is None:
                    raise error.error from error.error.__cause__
                failed[table] = error.error

        self.priority.begin()
        bootstrapping = self._bootstrapping()
        sinks = [item for item in list(self._sinks.items()) if item[0] not in bootstrapping]
        await map_uncancellable(prepare, sinks, self._tables_at_once)
        for table in sorted(held_back.keys() - self._compacting.keys()):
            _log.info(
                "checkpoints go on without a table",
                table=table,
                reason="they would wait for a long compaction of it",
                effect="its rows are committed after this compaction",
            )
        self._compacting = held_back
        if failed:
            await self._fail(failed)
        written = (one.increment.written_files for messages in prepared.values() for one in messages)
        self._written_bytes = sum(file.file_size for files in written for file in files)
        return prepared

    def _long_compactions(self, table: str, sink: TableSink, identifier: int) -> Sequence[LongCompaction]:
        """Return the compactions for which the table is held back; none if it is prepared now.

        After them, the rows that came meanwhile may need another long one. The table is only held back for it if it is
        at most half as long: otherwise the table could be held back for ever, and its rows are more than compaction can
        follow, so that all have to wait.
        """
        before = self._compacting.get(table, ())
        if any(not compaction.is_done for compaction in before):
            return before
        begun = sink.writer.begin_compactions(identifier)
        return () if before and _nbytes(begun) > _nbytes(before) // 2 else begun

    async def _save_moved_rows(self, coordinator: CheckpointCoordinator) -> set[str]:
        failed = dict[str, Exception]()
        on_error = None if self._quarantine is None else failed.__setitem__
        saved: set[str] = await run_uncancellable(self._moved.save, coordinator.read_position_of, on_error)
        if failed:
            await self._fail(failed)
        return saved - failed.keys()

    async def _fail(self, failed: Mapping[str, Exception]) -> None:
        """Quarantine the failed tables, or raise their errors if the pipeline can't continue without them."""
        if self._quarantine is None:
            errors = list(failed.values())
            raise errors[0] if len(errors) == 1 else ExceptionGroup("several failed", errors)
        await self._quarantine.fail(failed)

    def _log_checkpoint(self, identifier: int, tables: int, times: Mapping[str, int]) -> None:
        dead_letters = self._observed.dead_letters.total()
        _log.info(
            "checkpoint",
            identifier=identifier,
            tables=tables,
            dead_letters=dead_letters - self._dead_letters_logged,
            dead_letters_of_run=dead_letters,
            **self._observed.log_fields(),
            **times,
        )
        self._dead_letters_logged = dead_letters

    async def _publish(self, committables: Sequence[TableCommittable], committed: Callable[[str], None]) -> None:
        """Publish, a few tables at a time.

        committed: called with the name of each table whose snapshot exists.

        Raises the error of a table as TableFailed, several errors as a group. If a table fails, or this is cancelled,
        the other tables are still published: each table's snapshot has its own position.
        """

        def commit(committable: TableCommittable) -> tuple[int | None, int, int]:
            sink, began_ms = self._sinks[committable.table], self._clock.now_ms()
            attempts = sink.commit_attempts
            self._observed.commit_began(committable.table)
            try:
                attributes: dict[str, str | int] = {"table": committable.table, "identifier": committable.identifier}
                with failures_of(committable.table), span("commit", **attributes):
                    snapshot = sink.commit(committable)
            finally:
                self._observed.commit_ended(committable.table)
            return snapshot, self._clock.now_ms() - began_ms, sink.commit_attempts - attempts

        def notify(committable: TableCommittable, outcome: tuple[int | None, int, int]) -> None:
            snapshot, took_ms, attempts = outcome
            committed(committable.table)
            self._observed.committed(committable.table, snapshot, took_ms, attempts)

        try:
            await map_uncancellable(commit, committables, self._tables_at_once, notify, keep_going=True)
        except ExceptionGroup as group:
            fenced = [error for error in group.exceptions if isinstance(error, WriterFenced)]
            raise fenced[0] if fenced else group from None  # the same error for every table


def _nbytes(compactions: Sequence[LongCompaction]) -> int:
    return sum(compaction.nbytes for compaction in compactions)


def _of_tables(group: ExceptionGroup[Exception]) -> dict[str, Exception]:
    """Return the error of each table. Raises the group if it has an error that is not a table's."""
    found = {error.table: error.error for error in group.exceptions if isinstance(error, TableFailed)}
    if len(found) < len(group.exceptions):
        raise group
    return found
