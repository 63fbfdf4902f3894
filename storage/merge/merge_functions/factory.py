"""Creates the merge function of a table, by its options.

Source: Java `table/PrimaryKeyTableUtils.java`, `table/PrimaryKeyFileStoreTable.java` (`needLookup`).
"""

from __future__ import annotations

from tidelake.storage.merge.merge_functions.aggregation import Aggregation
from tidelake.storage.merge.merge_functions.deduplicate import Deduplicate
from tidelake.storage.merge.merge_functions.first_row import FirstRow
from tidelake.storage.merge.merge_functions.lookup import LookupMergeFunction
from tidelake.storage.merge.merge_functions.merge_function import MergeFunction
from tidelake.storage.merge.merge_functions.partial_update import PartialUpdate
from tidelake.storage.model.options import MergeEngine
from tidelake.storage.model.table import TableContext


def merge_function_of(context: TableContext) -> MergeFunction:
    """Return the merge function of a primary-key table, for flushes, reads and compactions.

    Raises BadInput, with option, column and remedy, if the engine's options don't fit the schema or each other.
    """
    engine = merge_engine_of(context)
    if isinstance(engine, Deduplicate | FirstRow):
        return engine  # they also work if newer levels are merged first, so no lookup merge is needed
    return LookupMergeFunction(engine) if context.options.needs_lookup else engine


def merge_engine_of(context: TableContext) -> MergeFunction:
    """Return the merge function that merges all given rows, of any levels. Raises like `merge_function_of`."""
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
