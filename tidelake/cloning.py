"""`Catalog.clone_table`: chooses the snapshot to copy, and drops a clone that fails."""

from __future__ import annotations

from tidelake.storage.base.errors import BadInput
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.maintenance.table_clone import check_clonable, clone_files
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext


def clone(source: TableContext, catalog: Catalog, name: str, snapshot_id: int | None, tag: str | None) -> None:
    """Clone a table. The new table is created first, to reserve its name, and dropped if copying fails."""
    check_clonable(source)
    snapshot = _snapshot(source, snapshot_id, tag)
    catalog.restore_table(name, [source.schemas.get(schema_id) for schema_id in source.schemas.ids()])
    if snapshot is None:
        return
    try:
        clone_files(source, snapshot, catalog.load(name))
    except BaseException:
        catalog.drop_table(name)
        raise


def _snapshot(source: TableContext, snapshot_id: int | None, tag: str | None) -> Snapshot | None:
    if snapshot_id is not None and tag is not None:
        raise BadInput("clone_table() takes at most one of snapshot and tag")
    if tag is not None:
        return source.tags.get(tag)
    if snapshot_id is None:
        return source.snapshots.latest()
    found = source.snapshots.find(snapshot_id)
    if found is None:
        earliest, latest = source.snapshots.earliest_id(), source.snapshots.latest_id()
        available = "the table has no snapshot yet" if latest is None else f"its snapshots are {earliest} to {latest}"
        raise BadInput(f"{source.name} has no snapshot {snapshot_id}: {available}")
    return found
