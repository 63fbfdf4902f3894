"""`t$binlog`: each column is an array. An update is one row with the values before and after; other rows hold one.

    rowkind STRING | _SEQUENCE_NUMBER BIGINT NOT NULL, as in `t$audit_log` | ARRAY of each of the table's columns

Source: Java `table/system/BinlogTable.java`, `reader/PackChangelogReader.java`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelake.storage.kinds.system_tables.audit_log import AuditLog, symbols
from tidelake.storage.model.format import SEQUENCE_COLUMN, RowKind
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import ArrayType, DataField, arrow_schema
from tidelake.storage.model.types.data_types import nullable
from tidelake.storage.model.types.row_kinds import row_kinds


class Binlog(AuditLog):
    name = "binlog"

    def schema(self, context: TableContext) -> pa.Schema:
        arrays = [DataField(field.id, field.name, ArrayType(nullable(field.type))) for field in context.schema.fields]
        return pa.schema([*self.special_fields, *arrow_schema(arrays)])

    def _to_output(self, rows: pa.RecordBatch, context: TableContext, *, is_stream: bool = False) -> pa.RecordBatch:
        kinds = row_kinds(rows)
        begins = np.ones(rows.num_rows, np.bool_)
        if is_stream:
            begins[1:] = (kinds[:-1] != RowKind.UPDATE_BEFORE) | (kinds[1:] != RowKind.UPDATE_AFTER)
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], rows.num_rows)
        first = pa.array(starts)
        schema = self.schema(context)
        offsets = pa.array(np.append(starts, rows.num_rows).astype(np.int32))
        columns = [symbols(kinds[ends - 1])]
        columns += [rows.column(SEQUENCE_COLUMN).take(first)] if self.sequence_numbers else []
        for field in list(schema)[len(columns) :]:
            columns.append(pa.ListArray.from_arrays(offsets, rows.column(field.name), type=field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)
