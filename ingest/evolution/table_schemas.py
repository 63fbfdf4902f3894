"""The schemas of a running pipeline's tables: they are read again, altered, and adopted by decoders and writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelake.ingest.formats.base import Target
from tidelake.ingest.tables.moved_rows import MovedRowsByTable
from tidelake.ingest.tables.table_router import TableRouter
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.ingest.tables.table_targets import TableTargets
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.ddl.schema_changes import SchemaChange
from tidelake.storage.model.table import TableContext


class TableSchemas:
    """Reads, alters and adopts the schemas of a pipeline's tables. All methods block, except `current`.

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
        """Return the target into which the table's records are decoded now; None for a table of no pipeline entry."""
        return self._router.target(table)

    def newest(self, table: str) -> TableContext:
        """Return the table in its current state in the catalog."""
        return self._catalog.load(table)

    def alter(self, table: str, changes: Sequence[SchemaChange]) -> TableContext:
        """Alter the table, and return it. Changes that another process made at the same time count as made.

        Raises BadInput for a change that is impossible.
        """
        self._catalog.alter_table(table, changes)
        return self._catalog.load(table)

    def adopt(self, table: TableContext) -> None:
        """Read and write under this version of the schema from now on. All rows written before must be committed."""
        old = self._target_of(table.name).schema
        self._sinks[table.name].adopt_schema(table)
        self._moved.of(table.name).adopt_schema(old, table.schema)
        self._router.add_target(self._targets.of(table))

    def leave_unchanged(
        self, table: str, *, ignored_columns: Sequence[str] = (), columns_with_fixed_type: Sequence[str] = ()
    ) -> None:
        """Leave the table unchanged, and read records as far as they fit (see `TableTargets`)."""
        self._targets.ignore(table, ignored_columns)
        self._targets.keep_type(table, columns_with_fixed_type)
        self._router.add_target(self._targets.with_decisions(self._target_of(table)))

    def _target_of(self, table: str) -> Target:
        target = self._router.target(table)
        assert target is not None, table
        return target
