"""Merges a few records with the product's columnar engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from tests.support.row_kinds import row_kind_of
from tests.support.row_merge import Record
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions import MergeFunction, merge_function_of
from tidelake.storage.merge.merge_reader import MergeOrder, merge_batch
from tidelake.storage.merge.normalized_keys import merge_order
from tidelake.storage.model.format import KIND_COLUMN, LEVEL_COLUMN, SEQUENCE_COLUMN, RowKind
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import KIND_FIELD, LEVEL_FIELD, SEQUENCE_FIELD, TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, DataType, arrow_schema, not_null

KEY: Final = "k"


def table_schema(types: Mapping[str, DataType], options: Mapping[str, str], key: str = KEY) -> TableSchema:
    """Of a table with these columns, `key` among them."""
    fields = tuple(DataField(i, name, not_null(t) if name == key else t) for i, (name, t) in enumerate(types.items()))
    return TableSchema(0, fields, len(fields) - 1, (), (key,), dict(options))


def merge_function(types: Mapping[str, DataType], options: Mapping[str, str], key: str = KEY) -> MergeFunction:
    schema = table_schema(types, options, key)
    return merge_function_of(TableContext(LocalFileIO(), "/nowhere", "d.t", schema, TableOptions(options)))


def batch_of_records(
    types: Mapping[str, DataType], records: Sequence[Record], levels: Sequence[int] | None = None
) -> pa.RecordBatch:
    """The table's columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND` and, where given, `_LEVEL`; rows as the records come."""
    fields = tuple(DataField(i, name, data_type) for i, (name, data_type) in enumerate(types.items()))
    added = [*fields, SEQUENCE_FIELD, KIND_FIELD, *([] if levels is None else [LEVEL_FIELD])]
    schema = arrow_schema(added)
    values = [[record.row[name] for record in records] for name in types]
    values.append([record.sequence for record in records])
    values.append([row_kind_of(record.kind) for record in records])
    values += [] if levels is None else [list(levels)]
    columns = [pa.array(of_one, field.type) for of_one, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def merge_records(
    function: MergeFunction, rows: pa.RecordBatch, key: str = KEY, *, shortcut: bool = True
) -> list[Record]:
    """What is left of rows in merge order, by key. shortcut: whether keys with one row skip the engine."""
    if shortcut:
        merged = merge_batch(rows, MergeOrder((key,)), function.merge)
    else:
        keys = rows.column(key).to_numpy()
        groups = Groups.of(*merge_order((keys,)))
        merged = function.merge(rows, groups, np.zeros(len(groups), np.bool_))
    return records_of(merged)


def records_of(rows: pa.RecordBatch) -> list[Record]:
    return [
        Record(
            RowKind(row.pop(KIND_COLUMN)).symbol,
            row.pop(SEQUENCE_COLUMN),
            {name: value for name, value in row.items() if name != LEVEL_COLUMN},
        )
        for row in rows.to_pylist()
    ]
