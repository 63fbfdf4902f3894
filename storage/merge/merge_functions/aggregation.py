"""The merge engine aggregation: each column is aggregated by its own function.

Source: Java `mergetree/compact/aggregate/AggregateMergeFunction.java`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.merge.aggregate_functions import (
    aggregator_of,
    column_aggregations,
    is_emptied_by_retracts,
    keeps_retracts,
)
from tidelake.storage.merge.aggregators.aggregator import Aggregator, Step, valid_rows
from tidelake.storage.merge.column_aggregation import ColumnAggregation
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions.merge_function import shortcut_groups
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The merge function of engine aggregation.

    columns: the aggregation of each column. Other columns (`_KEY_x`, `_SEQUENCE_NUMBER`) are those of the newest row.
    remove_on_delete: whether a -D removes the record. As in Java, its values are kept, and a later row is aggregated
        with them. Otherwise a -D is a retract, and a key with only retracts results in a row (+I).
    """

    table_name: str
    columns: Mapping[str, tuple[ColumnAggregation, Aggregator]]
    remove_on_delete: bool

    @classmethod
    def of(cls, table_name: str, schema: TableSchema, options: TableOptions) -> Aggregation:
        """Raise BadInput if a function does not exist, or does not accept the column's type."""
        columns = {a.field.name: (a, aggregator_of(a)) for a in column_aggregations(schema, options)}
        return cls(table_name, columns, options.aggregation_removes_on_delete)

    @property
    def merges_in_steps(self) -> bool:
        """False: sums of floats depend on the order of additions, and a single retract is not merged at all."""
        return False

    @property
    def keeps_retracts(self) -> bool:
        """False if a function has no value for "retract this from what is older" (`product`), or a -D hides rows."""
        return not self.remove_on_delete and all(keeps_retracts(column) for column, _ in self.columns.values())

    @property
    def newest_wins(self) -> bool:
        return False

    def columns_needed(self, wanted: Iterable[str]) -> tuple[str, ...]:
        return ()

    def lost_retracts(self, rows: pa.RecordBatch, groups: Groups) -> NDArray[np.bool_]:
        kinds = row_kinds(rows)[groups.rows]
        retracts, lost = is_retract(kinds), np.zeros(len(kinds), np.bool_)
        if not retracts.any():
            return lost
        adds = ~retracts
        if self.remove_on_delete:
            retracts = retracts & (kinds != RowKind.DELETE)
            lost |= kinds == RowKind.DELETE
            lost[groups.ends - 1] = False  # a delete that comes last removes the record, whatever is older
        for name, (aggregation, _) in self.columns.items():
            if not keeps_retracts(aggregation):
                present = valid_rows(rows.column(name), groups)
                taken_back = retracts & present
                if is_emptied_by_retracts(aggregation):  # a later value overwrites the older one in any case
                    taken_back &= ~groups.precedes_last(adds & present)
                lost |= taken_back
        return lost & groups.broadcast(groups.lengths > 1)

    def merge(self, rows: pa.RecordBatch, groups: Groups, shortcut: NDArray[np.bool_] | None = None) -> pa.RecordBatch:
        alone = shortcut_groups(groups, shortcut)
        last = groups.ends - 1
        newest = pa.array(groups.rows[last])
        if alone.all():
            return rows.take(newest)
        kinds = row_kinds(rows)[groups.rows]
        steps = np.where(is_retract(kinds), np.int8(Step.RETRACT), np.int8(Step.AGG))
        removes = (kinds == RowKind.DELETE) & self.remove_on_delete
        steps[removes] = Step.SET
        steps[groups.starts[alone]] = Step.SET
        merged = []
        for name in rows.schema.names:
            if name == KIND_COLUMN:
                result = np.where(removes[last], np.int8(RowKind.DELETE), np.int8(RowKind.INSERT))
                merged.append(pa.array(np.where(alone, kinds[last], result)))
            elif name in self.columns:
                _, aggregator = self.columns[name]
                merged.append(aggregator.aggregate(rows.column(name), groups, steps if steps.any() else None))
            else:
                merged.append(rows.column(name).take(newest))
        return pa.RecordBatch.from_arrays(merged, schema=rows.schema)
