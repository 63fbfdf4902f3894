"""Expires snapshots after the commits of a compaction job, by the table's options.

It also does so for write-only tables: their writers leave maintenance to this job.

Source: Java `flink/action/CompactAction.java`, `table/AbstractFileStoreTable.newExpireRunnable`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tidelake.compaction.cancellation import CancellationToken
from tidelake.storage.maintenance.maintenance_worker import Committed, MaintenanceWorker
from tidelake.storage.model.table import TableContext


class JobExpiry:
    """Expires snapshots of all tables that a job compacts, in a separate thread. Errors are only logged.

    At its exit each table gets a last round, unless the job was cancelled at once.
    """

    def __init__(self, cancellation: CancellationToken) -> None:
        self._cancellation = cancellation
        self._worker = MaintenanceWorker()
        # options may change with the schema; a table that was created again has another creation time
        self._tables: dict[tuple[str, int, int], Committed] = {}

    def published(self, context: TableContext, snapshot_id: int) -> None:
        """Expire snapshots after a commit.

        context: returned by `CompactionRequest.prepare`; never write-only.
        """
        key = (context.location, context.schema.id, context.schema.time_ms)
        if key not in self._tables:
            self._tables[key] = self._worker.watch(context)
        self._tables[key](snapshot_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.close(finish=not self._cancellation.is_cancelled_now)
