"""The schemas of a pipeline's tables while it runs: read again, altered, and taken over by what reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingest.formats.base import Target
from ingest.tables.moved_rows.moved_rows import MovedRowsByTable
from ingest.tables.table_router import TableRouter
from ingest.tables.table_sink import TableSink
from ingest.tables.table_targets import TableTargets
from storage.catalog.base import Catalog
from storage.ddl.schema_changes import SchemaChange
from storage.table import TableContext


class TableSchemas:
    """Methods block, but `current`.

    sinks: the tables that exist, by name; it may grow.
    """

    def __init__(
        self,
        catalog: Catalog,
        router: TableRouter,
        sinks: Mapping[str, TableSink],
        targets: TableTargets,
        moved: MovedRowsByTable,
    ) -> None:
        self._catalog = catalog
        self._router = router
        self._sinks = sinks
        self._targets = targets
        self._moved = moved

    def current(self, table: str) -> Target | None:
        """What its records are decoded into now; None for a table that is not one of the pipeline."""
        return self._router.target(table)

    def newest(self, table: str) -> TableContext:
        """As the catalog has it now."""
        return self._catalog.load(table)

    def alter(self, table: str, changes: Sequence[SchemaChange]) -> TableContext:
        """The table with these changes, made by another process at the same time or by us.

        Raises BadInput for a change that can't be made.
        """
        self._catalog.alter_table(table, changes)
        return self._catalog.load(table)

    def adopt(self, table: TableContext) -> None:
        """Read and write under this version of the schema from now on. Everything written before is committed."""
        old = self._require(table.name).schema
        self._sinks[table.name].adopt_schema(table)
        self._moved.of(table.name).adopt_schema(old, table.schema)
        self._router.add_target(self._targets.of(table))

    def leave(self, table: str, *, ignored: Sequence[str] = (), fixed: Sequence[str] = ()) -> None:
        """Keep the table as it is, and read records as far as they fit (see `TableTargets`)."""
        self._targets.ignore(table, ignored)
        self._targets.fix(table, fixed)
        self._router.add_target(self._targets.as_decided(self._require(table)))

    def _require(self, table: str) -> Target:
        target = self._router.target(table)
        assert target is not None, table
        return target
