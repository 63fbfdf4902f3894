"""Divides the columns of a table by the kind of file that stores them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import Root


def blob_columns(context: TableContext) -> list[str]:
    """Return the columns whose values are stored in blob files."""
    return [field.name for field in context.schema.fields if field.type.root is Root.BLOB]


def plain_columns(context: TableContext) -> list[str]:
    """Return all columns except those in blob files."""
    blobs = set(blob_columns(context))
    return [name for name in context.schema.names if name not in blobs]


def with_columns(context: TableContext, names: Collection[str]) -> TableContext:
    """Return the table with a schema of only these columns, in the table's order. The schema id is unchanged."""
    schema = context.schema
    fields = tuple(field for field in schema.fields if field.name in names)
    partition_keys = tuple(name for name in schema.partition_keys if name in names)
    return replace(context, schema=replace(schema, fields=fields, partition_keys=partition_keys))
