"""Builds the HTTP endpoint of a pipeline, if it is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelake.compaction.scheduler import shared_scheduler
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.settings import Config
from tidelake.storage.write.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from tidelake.ingest.monitoring.monitor import PipelineMonitor


def build_monitor(config: Config, observed: RunObservations, memory: MemoryBudget) -> PipelineMonitor | None:
    if config.metrics.port is None:
        return None
    # Imported here, because importing the HTTP server takes time that a pipeline without an endpoint should not spend.
    from tidelake.ingest.monitoring.metrics import ProcessGauges  # noqa: PLC0415
    from tidelake.ingest.monitoring.monitor import PipelineMonitor  # noqa: PLC0415

    scheduler = shared_scheduler()
    gauges = ProcessGauges(
        lambda: memory.held_bytes, memory.limit_bytes, lambda: scheduler.waiting, lambda: scheduler.running
    )
    return PipelineMonitor(config.metrics, config.pipeline, config.warehouse, observed, gauges)
