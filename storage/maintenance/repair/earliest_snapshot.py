"""Sets the earliest snapshot of a table again, after snapshots of its history were lost or deleted manually.

Source: Java `flink/procedure/RepairEarliestSnapshotProcedure.java`.
"""

from __future__ import annotations

from tidelake.storage.base.errors import BadInput
from tidelake.storage.model.table import TableContext


def repair_earliest_snapshot(context: TableContext, snapshot_id: int) -> int:
    """Make this snapshot the earliest one. Readers ignore earlier ones, and `clean_orphans` deletes their files.

    Returns the previous earliest snapshot. Raises BadInput if the snapshot, or a later one, doesn't exist.
    """
    context.identity.check_before_change()
    earliest, latest = context.snapshots.earliest_id(), context.snapshots.latest_id()
    if earliest is None or latest is None:
        raise BadInput(f"{context.name} has no snapshots")
    existing = context.snapshots.ids()
    if snapshot_id not in existing:
        raise BadInput(
            f"{context.name} has no snapshot {snapshot_id}; its snapshots are {existing[0]} to {existing[-1]}"
        )
    lost = sorted(set(range(snapshot_id, latest + 1)) - set(existing))
    if lost:
        raise BadInput(
            f"{context.name}: history can't begin with snapshot {snapshot_id}, as {lost[-1]} is missing after it. "
            f"Begin with {lost[-1] + 1}"
        )
    context.snapshots.hint_earliest(snapshot_id)
    return earliest
