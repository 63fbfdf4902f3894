"""What follows a commit to a table before snapshots expire, as the table's options ask for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from storage.maintenance.automatic_tags import AutomaticTags
from storage.maintenance.partition_expiry import PartitionExpiry
from storage.maintenance.tag_expiry import TagExpiry
from storage.table import TableContext


class MaintenanceStep(Protocol):
    """One thread at a time. name: for the log."""

    @property
    def name(self) -> str: ...

    def is_due(self, *, patient: bool = True) -> bool:
        """Whether `run` may find something to do; costs nothing. patient: rather later than a little now."""
        ...

    def run(self) -> None:
        """Do what is due. What an error leaves undone is done by the next run."""
        ...


def maintenance_steps(context: TableContext, now_ms: Callable[[], int]) -> Sequence[MaintenanceStep]:
    """In the order in which they are taken. now_ms: wall clock. Raises BadInput for options that can't be."""
    steps: list[MaintenanceStep] = []
    if AutomaticTags.made_for(context):
        steps.append(AutomaticTags(context, now_ms=now_ms))
    if context.options.tag_time_expire_enabled:
        steps.append(TagExpiry(context, now_ms=now_ms))
    if PartitionExpiry.made_for(context):
        steps.append(PartitionExpiry(context, now_ms=now_ms))
    return steps
