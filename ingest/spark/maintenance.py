"""Maintenance of a table in the driver after a batch: expires old snapshots, except the one that identifies a replay.

Without its newest own snapshot, a sink would treat the replay of a batch as a new batch. So that snapshot is protected
from expiry: by a pin from ours, and by Paimon's consumer file from that of other engines.
"""

from __future__ import annotations

from tidelake.ingest.tables.table_history import consumer_name
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.maintenance.maintenance_worker import Committed, MaintenanceWorker
from tidelake.storage.model.snapshots.consumers import Consumer
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)


class SinkMaintenance:
    """The maintenance of all tables of one driver's sinks. Expiry runs in a separate thread. Thread-safe."""

    def __init__(self, worker: MaintenanceWorker) -> None:
        self._worker = worker
        self._newest: dict[tuple[str, str], int] = {}  # (location, commit user) to its newest snapshot
        # The key includes the schema's id, because options change with the schema.
        self._watching: dict[tuple[str, str, int], Committed] = {}
        self._lock = env.Lock()

    def committed(self, context: TableContext, commit_user: str, snapshot_id: int) -> None:
        """Maintain the table after a batch of this user was committed. Errors are logged, never raised."""
        try:
            Consumer(context.io, context.paths, consumer_name(commit_user)).write(snapshot_id)
        except Exception as error:
            _log.warning(
                "not registered as a consumer",
                table=context.name,
                error=str(error),
                effect="the next batch tries again",
            )
        own = (context.location, commit_user)
        with self._lock:
            self._newest[own] = snapshot_id
            key = (*own, context.schema.id)
            if key not in self._watching:
                self._watching[key] = self._worker.watch(context, pins=lambda: [self._newest[own]])
            due = self._watching[key]
        due(snapshot_id)


maintenance = SinkMaintenance(MaintenanceWorker())  # its thread starts only when snapshots are to be expired
