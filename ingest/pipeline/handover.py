"""What a pipeline hands over to the one that replaces it in the same process, when its configuration changes.

Tables whose settings are the same keep their sinks: writers, compactions, and what they know of the table. Everything
else is built again from the new configuration, by the same code as at a start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.pipeline.error_policy import ErrorPolicy
from tidelake.ingest.settings import TableSettings
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker
from tidelake.storage.write.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from tidelake.ingest.monitoring.monitor import PipelineMonitor


@dataclass(frozen=True, slots=True)
class Handover:
    """What belongs to the process, and the tables. `sinks` and `settings` change while the pipeline runs.

    sinks: the tables that exist and are not in quarantine.
    settings: the settings of each table.
    """

    memory: MemoryBudget
    maintenance: MaintenanceWorker
    observed: RunObservations
    monitor: PipelineMonitor | None
    errors: ErrorPolicy
    sinks: Mapping[str, TableSink]
    settings: Mapping[str, TableSettings]

    def continued(self, tables: Mapping[str, TableSettings]) -> dict[str, TableSink]:
        """Return the sinks of tables whose settings are the same. Commit all their rows before.

        tables: settings by name of table.
        """
        return {name: sink for name, sink in list(self.sinks.items()) if self.settings.get(name) == tables.get(name)}
