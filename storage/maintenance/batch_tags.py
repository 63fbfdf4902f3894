"""Tags after batch writes (`tag.automatic-creation = batch`): one tag per day, or always the same tag.

Source: Java `tag/TagBatchCreation.java`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tidelake.storage.base.errors import BadInput
from tidelake.storage.base.logs import get_logger
from tidelake.storage.maintenance.tag_changes import create_tag, delete_tag, replace_tag
from tidelake.storage.model.options.maintenance_options import TagCreation
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)


def tag_batch_write(context: TableContext, snapshot_id: int) -> None:
    """Tag the snapshot of a batch write.

    Raises nothing: the rows are committed, and the tag can be created manually.
    """
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
    """Delete the oldest tags beyond `tag.num-retained-max`, by snapshot id, then by creation time. All tags count."""
    most = context.options.tag_num_retained_max
    if most is None:
        return
    store = context.tags
    made_ms = {e.name: e.modified_ms for e in context.io.list_directory(context.paths.tag_directory)}
    ages: list[tuple[int, int, str]] = []
    for name in store.names():
        try:
            ages.append((store.get(name).id, made_ms.get(context.paths.tag(name).rpartition("/")[2], 0), name))
        except BadInput:  # another process deleted it
            continue
    for _, _, name in sorted(ages)[: max(len(ages) - most, 0)]:
        delete_tag(context, name)
