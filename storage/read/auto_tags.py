"""What changed up to an automatic tag, from the one before it.

Source: Java `table/source/snapshot/IncrementalDeltaStartingScanner.java`.
"""

from __future__ import annotations

from storage.errors import BadInput
from storage.snapshots.snapshot import Snapshot
from storage.snapshots.tag_periods import TagPeriod
from storage.table import TableContext


def snapshots_to_auto_tag(context: TableContext, name: str) -> tuple[Snapshot, Snapshot] | None:
    """The snapshots of the last automatic tag before this one, and of this one; None where either is missing.

    Raises BadInput for a name that no automatic tag of the table has.
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
