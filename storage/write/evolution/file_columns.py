"""Which columns of a table go into which kind of file, and the table as a writer of some of them sees it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from storage.table import TableContext
from storage.types import Root


def blob_columns(context: TableContext) -> list[str]:
    """Columns whose values are in blob files."""
    return [field.name for field in context.schema.fields if field.type.root is Root.BLOB]


def plain_columns(context: TableContext) -> list[str]:
    """All columns except those in blob files."""
    blobs = set(blob_columns(context))
    return [name for name in context.schema.names if name not in blobs]


def with_columns(context: TableContext, names: Collection[str]) -> TableContext:
    """The table with a schema of only these columns, in its order. The schema id stays, as files name it."""
    schema = context.schema
    fields = tuple(field for field in schema.fields if field.name in names)
    partition_keys = tuple(name for name in schema.partition_keys if name in names)
    return replace(context, schema=replace(schema, fields=fields, partition_keys=partition_keys))
