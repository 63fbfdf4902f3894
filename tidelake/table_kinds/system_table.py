"""System tables, which are read-only: `catalog.table("shop.orders$audit_log")`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.scan import Scan, projection
from tidelake.storage.catalog.identifier import SYSTEM_DATABASE
from tidelake.storage.kinds.system_tables.system_table import SystemTable, SystemTableRead
from tidelake.storage.model.format import RowKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.types.row_kinds import with_kind
from tidelake.storage.read.arrow_expressions import matching_rows
from tidelake.storage.read.changes.change_reader import ChangeBatch
from tidelake.storage.read.follow import Follower
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.split import Split
from tidelake.table import Table
from tidelake.writer import Writer


class ReadOnlyTable(Table):
    """A system table of one table, with the same arguments for scans.

    If it has changes, they are rows of the system table, all with kind +I.
    """

    def __init__(self, system_table: SystemTable) -> None:
        super().__init__(system_table.context)
        self._system_table = system_table
        self._sequence_numbers = system_table.sequence_numbers
        self._shown = self._of_changes

    @property
    def name(self) -> str:
        return f"{super().name}${self._system_table.name}"

    @property
    def schema(self) -> pa.Schema:
        return self._system_table.schema(self._context)

    @property
    def primary_key(self) -> tuple[str, ...]:
        return ()

    def _scan_at(self, at: SystemTableRead, columns: Sequence[str] | None, condition: Any) -> Scan:
        names, predicate = projection(self._system_table.schema(at.context), columns, condition)
        return SystemScan(self._system_table, at, names, predicate)

    def changes(self, **arguments: Any) -> Iterator[ChangeBatch]:
        """Yield changes as `Table.changes` does."""
        self._system_table.check_changes()
        return map(self._of_changes, super().changes(**arguments))

    def follower(self, **arguments: Any) -> Follower:
        """Return a follower as `Table.follower` does."""
        self._system_table.check_changes()
        return super().follower(**arguments)

    def _of_changes(self, change: ChangeBatch) -> ChangeBatch:
        rows = self._system_table.changes(change)
        return replace(change, rows=with_kind(rows, RowKind.INSERT))

    def writer(self, **arguments: Any) -> Writer:
        raise self._refused("written")

    def compact(self, **arguments: Any) -> Any:
        raise self._refused("compacted")

    def rewrite_file_index(self, **arguments: Any) -> Any:
        raise self._refused("indexed")

    def truncate(self, *, partition: Mapping[str, Any] | None = None, **arguments: Any) -> int | None:
        raise self._refused("truncated")

    def delete(self, *arguments: Any, **named: Any) -> Any:
        raise self._refused("changed")

    def update(self, *arguments: Any, **named: Any) -> Any:
        raise self._refused("changed")

    def merge(self, *arguments: Any, **named: Any) -> Any:
        raise self._refused("changed")

    def upsert(self, *arguments: Any, **named: Any) -> Any:
        raise self._refused("written")

    def bootstrap(self, *arguments: Any, **named: Any) -> Any:
        raise self._refused("written")

    def expire(self, **arguments: Any) -> Any:
        raise self._refused("expired")

    def _check_changeable(self, what: str) -> None:
        raise self._refused(what)

    def _refused(self, what: str) -> BadInput:
        return BadInput(f"{self.name} is a system table: it can't be {what}; name the table: {super().name}")


class WarehouseSystemTable(ReadOnlyTable):
    """A system table about all tables, such as `sys.tables`. It has no snapshots."""

    @property
    def name(self) -> str:
        return f"{SYSTEM_DATABASE}.{self._system_table.name}"

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        filter: Predicate | str | Any = None,
        limit: int | None = None,
        **arguments: Any,
    ) -> Scan:
        """Read the system table.

        columns: as in `Table.scan`
        filter: as in `Table.scan`
        limit: as in `Table.scan`
        arguments: other arguments are not supported
        """
        if named := [name for name, value in arguments.items() if value is not None]:
            raise BadInput(f"{self.name} shows only the current state; leave out {named[0]}")
        found = self._scan_at(SystemTableRead(self._context, None), columns, filter)
        return found if limit is None else found.limit(limit)

    def snapshots(self) -> list[Snapshot]:
        return []

    def tags(self) -> dict[str, Snapshot]:
        return {}


class SystemScan(Scan):
    """A read of a system table. It has no splits."""

    has_splits = False

    def __init__(
        self, system_table: SystemTable, at: SystemTableRead, columns: tuple[str, ...], predicate: Predicate | None
    ) -> None:
        super().__init__(at.context, at.snapshot, columns, predicate)
        self._system_table = system_table
        self._at = at

    @property
    def schema(self) -> pa.Schema:
        whole = self._system_table.schema(self._at.context)
        return pa.schema([whole.field(name) for name in self._columns])

    def _planned_splits(self, predicate: Predicate | None) -> list[Split]:
        raise UnsupportedFeature(
            f"splits of {self._context.name}${self._system_table.name}",
            "a system table can only be read as a whole",
            "Call to_batches() or to_arrow() without splits",
        )

    def _batches(self, splits: Sequence[Split] | None) -> Iterator[pa.RecordBatch]:
        if splits is not None:
            self.splits()  # raises
        return self._rows()

    def _rows(self) -> Iterator[pa.RecordBatch]:
        schema = self._system_table.schema(self._at.context)
        condition = None if self._predicate is None else self._predicate.expression(schema)
        needed = frozenset(self._columns) | (frozenset() if self._predicate is None else self._predicate.columns)
        for rows in self._system_table.read(replace(self._at, columns=needed, predicate=self._predicate)):
            kept = rows if condition is None else matching_rows(rows, condition)
            if kept.num_rows:
                yield kept.select(self._columns)
