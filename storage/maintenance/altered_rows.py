"""Whether the rows of a table can be read after a change of its columns' types.

Files keep the old type, and each read casts their values. Some casts fail for some values, as that of a text to INT:
then no reader, Java's neither, could read the column any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.errors import BadInput
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.ddl.schema_changes import SchemaChange, UpdateColumnType, apply_changes
from tidelake.storage.files.casting import may_fail
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader


def check_rows_stay_readable(context: TableContext, changes: Sequence[SchemaChange]) -> None:
    """Raise BadInput for a value of the newest snapshot's files that can't be cast to the new type of its column.

    Columns with such casts are read once. Rows that other writers add meanwhile are not seen.
    """
    if not any(isinstance(change, UpdateColumnType) for change in changes):
        return
    snapshot = context.snapshots.latest()
    if snapshot is None:
        return
    after = apply_changes(context.schema, changes, has_snapshots=True, time_ms=epoch_ms())
    before = {field.id: field for field in context.schema.fields}
    altered = context.with_schema(after)
    for field in after.fields:
        old = before.get(field.id)
        if old is None or not may_fail(old.type, field.type):
            continue
        try:
            for _ in SnapshotReader(altered, (field.name,)).read(TableScan(altered).plan(snapshot)):
                pass
        except BadInput as error:
            raise BadInput(
                f"{context.name}: column {old.name!r} ({old.type}) can't become {field.type}: "
                f"{str(error).partition(', which')[0].partition('; Java')[0]}. Files keep such a value until they are "
                "compacted. Add a column of the new type, or correct the rows, and compact the whole table"
            ) from None
