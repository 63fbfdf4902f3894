"""Checkpoints of a pipeline: each makes everything written so far visible, with the position that it was read to.

1. The source vouches for the records.  2. Dead letters are made durable, and rows on their way to another key.
3. Writers turn rows into files.  4. Each table publishes files and position.  5. The source is told, as a hint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from checkpoint.committable import TableCommittable
from checkpoint.coordinator import Coordinator
from checkpoint.recovery import read_from
from ingest.checkpoint_times import CheckpointTimes
from ingest.dead_letters import DeadLetters
from ingest.keeper import Keeper
from ingest.moved_rows_keeper import MovedRowsKeeper
from ingest.run_progress import Progress
from ingest.sources.base import Source
from ingest.table_writer import TableSink
from ingest.threads import each_to_its_end, to_its_end
from storage.errors import WriterFenced
from storage.logs import get_logger
from storage.snapshots.commit_message import CommitMessage

TABLES_AT_ONCE: Final = 8  # that flush, or publish, at the same time: either mostly waits for the disk or store

_log = get_logger(__name__)


class Checkpoints:
    """sinks: may grow meanwhile; a new one has no rows yet. progress: is told of checkpoints and snapshots."""

    def __init__(
        self,
        source: Source,
        sinks: Mapping[str, TableSink],
        dead_letters: DeadLetters,
        keeper: Keeper,
        moved: MovedRowsKeeper,
        progress: Progress,
        times: CheckpointTimes,
    ) -> None:
        self._source = source
        self._sinks = sinks
        self._dead_letters = dead_letters
        self._keeper = keeper
        self._moved = moved
        self._progress = progress
        self._times = times
        self._letters_told = 0  # dead letters up to the last checkpoint

    async def take(self, coordinator: Coordinator, pin: Collection[str] = ()) -> None:
        """Nothing may be written meanwhile. pin: tables that get a snapshot in any case."""
        self._times.begin()
        try:
            identifier, tables = await self._published(coordinator, pin)
        except BaseException:
            coordinator.failed()
            raise
        self._progress.checkpoints += 1
        self._tell(identifier, tables)
        await self._source.confirm(read_from(coordinator.positions.values()))

    async def _published(self, coordinator: Coordinator, pin: Collection[str]) -> tuple[int, int]:
        """The checkpoint's identifier, and how many tables have a snapshot of it."""
        identifier = coordinator.begin()
        with self._times.step("source"):
            await self._source.check_identity()
        with self._times.step("dead_letters"):
            await to_its_end(self._dead_letters.flush)
        with self._times.step("moved_rows"):
            told: set[str] = await to_its_end(self._moved.save, coordinator.reached)
        with self._times.step("prepare"):
            messages = await self._prepared(identifier)
        committables = coordinator.prepared(messages, self._source.identity, {*pin, *told})
        await self._keeper.strike([committable.table for committable in committables], identifier)
        with self._times.step("publish"):
            await self.publish(committables, coordinator.committed)
        coordinator.completed()
        if told:
            await to_its_end(self._moved.committed, told)
        await self._keeper.committed(self._source.identity, coordinator.reached)
        return identifier, len(committables)

    async def _prepared(self, identifier: int) -> Mapping[str, Sequence[CommitMessage]]:
        sinks = list(self._sinks.items())
        prepared = await each_to_its_end(lambda item: item[1].prepare(identifier), sinks, TABLES_AT_ONCE)
        return {name: files for (name, _), files in zip(sinks, prepared, strict=True)}

    def _tell(self, identifier: int, tables: int) -> None:
        times = self._times.end(tables)
        letters = self._dead_letters.count
        _log.info(
            "checkpoint",
            identifier=identifier,
            tables=tables,
            dead_letters=letters - self._letters_told,
            dead_letters_of_run=letters,
            **times,
        )
        self._letters_told = letters

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
                self._progress.snapshots[committable.table] = snapshot

        try:
            await each_to_its_end(commit, committables, TABLES_AT_ONCE, told, keep_going=True)
        except ExceptionGroup as group:
            fenced = [error for error in group.exceptions if isinstance(error, WriterFenced)]
            raise fenced[0] if fenced else group from None  # every table says the same
