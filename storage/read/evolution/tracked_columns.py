"""The columns that row tracking adds to a table.

Source: Java `table/SpecialFields.java` (rowTypeWithRowTracking).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidelake.storage.model.schema.table_schema import ROW_ID_FIELD, SEQUENCE_FIELD
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import arrow_schema

_TRACKED: Final = (ROW_ID_FIELD, SEQUENCE_FIELD)


def has_row_ids(context: TableContext) -> bool:
    return context.options.row_tracking_enabled and not context.schema.has_primary_key


def tracked_schema(context: TableContext) -> pa.Schema:
    """Return the table's columns, followed by `_ROW_ID` and `_SEQUENCE_NUMBER` if row tracking is enabled."""
    own = context.schema.arrow
    if not has_row_ids(context):
        return own
    return pa.schema([*own, *arrow_schema(_TRACKED)])
