"""Recognizes online schema changes by gh-ost and pt-online-schema-change in the DDL of a MySQL source.

These programs alter a copy of the table, and rename the copy to the table at the end:

    CREATE TABLE _orders_gho LIKE orders                              nothing is altered yet
    ALTER TABLE _orders_gho RENAME COLUMN a TO b                      rows of orders still have column a
    RENAME TABLE orders TO _orders_del, _orders_gho TO orders         from now on rows of orders have column b

gh-ost writes comments into its statements. pt-online-schema-change names the copy `_orders_new`, or `__orders_new` if
that name is in use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tidelake.ingest.formats.ddl_statements import ColumnStatement, column_statements
from tidelake.ingest.formats.source_table import SourceTable

_COPY: Final = re.compile(r"_+(.+)_(?:gho|new)")
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_NAME: Final = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_TABLE: Final = rf"(?:{_NAME}\s*\.\s*)?{_NAME}"
_CREATE_OR_DROP: Final = re.compile(r"\s*(?:create|drop)\s+table\b", re.IGNORECASE)
_RENAME_TABLES: Final = re.compile(r"\s*rename\s+tables?\s+(.+)", re.IGNORECASE | re.DOTALL)
_MOVE: Final = re.compile(rf"\s*({_TABLE})\s+to\s+({_TABLE})\s*(?:,|;?\s*\Z)", re.IGNORECASE)


class ShadowStep(StrEnum):
    RECREATED = "is created or dropped"  # changes of an earlier copy with this name are void
    ALTERED = "is altered"
    MOVED = "replaces it"


@dataclass(frozen=True, slots=True)
class ShadowChange:
    """One step of an online schema change.

    table: the table whose schema changes.
    shadow: the name of its copy, with the database.
    step: the step.
    statements: for ALTERED, the changed columns, at least one.
    """

    table: SourceTable
    shadow: str
    step: ShadowStep
    statements: tuple[ColumnStatement, ...] = ()

    def __str__(self) -> str:
        return f"{self.shadow}, a copy of {self.table}, {self.step}"


def shadow_changes(sql: str | None, source: SourceTable) -> Sequence[ShadowChange]:
    """Return the steps of online schema changes in a statement. Empty for a statement that changes no copy of a table.

    The copy's name may be ambiguous: `__orders_new` is a copy of `_orders` or of `orders`. Then the result has a step
    for each, and the first one whose table exists applies.

    source: the table that the record names. For a RENAME it may be the old or the new table, or both.
    """
    if not sql:
        return ()
    text = _COMMENT.sub(" ", sql)
    if (moves := _RENAME_TABLES.match(text)) is not None:
        return tuple(_moved(moves[1], source))
    if source.table is None or (copy := _COPY.fullmatch(source.table)) is None:
        return ()
    step, statements = ShadowStep.RECREATED, column_statements(text)
    if not _CREATE_OR_DROP.match(text):
        if not statements:
            return ()
        step = ShadowStep.ALTERED
    # A table may be named `_orders`. Its copy then begins with two underscores.
    underscores = len(source.table) - len(source.table.lstrip("_")) - 1
    names = ["_" * kept + copy[1] for kept in range(underscores, -1, -1)]
    tables = (replace(source, table=name) for name in names)
    return tuple(ShadowChange(table, _named(source), step, statements) for table in tables)


def _moved(text: str, source: SourceTable) -> Iterator[ShadowChange]:
    at = 0
    while (move := _MOVE.match(text, at)) is not None:
        old, new = (_source_table(name, source) for name in move.groups())
        if _COPY.fullmatch(old.table or "") and not new.is_shadow and old.database == new.database:
            yield ShadowChange(new, _named(old), ShadowStep.MOVED)
        at = move.end()


def _source_table(name: str, like: SourceTable) -> SourceTable:
    parts = [part[1:-1].replace("``", "`") if part[0] == "`" else part for part in re.findall(_NAME, name)]
    return replace(like, database=parts[0] if len(parts) > 1 else like.database, table=parts[-1])


def _named(table: SourceTable) -> str:
    return ".".join(part for part in (table.database, table.table) if part)
