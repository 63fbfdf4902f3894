"""The start of a process: it recovers where to continue, and becomes the owner of its pipeline.

Each process of a pipeline has an epoch. Before it reads, it publishes an empty snapshot with its epoch in every table.
From then on, older processes can't commit any more (`tidelake.checkpoint.fence`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidelake.checkpoint.coordinator import CheckpointCoordinator
from tidelake.checkpoint.ownership import Ownership
from tidelake.errors import RecoveryOutdated
from tidelake.ingest.dead_letters import DeadLetters
from tidelake.ingest.pipeline.batch_writer import BatchWriter
from tidelake.ingest.pipeline.checkpointer import Checkpointer
from tidelake.ingest.pipeline.pipeline_recovery import PipelineRecovery, RecoveredPipeline
from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags
from tidelake.ingest.quarantine.quarantine import Quarantine
from tidelake.ingest.tables.moved_row_files import MovedRowsStore

ATTEMPTS: Final = 20  # an attempt fails if an older process commits meanwhile


class Startup:
    """The start of a pipeline: recovery and take-over.

    flags: an operator's decisions
    quarantine: None for a pipeline without quarantine
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

    async def run(self, owned: Ownership | None = None) -> tuple[RecoveredPipeline, CheckpointCoordinator]:
        """Become the owner, and restore the state of earlier processes in every part. Raises the errors of `fence`.

        A rewrite of a table that an earlier process began is finished first.

        owned: what this process owns already, if its pipeline had another configuration before.
        """
        await self._recovery.finish_rewrites(() if owned is None else owned.positions)
        recovered, coordinator = await fence(self._recovery, self._checkpoints, self._flags, owned)
        await asyncio.to_thread(self._dead_letters.recover, recovered.starts)
        await asyncio.to_thread(self._moved.restore, recovered.moved_row_files, self._flags.tables)
        self._writer.start_from({table: position.ends for table, position in recovered.positions.items()})
        if self._quarantine is not None:
            self._quarantine.positions = coordinator
            await self._quarantine.restore(recovered.kept)
            await self._quarantine.fail(self._checkpoints.failed_at_start)
            await self._quarantine.follow_requests()
        return recovered, coordinator

    @property
    def has_begun(self) -> bool:
        """Whether `run` may have published something."""
        return self._checkpoints.has_begun

    async def plan(self) -> RecoveredPipeline:
        """Find where `run` would start. Writes nothing."""
        return await self._recovery.recover(self._flags)

    async def plan_next(self) -> RecoveredPipeline:
        """Find where the next start would continue. Raises its refusal."""
        return await self._recovery.recover_next_start()


async def fence(
    recovery: PipelineRecovery, checkpoints: Checkpointer, flags: RecoveryFlags, owned: Ownership | None = None
) -> tuple[RecoveredPipeline, CheckpointCoordinator]:
    """Recover where to continue, and publish this process's epoch in every table that it doesn't own already.

    If an older process commits in between, the recovery is repeated. Raises WriterFenced if another process that
    started at the same time was faster.
    """
    attempt = 0
    while True:
        attempt += 1
        recovered, fenced = await recovery.recover(flags), set[str]()
        try:
            return recovered, await checkpoints.begin(recovered, fenced.add, owned)
        except (RecoveryOutdated, ExceptionGroup) as error:
            errors = error.exceptions if isinstance(error, ExceptionGroup) else [error]
            if attempt == ATTEMPTS or not all(isinstance(e, RecoveryOutdated) for e in errors):
                raise
        flags = flags.without(fenced)
