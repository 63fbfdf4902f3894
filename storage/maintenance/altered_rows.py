"""Whether the rows of a table can be read after a change of its columns' types.

Files keep the old type, and each read casts their values. Some casts fail for some values, as that of a text to INT:
then no reader, Java's neither, could read the column any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.ddl.schema_changes import SchemaChange, UpdateColumnType, apply_changes
from tidelake.storage.files.casting import may_fail
from tidelake.storage.model.schema.type_changes import can_change
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataType, nullable
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
        if old is None or nullable(old.type) == nullable(field.type):
            continue
        if not any(_may_fail(earlier, field.type) for earlier in _types(context, field.id)):
            continue
        try:
            for _ in SnapshotReader(altered, (field.name,)).read(TableScan(altered).plan(snapshot)):
                pass
        except (BadInput, UnsupportedFeature) as error:
            reason = str(error).partition(", which")[0].partition(": Java")[0]
            reason = reason.removeprefix(f"column {field.name!r}: ")
            raise BadInput(
                f"{context.name}: column {old.name!r} ({old.type}) can't become {field.type}: {reason}. Add a column "
                "of the new type, or write such rows again: an update and a full compaction replace their files"
            ) from None


def _types(context: TableContext, field_id: int) -> Iterator[DataType]:
    """Yield the types that a column has had: files of each may be there."""
    for number in context.schemas.ids():
        yield from (field.type for field in context.schemas.get(number).fields if field.id == field_id)


def _may_fail(old: DataType, new: DataType) -> bool:
    """Return whether some values can't be cast, or all: INT to STRING, and STRING to BYTES, but not INT to BYTES."""
    return may_fail(old, new) or not can_change(old, new)
