"""Checkpoints of a pipeline: each makes everything written so far visible, with the position that it was read to.

1. The source vouches for the records.  2. Dead letters are made durable, and rows on their way to another key.
3. Writers turn rows into files.  4. Each table publishes files and position.  5. The source is told, as a hint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from checkpoint.committable import TableCommittable
from checkpoint.coordinator import CheckpointCoordinator
from checkpoint.recovery import resume_offsets
from ingest.dead_letters import DeadLetters
from ingest.pipeline.checkpoint_timer import CheckpointTimer
from ingest.pipeline.progress_tracker import ProgressTracker
from ingest.pipeline.run_metrics import RunMetrics
from ingest.sources.base import Source
from ingest.tables.moved_rows_store import MovedRowsStore
from ingest.tables.table_sink import TableSink
from ingest.threads import map_uncancellable, run_uncancellable
from storage.commit.commit_message import CommitMessage
from storage.errors import WriterFenced
from storage.logs import get_logger

TABLES_AT_ONCE: Final = 8  # that flush, or publish, at the same time: either mostly waits for the disk or store

_log = get_logger(__name__)


class Checkpointer:
    """sinks: may grow meanwhile; a new one has no rows yet. metrics: counts checkpoints and snapshots."""

    def __init__(
        self,
        source: Source,
        sinks: Mapping[str, TableSink],
        dead_letters: DeadLetters,
        tracker: ProgressTracker,
        moved: MovedRowsStore,
        metrics: RunMetrics,
        times: CheckpointTimer,
    ) -> None:
        self._source = source
        self._sinks = sinks
        self._dead_letters = dead_letters
        self._tracker = tracker
        self._moved = moved
        self._metrics = metrics
        self._times = times
        self._dead_letters_logged = 0  # dead letters up to the last checkpoint

    async def take(self, coordinator: CheckpointCoordinator, always_publish: Collection[str] = ()) -> None:
        """Nothing may be written meanwhile. always_publish: tables that get a snapshot even without files."""
        self._times.begin()
        try:
            identifier, tables = await self._publish_checkpoint(coordinator, always_publish)
        except BaseException:
            coordinator.failed()
            raise
        self._metrics.checkpoints += 1
        self._log_checkpoint(identifier, tables)
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
            told: set[str] = await run_uncancellable(self._moved.save, coordinator.reached)
        with self._times.step("prepare"):
            messages = await self._prepare(identifier)
        committables = coordinator.prepared(messages, self._source.identity, {*always_publish, *told})
        await self._tracker.mark_active([committable.table for committable in committables], identifier)
        with self._times.step("publish"):
            await self.publish(committables, coordinator.committed)
        coordinator.completed()
        if told:
            await run_uncancellable(self._moved.committed, told)
        await self._tracker.committed(self._source.identity, coordinator.reached)
        return identifier, len(committables)

    async def _prepare(self, identifier: int) -> Mapping[str, Sequence[CommitMessage]]:
        sinks = list(self._sinks.items())
        prepared = await map_uncancellable(lambda item: item[1].prepare(identifier), sinks, TABLES_AT_ONCE)
        return {name: files for (name, _), files in zip(sinks, prepared, strict=True)}

    def _log_checkpoint(self, identifier: int, tables: int) -> None:
        times = self._times.end(tables)
        dead_letters = self._dead_letters.count
        _log.info(
            "checkpoint",
            identifier=identifier,
            tables=tables,
            dead_letters=dead_letters - self._dead_letters_logged,
            dead_letters_of_run=dead_letters,
            **times,
        )
        self._dead_letters_logged = dead_letters

    async def publish(self, committables: Sequence[TableCommittable], committed: Callable[[str], None]) -> None:
        """Publish, a few tables at a time. committed: told each table whose snapshot exists.

        Raises what a table raised, several at once as a group. When one fails, or we are cancelled, the others are
        published all the same: the tables that got through know how far they are.
        """

        def commit(committable: TableCommittable) -> int | None:
            return self._sinks[committable.table].commit(committable.to_storage())

        def told(committable: TableCommittable, snapshot: int | None) -> None:
            committed(committable.table)
            if snapshot is not None:
                self._metrics.snapshots[committable.table] = snapshot

        try:
            await map_uncancellable(commit, committables, TABLES_AT_ONCE, told, keep_going=True)
        except ExceptionGroup as group:
            fenced = [error for error in group.exceptions if isinstance(error, WriterFenced)]
            raise fenced[0] if fenced else group from None  # every table says the same
