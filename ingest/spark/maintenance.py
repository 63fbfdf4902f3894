"""What the driver does for a table after a batch: old snapshots expire, but never the one by which a replay is
recognised.

Without its newest own snapshot a sink would take the replay of a batch for a new one. So it is kept from any
expiry: from ours by a pin, from other engines' by Paimon's consumer file.
"""

from __future__ import annotations

import threading

from ingest.tables.table_history import consumer_name
from storage.logs import get_logger
from storage.maintenance.maintenance_worker import Committed, MaintenanceWorker
from storage.snapshots.consumers import Consumer
from storage.table import TableContext

_log = get_logger(__name__)


class SinkMaintenance:
    """Of all tables that the sinks of one driver write; expiry runs in a thread of its own. Thread-safe."""

    def __init__(self, worker: MaintenanceWorker) -> None:
        self._worker = worker
        self._newest: dict[tuple[str, str], int] = {}  # (location, commit user) to its newest snapshot
        self._watching: dict[
            tuple[str, str, int], Committed
        ] = {}  # by the schema's version, too: options change with it
        self._lock = threading.Lock()

    def committed(self, context: TableContext, commit_user: str, snapshot_id: int) -> None:
        """A batch of this user became this snapshot. Never fails: what goes wrong is logged."""
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


maintenance = SinkMaintenance(MaintenanceWorker())  # no thread starts before something is to expire
