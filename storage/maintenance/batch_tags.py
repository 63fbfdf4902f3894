"""A tag after a batch write (`tag.automatic-creation = batch`): one a day, or always the same one.

Source: Java `tag/TagBatchCreation.java`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from storage.errors import BadInput
from storage.logs import get_logger
from storage.maintenance.tag_changes import create_tag, delete_tag, replace_tag
from storage.options.maintenance_options import TagCreation
from storage.table import TableContext

_log = get_logger(__name__)


def tag_batch_write(context: TableContext, snapshot_id: int) -> None:
    """Tag what a batch write committed. Raises nothing: the rows are in the table, and the tag can be made by hand."""
    options = context.options
    if options.tag_creation is not TagCreation.BATCH:
        return
    name = options.tag_batch_customized_name
    try:
        time = datetime.fromtimestamp(context.snapshots.get(snapshot_id).time_ms / 1000, options.process_time_zone)
        name = name or f"batch-write-{time:%Y-%m-%d}"
        retained_ms = options.tag_default_time_retained_ms
        retained = None if retained_ms is None else timedelta(milliseconds=retained_ms)
        make = replace_tag if name in context.tags.names() else create_tag
        make(context, name, snapshot_id, retained)
        _drop_oldest(context)
    except Exception as error:
        _log.warning("no tag of a batch write", table=context.name, tag=name, snapshot=snapshot_id, error=str(error))


def _drop_oldest(context: TableContext) -> None:
    """Of all tags, of any creator: those of the oldest snapshots; of one snapshot, the tag created first."""
    most = context.options.tag_num_retained_max
    if most is None:
        return
    store = context.tags
    made_ms = {e.name: e.modified_ms for e in context.io.list_directory(context.paths.tag_directory)}
    ages: list[tuple[int, int, str]] = []
    for name in store.names():
        try:
            ages.append((store.get(name).id, made_ms.get(context.paths.tag(name).rpartition("/")[2], 0), name))
        except BadInput:  # deleted concurrently
            continue
    for _, _, name in sorted(ages)[: max(len(ages) - most, 0)]:
        delete_tag(context, name)
