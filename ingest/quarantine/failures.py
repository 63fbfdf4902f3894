"""Finds the table of a record that can't be decoded, and the tables that a batch writer writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from tidelake.ingest.formats.base import DecodeFailure
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.tables.table_router import TableRouter

OwnerOf: TypeAlias = Callable[[DecodeFailure, RawBatch], str | None]
"""Returns the table of a record that can't be decoded; None if the table is unknown."""


def owner_of(router: TableRouter) -> OwnerOf:
    """Return a function that finds a record's table: by its source table, or by a topic that feeds only one table."""

    def owner(failure: DecodeFailure, raw: RawBatch) -> str | None:
        if failure.table_name is not None:
            return failure.table_name
        tables: Sequence[str] = router.tables_of(raw.topic)
        if failure.source is not None and failure.source.table is not None:
            tables = router.tables_for(failure.source)
        return tables[0] if len(tables) == 1 else None

    return owner


class TableScope:
    """The tables that a batch writer writes.

    excluded: tables that it skips; the collection may change.
    only: if not None, the only table that it writes and whose failures it handles.
    """

    def __init__(self, owner: OwnerOf, excluded: Collection[str] = (), only: str | None = None) -> None:
        self.owner = owner
        self._excluded = excluded
        self._only = only

    def includes(self, table: str) -> bool:
        return table == self._only if self._only is not None else table not in self._excluded

    def takes_failure(self, failure: DecodeFailure, raw: RawBatch) -> bool:
        if self._only is None and not self._excluded:
            return True
        owner = self.owner(failure, raw)
        return self._only is None if owner is None else self.includes(owner)
