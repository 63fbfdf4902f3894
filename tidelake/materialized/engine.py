"""What a refresh asks of the engine that runs its query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from storage.errors import BadInput
from storage.snapshots.snapshot import Snapshot
from storage.table import TableContext
from tidelake.materialized.plain_query import PlainQuery
from tidelake.table import Table


@dataclass(frozen=True, slots=True)
class QueriedTable:
    """A table that the query names.

    snapshot: its newest; None where it has none, or keeps none
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
    """query: the definition's text
    plain: what it says, where that is known
    sources: by their names in the query
    number, properties: of the commit
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
        """Of its SQL, as sqlglot calls it."""
        ...

    def over(self, query: PlainQuery, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The query's rows, where its table has these: columns of it, all that the query needs."""
        ...

    def replace_all(self, request: FullRefresh) -> int | None:
        """Runs the query and commits its rows in place of all others. Returns the snapshot; None where another refresh
        came first.
        """
        ...


def check_columns(target: Table, found: Sequence[str]) -> None:
    """Raises BadInput where a query gives others than the table has."""
    if sorted(found) != sorted(target.schema.names):
        raise BadInput(
            f"the query of {target.name} gives the columns {', '.join(found)}; the table has "
            f"{', '.join(target.schema.names)}. Name them alike, with AS"
        )
