"""Refuses rows, when they are written, that a merge engine can't merge, or that would become invalid rows of a file.

Java accepts such rows, and even writes a file if a delete is the only row of its key. After the next row of that key,
the bucket can't be merged or compacted any more.

Source: Java `mergetree/compact/*MergeFunction.java`, `io/KeyValueDataFileWriter.java`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.merge.aggregate_functions import is_emptied_by_retracts
from tidelake.storage.merge.aggregators.aggregator import WithoutRetract
from tidelake.storage.merge.column_aggregation import ColumnAggregation
from tidelake.storage.merge.merge_functions.aggregation import Aggregation
from tidelake.storage.merge.merge_functions.first_row import NO_RETRACTS as NOT_IN_FIRST_ROW
from tidelake.storage.merge.merge_functions.first_row import FirstRow
from tidelake.storage.merge.merge_functions.lookup import LookupMergeFunction
from tidelake.storage.merge.merge_functions.merge_function import MergeFunction
from tidelake.storage.merge.merge_functions.partial_update import NO_RETRACTS as NOT_IN_PARTIAL_UPDATE
from tidelake.storage.merge.merge_functions.partial_update import PartialUpdate
from tidelake.storage.model.format import RowKind
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types.row_kinds import is_retract


def check_row_kinds(function: MergeFunction, kinds: NDArray[np.int8], table_name: str) -> None:
    """Raise BadInput, with a remedy, for rows that can never be merged.

    kinds (n,): the row kinds of the rows to write.
    """
    retracts = kinds[is_retract(kinds)]
    if not len(retracts):
        return
    match _engine(function):
        case FirstRow(ignore_delete=False):
            raise BadInput(f"{table_name}: {NOT_IN_FIRST_ROW}")
        case PartialUpdate(options=options) if not options.takes_deletes:
            raise BadInput(f"{table_name}: {NOT_IN_PARTIAL_UPDATE}")
        case Aggregation(columns=columns, remove_on_delete=removes):
            taken_back = retracts[retracts != RowKind.DELETE] if removes else retracts
            for name, (aggregation, aggregator) in columns.items():
                if len(taken_back) and isinstance(aggregator, WithoutRetract):
                    raise BadInput(
                        f"{table_name}: row kind {RowKind(int(taken_back[0])).symbol} retracts values, which "
                        f"aggregate function {aggregation.function} of column {name!r} does not support. Set one of "
                        f"the options 'fields.{name}.ignore-retract' = 'true', 'aggregation.remove-record-on-delete' "
                        "= 'true' (-D removes the record), 'ignore-delete' = 'true' (-D and -U are dropped)"
                    )
        case _:
            pass
    if (retracts == RowKind.DELETE).any():
        _check_retract_sets_no_null(function, RowKind.DELETE)


def check_remaining_retracts(function: MergeFunction, kinds: NDArray[np.int8]) -> None:
    """Raise BadInput for retracts that remain after the merge, and would later set null in a NOT NULL column.

    A -U is not among them if its +U was merged with it.

    kinds (n,): the row kinds of merged rows that will be written to level 0.
    """
    for kind in np.unique(kinds[is_retract(kinds)]).tolist():
        _check_retract_sets_no_null(function, RowKind(kind))


def check_no_nulls(rows: pa.RecordBatch, schema: TableSchema, table_name: str) -> None:
    """Raise BadInput if the merge left null in a NOT NULL column.

    rows: merged rows that will be written to a file.
    """
    for field in schema.fields:
        column = rows.column(field.name)
        if field.type.nullable or not column.null_count:
            continue
        first = pc.index(column.is_null(), True).as_py()
        (key,) = rows.select(schema.primary_keys).slice(first, 1).to_pylist()
        shown = ", ".join(f"{name} = {value!r}" for name, value in key.items())
        raise BadInput(
            f"{table_name}: merging the rows of key {shown} left null in column {field.name!r} {field.type}, which is "
            "NOT NULL: a delete retracted the value, a decimal sum exceeded its digits, or no row had a sequence of "
            "the column's group. Make the column nullable (UpdateColumnNullability)"
        )


def _engine(function: MergeFunction) -> MergeFunction:
    return function.engine if isinstance(function, LookupMergeFunction) else function


def _check_retract_sets_no_null(function: MergeFunction, kind: RowKind) -> None:
    """Raise BadInput if a retract of this kind would set null in a NOT NULL column.

    Functions that subtract from the existing value (`sum`, `collect`) don't set null.
    """
    is_delete = kind is RowKind.DELETE
    match _engine(function):
        case Aggregation(table_name=table_name, columns=columns, remove_on_delete=removes):
            for name, (aggregation, _) in columns.items():
                if _is_emptied(aggregation) and not (is_delete and removes):
                    raise BadInput(
                        f"{table_name}: row kind {kind.symbol} would leave null in column {name!r} "
                        f"{aggregation.field.type}: aggregate function {aggregation.function} keeps no older value "
                        "that could be restored. Make the column nullable, or set one of the options "
                        f"'fields.{name}.ignore-retract' = 'true', 'aggregation.remove-record-on-delete' = 'true' (-D "
                        "removes the record), 'ignore-delete' = 'true' (-D and -U are dropped)"
                    )
        case PartialUpdate(table_name=table_name, options=options) as engine if not options.ignore_delete:
            kept = {a.field.name for a in options.aggregations if not _is_emptied(a)}
            for group in options.groups:
                emptied = (group.protected & engine.required) - kept
                if emptied and not (is_delete and engine.removes(group)):
                    raise BadInput(
                        f"{table_name}: row kind {kind.symbol} would leave null in column {min(emptied)!r}, which is "
                        f"NOT NULL: with {group.option}, deletes retract its columns. Make the column nullable, or "
                        "set one of the options 'partial-update.remove-record-on-sequence-group' = "
                        f"'{','.join(sorted({*options.removing, *group.ordered_by}))}' (-D removes the record), "
                        "'ignore-update-before' = 'true' (-U are dropped), 'ignore-delete' = 'true' (-D and -U are "
                        "dropped)"
                    )
        case _:
            pass


def _is_emptied(aggregation: ColumnAggregation) -> bool:
    """Return whether a retract sets null in this column, which is NOT NULL."""
    return is_emptied_by_retracts(aggregation) and not aggregation.field.type.nullable
