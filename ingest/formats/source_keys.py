"""The key of records against the primary key of their table.

A record's key identifies a row at the source. If it has a column that the table's primary key lacks, rows that differ
only in this column would become one row of the table. Such records are refused, whatever their format.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from tidelake.ingest.formats.base import Target
from tidelake.ingest.formats.values.json_text import BadValue

_DOCUMENT_KEY: Final = ("id",)  # MongoDB: the key of a record is `id`, the column of the document is `_id`
_DOCUMENT_ID: Final = ("_id",)


def columns_outside(key_columns: Collection[str], primary_key: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a record's key that a table's primary key lacks. Names are compared in lower case."""
    if tuple(key_columns) == _DOCUMENT_KEY and tuple(primary_key) == _DOCUMENT_ID:
        return ()
    names = {name.lower() for name in primary_key}
    return tuple(sorted(name for name in key_columns if name.lower() not in names))


class WiderSourceKey(BadValue):
    """The key of a source table has columns that the primary key of its table lacks."""

    def __init__(self, target: Target, key_columns: Collection[str]) -> None:
        self.target = target
        super().__init__(wider_key_text(target.name, key_columns, target.schema.primary_keys, target.schema.names))


def wider_key_text(
    table: str, key_columns: Collection[str], primary_key: Sequence[str], columns: Collection[str]
) -> str:
    """Return the message about a record's key with columns outside of the primary key.

    columns: the columns of the table.
    """
    outside = columns_outside(key_columns, primary_key)
    named = {name.lower() for name in columns}
    lacking = [name for name in outside if name.lower() not in named]
    wanted = [*primary_key, *outside]
    into_table = f"`key_columns: [{', '.join(lacking)}]` and " if lacking else ""
    return (
        f"the key of the record is ({', '.join(sorted(key_columns))}), but the primary key of {table} is "
        f"({', '.join(primary_key)}): rows that differ only in {', '.join(outside)} would become one row. Write to a "
        f"new table with {into_table}`primary_key: [{', '.join(wanted)}]`, or set `key_from_records: false` of the "
        "table if its rows are not those of the source"
    )
