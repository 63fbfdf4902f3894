"""Finds out whether an entry that stands for many tables leaves out the source tables of an existing table.

A name alone doesn't tell: an entry `shop.{table}` could have named each table of the database. What counts is the
source tables whose records the table has. If the entry includes none of them, it will write no record to the table, so
the table is not one of the entry's any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.tables.table_templates import TableTemplate


def leaves_out(
    template: TableTemplate, name: str, sources: Collection[str] | None, topics: Collection[str] | None = None
) -> bool:
    """Return whether the entry certainly includes no source table of the table `name`.

    sources: full names of the source tables whose records the table has (`shop.public.orders`); None: unknown, or too
        many. Then the names of source tables are derived from the table's name, if that is possible without doubt.
    topics: topics of these records; None: unknown.
    """
    if not sources:
        tables = template.source_names(name)
        return bool(tables) and not any(template.may_include(SourceTable("", table=table), None) for table in tables)
    return all(_leaves_out(template, name, source, topics) for source in sources)


def _leaves_out(template: TableTemplate, name: str, source: str, topics: Collection[str] | None) -> bool:
    """Return whether the entry would give this table's name to the source table, but doesn't include it."""
    usual = [found for found in _usual_parts(source, topics) if template.would_name(found) == name]
    found = usual or [found for found in _all_parts(source) if template.would_name(found) == name]
    return bool(found) and not any(template.may_include(one, topics) for one in found)


def _usual_parts(source: str, topics: Collection[str] | None) -> Iterator[SourceTable]:
    """Yield the source table of a full name. A record without names of its source has the name of its topic."""
    if topics is not None and source in topics:
        yield SourceTable(source)
        return
    match source.split("."):
        case [database, schema, table]:
            yield SourceTable("", database, schema, table)
        case [database, table]:
            yield SourceTable("", database, None, table)
        case [table]:
            yield SourceTable("", None, None, table)


def _all_parts(source: str) -> Iterator[SourceTable]:
    """Yield each way to read a full name: the names in it may contain dots, or lack a database or schema."""
    parts = source.split(".")
    for first in range(len(parts)):
        for second in range(first, len(parts)):
            database, schema = ".".join(parts[:first]), ".".join(parts[first:second])
            yield SourceTable("", database or None, schema or None, ".".join(parts[second:]))
