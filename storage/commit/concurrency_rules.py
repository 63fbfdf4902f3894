"""What a table's commits must know of the commits of others since the state that they were made from.

`conflict_check` applies these rules, and docs/keeping-tables.md has the table of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.storage.merge.aggregate_functions import is_order_free
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class ConcurrencyRules:
    """The rules of one table.

    rows_have_order: rows of a key are ordered by sequence numbers alone, so new rows need numbers above all others.
    has_bucket_count: rows are placed by the number of buckets of their partition.
    has_bucket_index: rows are placed by an index of the keys of their partition.
    keys_move: rows are placed by an index of the keys of the whole table.
    looks_rows_up: compactions look up older rows above level 0, so their result is only valid for these files.
    """

    rows_have_order: bool
    has_bucket_count: bool
    has_bucket_index: bool
    keys_move: bool
    looks_rows_up: bool

    @classmethod
    def of(cls, schema: TableSchema, options: TableOptions) -> ConcurrencyRules:
        mode, is_keyed = bucket_mode(schema, options), schema.has_primary_key
        return cls(
            rows_have_order=is_keyed and not (options.sequence_fields or is_order_free(schema, options)),
            has_bucket_count=mode in (BucketMode.FIXED, BucketMode.POSTPONE),
            has_bucket_index=mode is BucketMode.DYNAMIC,
            keys_move=mode is BucketMode.CROSS_PARTITION,
            looks_rows_up=is_keyed and options.needs_lookup,
        )
