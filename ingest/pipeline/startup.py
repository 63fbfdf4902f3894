"""Before the first record: a process finds where to go on, and becomes the owner of its pipeline.

Each process of a pipeline has an epoch. It publishes an empty snapshot with it in every table before it reads: from
then on an older process can commit no more (`checkpoint.fence`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from checkpoint.coordinator import CheckpointCoordinator
from checkpoint.fence import RecoveryOutdated
from ingest.dead_letters import DeadLetters
from ingest.pipeline.batch_writer import BatchWriter
from ingest.pipeline.checkpointer import Checkpointer
from ingest.pipeline.pipeline_recovery import PipelineRecovery, RecoveredPipeline
from ingest.pipeline.recovery_flags import RecoveryFlags
from ingest.quarantine.quarantine import Quarantine
from ingest.tables.moved_rows.moved_row_files import MovedRowsStore

ATTEMPTS: Final = 20  # each one lost means that an older process committed meanwhile


class Startup:
    """The start of a pipeline: recovery and take-over.

    flags: what a person decided
    quarantine: None for a pipeline without
    """

    def __init__(
        self,
        recovery: PipelineRecovery,
        checkpoints: Checkpointer,
        dead_letters: DeadLetters,
        moved: MovedRowsStore,
        writer: BatchWriter,
        flags: RecoveryFlags,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._quarantine = quarantine
        self._recovery = recovery
        self._checkpoints = checkpoints
        self._dead_letters = dead_letters
        self._moved = moved
        self._writer = writer
        self._flags = flags

    async def run(self) -> tuple[RecoveredPipeline, CheckpointCoordinator]:
        """Become the owner, and have every part know what earlier processes left. Raises as `fence` does."""
        recovered, coordinator = await fence(self._recovery, self._checkpoints, self._flags)
        await asyncio.to_thread(self._dead_letters.recover, recovered.starts)
        await asyncio.to_thread(self._moved.restore, recovered.moved_row_files, self._flags.tables)
        self._writer.start_from({table: position.ends for table, position in recovered.positions.items()})
        if self._quarantine is not None:
            self._quarantine.positions = coordinator
            await self._quarantine.restore(recovered.kept)
            await self._quarantine.fail(self._checkpoints.failed_at_start)
        return recovered, coordinator

    async def plan(self) -> RecoveredPipeline:
        """Find where `run` would start; writes nothing."""
        return await self._recovery.recover(self._flags)

    async def plan_next(self) -> RecoveredPipeline:
        """Find where the next start would continue. Raises its refusal."""
        return await self._recovery.recover_next_start()


async def fence(
    recovery: PipelineRecovery, checkpoints: Checkpointer, flags: RecoveryFlags
) -> tuple[RecoveredPipeline, CheckpointCoordinator]:
    """Find where to go on, and publish in every table that this process does.

    An older process that committed since we looked makes us look again. Raises WriterFenced when another process that
    started at the same time came first.
    """
    attempt = 0
    while True:
        attempt += 1
        recovered, fenced = await recovery.recover(flags), set[str]()
        try:
            return recovered, await checkpoints.begin(recovered, fenced.add)
        except (RecoveryOutdated, ExceptionGroup) as error:
            errors = error.exceptions if isinstance(error, ExceptionGroup) else [error]
            if attempt == ATTEMPTS or not all(isinstance(e, RecoveryOutdated) for e in errors):
                raise
        flags = flags.without(fenced)
