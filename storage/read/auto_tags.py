"""Finds the two snapshots of a read of the changes between an automatic tag and the automatic tag before it.

Source: Java `table/source/snapshot/IncrementalDeltaStartingScanner.java`.
"""

from __future__ import annotations

from tidelake.storage.base.errors import BadInput
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.tag_periods import TagPeriod
from tidelake.storage.model.table import TableContext


def snapshots_to_auto_tag(context: TableContext, name: str) -> tuple[Snapshot, Snapshot] | None:
    """Returns the snapshot of the previous automatic tag and the snapshot of this tag; None if either is missing.

    Raises BadInput if the name is not one that an automatic tag of the table can have.
    """
    tags, period = context.tags, TagPeriod.of(context.options)
    end = period.time_of(name)
    if end is None:
        raise BadInput(
            f"option incremental-to-auto-tag = {name!r}: an automatic tag of {context.name} is named like "
            f"{period.example} (tag.creation-period, tag.period-formatter)"
        )
    names = tags.names()
    earlier = [(time, other) for other in names if (time := period.time_of(other)) is not None and time < end]
    if name not in names or not earlier:
        return None
    return tags.get(max(earlier)[1]), tags.get(name)
