"""Fencing: a process becomes the owner of its pipeline before it reads; an older one can commit no more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from checkpoint.committable import TableCommittable
from checkpoint.coordinator import CheckpointCoordinator, CheckpointPolicy
from checkpoint.epoch import EPOCH_PROPERTY, Epoch, new_writer_id
from checkpoint.fence import RecoveryOutdated
from checkpoint.routing import ROUTING_PROPERTY, Routing
from ingest.pipeline.pipeline_recovery import PipelineRecovery, RecoveredPipeline
from ingest.pipeline.progress_tracker import ProgressTracker
from ingest.sources.base import Source
from ingest.tables.moved_rows_store import MovedRowsStore
from ingest.tables.table_sink import TableSink

ATTEMPTS: Final = 20  # each one lost means that an older process committed meanwhile

Publish: TypeAlias = Callable[[Sequence[TableCommittable], Callable[[str], None]], Awaitable[None]]


class Fencing:
    """sinks, routings, policy: as in `PipelineDependencies`. publish: a few tables at a time; it tells of each that
    got through.
    """

    def __init__(
        self,
        source: Source,
        sinks: Mapping[str, TableSink],
        routings: Mapping[str, Routing],
        policy: CheckpointPolicy,
        recovery: PipelineRecovery,
        tracker: ProgressTracker,
        moved: MovedRowsStore,
        publish: Publish,
    ) -> None:
        self._source = source
        self._sinks = sinks
        self._routings = routings
        self._policy = policy
        self._recovery = recovery
        self._tracker = tracker
        self._moved = moved
        self._publish = publish

    async def __call__(self) -> tuple[RecoveredPipeline, CheckpointCoordinator]:
        """Find where to go on, and make it known in every table that this process does.

        An older process that committed since we looked makes us look again. Raises WriterFenced when another process
        that started beside us came first.
        """
        attempt = 0
        while True:
            attempt += 1
            recovered = await self._recovery.recover()
            self._moved.begin(recovered.moved_rows)
            try:
                return recovered, await self._publish_epoch(recovered)
            except (RecoveryOutdated, ExceptionGroup) as error:
                errors = error.exceptions if isinstance(error, ExceptionGroup) else [error]
                if attempt == ATTEMPTS or not all(isinstance(e, RecoveryOutdated) for e in errors):
                    raise

    async def _publish_epoch(self, recovered: RecoveredPipeline) -> CheckpointCoordinator:
        """Publish an empty snapshot with our epoch, and with the position found, in every table.

        *Crash in between: some tables are at an epoch that nobody has; the next process goes above it.*
        """
        epoch = Epoch(recovered.last_epoch + 1, new_writer_id())
        identifier = recovered.last_identifier + bool(self._sinks)  # none is used up where there is no table yet

        def extra_properties(table: str) -> dict[str, str]:
            routing = self._routings.get(table)
            said = {EPOCH_PROPERTY: epoch.to_text(), **self._moved.properties(table)}
            return said | ({ROUTING_PROPERTY: routing.to_text()} if routing else {})

        coordinator = CheckpointCoordinator(recovered.positions, identifier, self._policy, extra_properties)
        empty_commits = [
            TableCommittable(table, identifier, (), recovered.positions[table], extra_properties(table))
            for table in sorted(self._sinks)
        ]
        # The first table alone: of two processes that start at once the same one must come first in all of them.
        await self._publish(empty_commits[:1], self._recovery.flag_used)
        await self._publish(empty_commits[1:], self._recovery.flag_used)
        await self._tracker.begin(self._source.identity, coordinator.reached, identifier, epoch, recovered.progress)
        await self._tracker.register()
        return coordinator
