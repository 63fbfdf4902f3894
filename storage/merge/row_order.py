"""Finds out what decides which row of a key is the newest."""

from __future__ import annotations

from tidelake.storage.merge.aggregate_functions import is_order_free
from tidelake.storage.merge.sequence_groups import sequence_groups
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema


def sequence_numbers_decide(schema: TableSchema, options: TableOptions) -> bool:
    """Whether the newest row of a key is the one with the highest sequence number, in a table with a primary key.

    False if other columns decide (`sequence.field`, sequence groups). False if the order makes no difference: then
    writers don't coordinate their sequence numbers.
    """
    if options.sequence_fields or is_order_free(schema, options):
        return False
    return not sequence_groups(schema, options)
