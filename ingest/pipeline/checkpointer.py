"""Checkpoints of a pipeline: each makes everything written so far visible, with the position that it was read to.

1. The source vouches for the records.  2. Dead letters are made durable, and rows on their way to another key.
3. Writers turn rows into files.  4. Each table publishes files and position.  5. The source gets the offsets, as a
hint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from checkpoint.committable import TableCommittable
from checkpoint.coordinator import CheckpointCoordinator, CheckpointPolicy
from checkpoint.epoch import Epoch, new_writer_id
from checkpoint.recovery import resume_offsets
from checkpoint.routing import ROUTING_PROPERTY, Routing
from ingest.dead_letters import DeadLetters
from ingest.monitoring.observations import RunObservations
from ingest.pipeline.pipeline_recovery import RecoveredPipeline
from ingest.pipeline.progress_tracker import ProgressTracker
from ingest.pipeline.run_metrics import CheckpointTimer, RunMetrics
from ingest.sources.base import Source
from ingest.tables.moved_row_files import MovedRowsStore
from ingest.tables.table_sink import TableSink
from storage.commit.commit_message import CommitMessage
from storage.errors import WriterFenced
from storage.logs import get_logger
from storage.threads import map_uncancellable, run_uncancellable

TABLES_AT_ONCE: Final = 8  # that flush, or publish, at the same time: either mostly waits for the disk or store

_log = get_logger(__name__)


class Checkpointer:
    """sinks: the tables that exist; it may grow meanwhile, a new one has no rows yet.
    routings: what the configuration says of each table.
    metrics: counts checkpoints and snapshots.
    """

    def __init__(
        self,
        source: Source,
        sinks: Mapping[str, TableSink],
        dead_letters: DeadLetters,
        tracker: ProgressTracker,
        moved: MovedRowsStore,
        routings: Mapping[str, Routing],
        policy: CheckpointPolicy,
        metrics: RunMetrics,
        observed: RunObservations,
    ) -> None:
        self._source = source
        self._sinks = sinks
        self._dead_letters = dead_letters
        self._tracker = tracker
        self._moved = moved
        self._routings = routings
        self._policy = policy
        self._metrics = metrics
        self._observed = observed
        self._clock = observed.clock
        self._times = CheckpointTimer(
            policy.interval_ms, observed.clock, lambda step: observed.activity(f"checkpoint: {step}")
        )
        self._dead_letters_logged = 0  # dead letters up to the last checkpoint

    async def begin(self, recovered: RecoveredPipeline, fenced: Callable[[str], None]) -> CheckpointCoordinator:
        """Publish an empty snapshot with a new epoch, and with the position found, in every table.

        fenced: called with each.

        Raises RecoveryOutdated where an older process committed since, WriterFenced where a newer one did.
        *Crash in between: some tables are at an epoch that no process has; the next one goes above it.*
        """
        self._moved.begin(recovered.moved_rows)
        epoch = Epoch(recovered.last_epoch + 1, new_writer_id())
        identifier = recovered.last_identifier + bool(self._sinks)  # none is used up where there is no table yet

        def extra_properties(table: str) -> dict[str, str]:
            routing = self._routings.get(table)
            moved = self._moved.properties(table)
            return moved if routing is None else {**moved, ROUTING_PROPERTY: routing.to_text()}

        coordinator = CheckpointCoordinator(recovered.positions, identifier, self._policy, epoch, extra_properties)
        empty_commits = [
            TableCommittable(table, identifier, (), recovered.positions[table], epoch, extra_properties(table))
            for table in sorted(self._sinks)
        ]
        # The first table alone: of two processes that start at once the same one must come first in all of them.
        await self._publish(empty_commits[:1], fenced)
        await self._publish(empty_commits[1:], fenced)
        await self._tracker.begin(self._source.identity, coordinator.reached, identifier, epoch, recovered.progress)
        await self._tracker.register()
        return coordinator

    async def take(self, coordinator: CheckpointCoordinator, always_publish: Collection[str] = ()) -> None:
        """Nothing may be written meanwhile.

        always_publish: tables that get a snapshot even without files.
        """
        self._times.begin()
        try:
            identifier, tables = await self._publish_checkpoint(coordinator, always_publish)
        except BaseException:
            coordinator.failed()
            raise
        self._metrics.checkpoints += 1
        times = self._times.end(tables)
        self._observed.checkpoint_completed(identifier, tables, times["took_ms"], coordinator.reached)
        self._log_checkpoint(identifier, tables, times)
        await self._source.commit_offsets(resume_offsets(coordinator.positions.values()))

    async def _publish_checkpoint(
        self, coordinator: CheckpointCoordinator, always_publish: Collection[str]
    ) -> tuple[int, int]:
        """The checkpoint's identifier, and how many tables have a snapshot of it."""
        identifier = coordinator.begin()
        with self._times.step("source"):
            await self._source.check_identity()
        with self._times.step("dead_letters"):
            await run_uncancellable(self._dead_letters.flush)
        with self._times.step("moved_rows"):
            with_moved: set[str] = await run_uncancellable(self._moved.save, coordinator.reached)
        with self._times.step("prepare"):
            messages = await self._prepare(identifier)
        committables = coordinator.prepared(messages, self._source.identity, {*always_publish, *with_moved})
        await self._tracker.mark_active([committable.table for committable in committables], identifier)
        with self._times.step("publish"):
            await self._publish(committables, coordinator.committed)
        coordinator.completed()
        if with_moved:
            await run_uncancellable(self._moved.committed, with_moved)
        await self._tracker.committed(self._source.identity, coordinator.reached)
        return identifier, len(committables)

    async def _prepare(self, identifier: int) -> Mapping[str, Sequence[CommitMessage]]:
        sinks = list(self._sinks.items())

        def prepare(item: tuple[str, TableSink]) -> list[CommitMessage]:
            return item[1].writer.prepare_commit(identifier)

        prepared = await map_uncancellable(prepare, sinks, TABLES_AT_ONCE)
        return {name: files for (name, _), files in zip(sinks, prepared, strict=True)}

    def _log_checkpoint(self, identifier: int, tables: int, times: Mapping[str, int]) -> None:
        dead_letters = self._dead_letters.count
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

        committed: called with each table whose snapshot exists.

        Raises what a table raised, several at once as a group. When one fails, or we are cancelled, the others are
        published all the same: the tables that got through know how far they are.
        """

        def commit(committable: TableCommittable) -> tuple[int | None, int, int]:
            sink, began_ms = self._sinks[committable.table], self._clock.now_ms()
            attempts = sink.commit_attempts
            self._observed.commit_began(committable.table)
            try:
                snapshot = sink.commit(committable)
            finally:
                self._observed.commit_ended(committable.table)
            return snapshot, self._clock.now_ms() - began_ms, sink.commit_attempts - attempts

        def notify(committable: TableCommittable, outcome: tuple[int | None, int, int]) -> None:
            snapshot, took_ms, attempts = outcome
            committed(committable.table)
            self._observed.committed(committable.table, snapshot, took_ms, attempts)
            if snapshot is not None:
                self._metrics.snapshots[committable.table] = snapshot

        try:
            await map_uncancellable(commit, committables, TABLES_AT_ONCE, notify, keep_going=True)
        except ExceptionGroup as group:
            fenced = [error for error in group.exceptions if isinstance(error, WriterFenced)]
            raise fenced[0] if fenced else group from None  # every table says the same
