"""What is computed from the values of a column: keys, partitions, buckets and indexes. It fixes the column's type."""

from __future__ import annotations

from tidelake.storage.model.options.values import parse_names
from tidelake.storage.model.schema.table_schema import TableSchema


def use_that_fixes_type(schema: TableSchema, column: str) -> str | None:
    """Returns what is computed from the values of a column, for example "bucket key"; None if nothing is.

    With another type, the keys, partitions, buckets and indexes of existing rows would no longer be found.
    """
    uses = {
        "primary key": schema.primary_keys,
        "partition": schema.partition_keys,
        "bucket key": parse_names(schema.options.get("bucket-key", "")),
        "index": indexed_columns(schema),
    }
    return next((use for use, columns in uses.items() if column in columns), None)


def indexed_columns(schema: TableSchema) -> tuple[str, ...]:
    """Returns the columns that have an index of the primary-key table, of whatever kind."""
    kinds = ("vector", "btree", "bitmap", "multivalue", "full-text")
    return tuple(name for kind in kinds for name in parse_names(schema.options.get(f"pk-{kind}.index.columns", "")))
