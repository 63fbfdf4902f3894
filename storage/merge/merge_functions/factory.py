"""The merge function that a table's options ask for.

Source: Java `table/PrimaryKeyTableUtils.java`, `table/PrimaryKeyFileStoreTable.java` (`needLookup`).
"""

from __future__ import annotations

from storage.merge.merge_functions.aggregation import Aggregation
from storage.merge.merge_functions.base import MergeFunction
from storage.merge.merge_functions.deduplicate import Deduplicate
from storage.merge.merge_functions.first_row import FirstRow
from storage.merge.merge_functions.lookup import LookupMergeFunction
from storage.merge.merge_functions.partial_update import PartialUpdate
from storage.options import MergeEngine
from storage.table import TableContext


def merge_function_of(context: TableContext) -> MergeFunction:
    """For a primary-key table, at the flush, when reading and in compaction alike.

    Raises BadInput when options of the engine don't fit the schema or each other, naming option, column and remedy.
    """
    engine = merge_engine_of(context)
    if isinstance(engine, Deduplicate | FirstRow):
        return engine  # merging the newer levels first gives the same row: nothing to look up
    return LookupMergeFunction(engine) if context.options.needs_lookup else engine


def merge_engine_of(context: TableContext) -> MergeFunction:
    """What merges all rows that it is shown, whatever levels they come from. Raises as `merge_function_of`."""
    name, schema, options = context.name, context.schema, context.options
    match options.merge_engine:
        case MergeEngine.DEDUPLICATE:
            return Deduplicate(options.ignore_delete)
        case MergeEngine.FIRST_ROW:
            return FirstRow(name, options.ignore_delete)
        case MergeEngine.PARTIAL_UPDATE:
            return PartialUpdate.of(name, schema, options)
        case MergeEngine.AGGREGATION:
            return Aggregation.of(name, schema, options)
