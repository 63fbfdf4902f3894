"""The maintenance steps that follow a commit, before snapshots expire. The table's options select them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidelake.storage.maintenance.automatic_tags import AutomaticTags
from tidelake.storage.maintenance.partition_expiry import PartitionExpiry
from tidelake.storage.maintenance.tag_expiry import TagExpiry
from tidelake.storage.model.table import TableContext


class MaintenanceStep(Protocol):
    """A maintenance step after commits. Not thread-safe.

    name: for the log.
    """

    @property
    def name(self) -> str: ...

    def is_due(self, *, respect_interval: bool = True) -> bool:
        """Return whether `run` may find something to do. Reads nothing.

        respect_interval: False also returns True for work that could wait a little longer.
        """
        ...

    def run(self) -> None:
        """Do what is due. After an error, the next run does the rest."""
        ...


def maintenance_steps(context: TableContext, now_ms: Callable[[], int]) -> Sequence[MaintenanceStep]:
    """Return the steps in their order.

    now_ms: wall clock.

    Raises BadInput for invalid options.
    """
    steps: list[MaintenanceStep] = []
    if AutomaticTags.is_enabled_for(context):
        steps.append(AutomaticTags(context, now_ms=now_ms))
    if context.options.tag_time_expire_enabled:
        steps.append(TagExpiry(context, now_ms=now_ms))
    if PartitionExpiry.is_enabled_for(context):
        steps.append(PartitionExpiry(context, now_ms=now_ms))
    return steps
