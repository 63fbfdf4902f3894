"""A process takes its pipeline over, before it reads: from then on an older one can't commit any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from checkpoint.committable import TableCommittable
from checkpoint.coordinator import CheckpointPolicy, Coordinator
from checkpoint.epoch import EPOCH_PROPERTY, Epoch, new_writer
from checkpoint.fence import Overtaken
from checkpoint.routing import ROUTING_PROPERTY, Routing
from ingest.beginning import Beginning, BeginningFinder
from ingest.keeper import Keeper
from ingest.moved_rows_keeper import MovedRowsKeeper
from ingest.sources.base import Source
from ingest.table_writer import TableSink

ATTEMPTS: Final = 20  # each one lost means that an older process committed meanwhile

Publish: TypeAlias = Callable[[Sequence[TableCommittable], Callable[[str], None]], Awaitable[None]]


class TakeOver:
    """sinks, routings, policy: as in `Parts`. publish: a few tables at a time; it tells of each that got through."""

    def __init__(
        self,
        source: Source,
        sinks: Mapping[str, TableSink],
        routings: Mapping[str, Routing],
        policy: CheckpointPolicy,
        finder: BeginningFinder,
        keeper: Keeper,
        moved: MovedRowsKeeper,
        publish: Publish,
    ) -> None:
        self._source = source
        self._sinks = sinks
        self._routings = routings
        self._policy = policy
        self._finder = finder
        self._keeper = keeper
        self._moved = moved
        self._publish = publish

    async def __call__(self) -> tuple[Beginning, Coordinator]:
        """Find where to go on, and make it known in every table that this process does.

        An older process that committed since we looked makes us look again. Raises WriterFenced when another process
        that started beside us came first.
        """
        attempt = 0
        while True:
            attempt += 1
            beginning = await self._finder.find()
            self._moved.begin(beginning.moved_rows)
            try:
                return beginning, await self._announce(beginning)
            except (Overtaken, ExceptionGroup) as error:
                errors = error.exceptions if isinstance(error, ExceptionGroup) else [error]
                if attempt == ATTEMPTS or not all(isinstance(e, Overtaken) for e in errors):
                    raise

    async def _announce(self, beginning: Beginning) -> Coordinator:
        """Publish an empty snapshot with our epoch, and with the position found, in every table.

        *Crash in between: some tables are at an epoch that nobody has; the next process goes above it.*
        """
        epoch = Epoch(beginning.last_epoch + 1, new_writer())
        identifier = beginning.last_identifier + bool(self._sinks)  # none is used up where there is no table yet

        def stamps(table: str) -> dict[str, str]:
            routing = self._routings.get(table)
            said = {EPOCH_PROPERTY: epoch.to_text(), **self._moved.properties(table)}
            return said | ({ROUTING_PROPERTY: routing.to_text()} if routing else {})

        coordinator = Coordinator(beginning.positions, identifier, self._policy, stamps)
        announcements = [
            TableCommittable(table, identifier, (), beginning.positions[table], stamps(table))
            for table in sorted(self._sinks)
        ]
        # The first table alone: of two processes that start at once the same one must come first in all of them.
        await self._publish(announcements[:1], self._finder.settled)
        await self._publish(announcements[1:], self._finder.settled)
        await self._keeper.begin(self._source.identity, coordinator.reached, identifier, epoch, beginning.progress)
        await self._keeper.register()
        return coordinator
