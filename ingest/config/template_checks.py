"""Checks entries of `tables` that stand for many tables, before any record names one of these."""

from __future__ import annotations

import re

from tidelake.ingest.settings import PLACEHOLDER, TableSettings
from tidelake.storage.base.errors import BadInput
from tidelake.storage.catalog.identifier import Identifier


def template_errors(entry: TableSettings) -> list[tuple[str, str, str]]:
    """Return (setting, reason, remedy) of each error of an entry of many tables, or of `source_tables` of another
    entry.
    """
    found: list[tuple[str, str, str]] = []
    of = entry.source_tables
    if not entry.is_template:
        if of is not None:
            found.append(
                (
                    "source_tables",
                    "it is only for an entry of several tables",
                    "Put {table} into `name`, or leave it out.",
                )
            )
        return found
    database, _, table = entry.name.partition(".")
    names = PLACEHOLDER.findall(table)
    if PLACEHOLDER.search(database) or not set(names) <= {"table", "schema", "database", "topic"}:
        found.append(("name", "it has a placeholder that is not allowed here", "Write database.{table}, for example."))
    elif not {"table", "topic"} & set(names):
        found.append(("name", "several tables would have the same name", "Put {table} or {topic} into it."))
    for setting in ("columns", "source_types", "rounded_columns"):
        if getattr(entry, setting):
            reason = "it names columns of one table, but this entry is for several tables"
            found.append((setting, reason, "Write a separate entry for the table, before or after this one."))
    if of is None:
        return found
    for setting in ("including_tables", "excluding_tables", "including_dbs", "excluding_dbs"):
        try:
            re.compile(getattr(of, setting) or "")
        except (re.error, RecursionError, OverflowError) as error:
            reason = f"`{setting}` is not a regular expression: {error}"
            found.append(("source_tables", reason, "Example: `orders|item.*`."))
    if (of.prefix_of_db or of.suffix_of_db) and "table" not in names:
        found.append(("source_tables", "prefixes and suffixes need {table} in `name`", "Put {table} into `name`."))
    for source, target in of.mapping.items():
        try:
            is_name = Identifier.parse(f"{database}.{target}").is_plain and "." not in target
        except BadInput:
            is_name = False
        if not is_name or PLACEHOLDER.search(target):
            reason = f"`mapping` gives {source} the name {target!r}, which is not the name of a table"
            found.append(("source_tables", reason, "Write the table part of a name, without the database."))
    return found
