"""The engine that runs a refresh's query: what it is asked, and what it must do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.materialized.plain_query import PlainQuery
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.table import Table


@dataclass(frozen=True, slots=True)
class QueriedTable:
    """A table that the query names.

    snapshot: its newest; None if it has none
    """

    table: Table
    snapshot: Snapshot | None

    @classmethod
    def of(cls, table: Table) -> QueriedTable:
        return cls(table, table.context.snapshots.latest() if type(table) is Table else None)

    @property
    def context(self) -> TableContext:
        return self.table.context


@dataclass(frozen=True, slots=True)
class FullRefresh:
    """A request to recompute all rows.

    query: the definition's text
    plain: the parsed query, if it is plain
    sources: by their names in the query
    number: commit identifier of the refresh
    properties: properties of the snapshot
    """

    target: Table
    query: str
    plain: PlainQuery | None
    sources: Mapping[str, QueriedTable]
    number: int
    properties: Mapping[str, str]


class QueryEngine(Protocol):
    @property
    def dialect(self) -> str:
        """The engine's SQL dialect, as sqlglot names it."""
        ...

    def evaluate_over(self, query: PlainQuery, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the query's result over these rows of its table.

        rows: all columns that the query reads
        """
        ...

    def replace_all(self, request: FullRefresh) -> int | None:
        """Run the query, and commit its rows in place of all others.

        Returns the snapshot; None if another refresh came first.
        """
        ...


def check_columns(target: Table, found: Sequence[str]) -> None:
    """Raise BadInput if a query returns other columns than the table has."""
    if sorted(found) != sorted(target.schema.names):
        raise BadInput(
            f"the query of {target.name} gives the columns {', '.join(found)}; the table has "
            f"{', '.join(target.schema.names)}. Give the query's columns the same names, with AS"
        )
