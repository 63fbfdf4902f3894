"""What decides which row of a key is the newest."""

from __future__ import annotations

from storage.merge.aggregate_functions import is_order_free
from storage.merge.sequence_groups import sequence_groups
from storage.options import TableOptions
from storage.schema.table_schema import TableSchema


def sequence_numbers_decide(schema: TableSchema, options: TableOptions) -> bool:
    """Of a table with a primary key. False where a row with a higher sequence number may count as the older one
    (`sequence.field`, sequence groups), or where order makes no difference, so that writers don't agree on numbers.
    """
    if options.sequence_fields or is_order_free(schema, options):
        return False
    return not sequence_groups(schema, options)
