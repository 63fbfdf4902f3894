"""The schemas of a running pipeline's tables: they are read again, altered, and adopted by decoders and writers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from tidelake.compaction.table_rewrite import rewrite_table
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import Target
from tidelake.ingest.tables.moved_rows import MovedRowsByTable
from tidelake.ingest.tables.table_router import TableRouter
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.ingest.tables.table_targets import TableTargets
from tidelake.storage.base.logs import get_logger
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.ddl.schema_changes import SchemaChange, UpdateColumnType
from tidelake.storage.model.messages import rewrite_command, set_type
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import newest_live_entries

_log = get_logger(__name__)


class TableSchemas:
    """Reads, alters and adopts the schemas of a pipeline's tables. All methods block, except `current`.

    sinks: the tables that exist, by name; it may grow.
    rewrite_bytes_max: returns up to which size in bytes a table may be rewritten for wider keys.
    """

    def __init__(
        self,
        catalog: Catalog,
        router: TableRouter,
        sinks: Mapping[str, TableSink],
        targets: TableTargets,
        moved: MovedRowsByTable,
        rewrite_bytes_max: Callable[[str], int],
    ) -> None:
        self._rewrite_bytes_max = rewrite_bytes_max
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

        All rows are rewritten for wider columns of the key. Raises BadInput for a change that is impossible, and for a
        table that is too large to be rewritten.
        """
        sink = self._sinks.get(table)
        cancel = None if sink is None else sink.writer.cancel_compactions
        return alter_table(self._catalog, table, changes, self._rewrite_bytes_max(table), cancel)

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


def alter_table(
    catalog: Catalog,
    name: str,
    changes: Sequence[SchemaChange],
    rewrite_bytes_max: int,
    before_rewrite: Callable[[], None] | None = None,
) -> TableContext:
    """Alter a table, and return it. All rows are rewritten for wider columns of the key.

    rewrite_bytes_max: up to which size in bytes the table may be rewritten.
    before_rewrite: called before the rows are rewritten.

    Raises BadInput for a change that is impossible, and for a table that is too large to be rewritten.
    """
    rewriting = [one for one in changes if isinstance(one, UpdateColumnType) and one.rewrites_keys]
    others = [one for one in changes if one not in rewriting]
    if others:
        catalog.alter_table(name, others)
    if rewriting:
        if before_rewrite is not None:
            before_rewrite()
        _rewrite(catalog, catalog.load(name), rewriting, rewrite_bytes_max)
    return catalog.load(name)


def _rewrite(catalog: Catalog, table: TableContext, changes: Sequence[UpdateColumnType], bytes_max: int) -> None:
    command = rewrite_command(table.name, table.location, *(_set_type(change) for change in changes))
    nbytes = sum(entry.file.file_size for entry in newest_live_entries(table))
    if nbytes > bytes_max:
        raise BadInput(
            f"all rows must be rewritten for it, and {table.name} has {nbytes} bytes, while "
            f"`schema_evolution.rewrite_keys_max_bytes` allows {bytes_max}. Run `{command}`, or raise the setting"
        )
    snapshot_id = rewrite_table(table, changes, lambda made: catalog.alter_table(table.name, made), fenced=False)
    _log.info("table rewritten", table=table.name, bytes=nbytes, snapshot=snapshot_id)


def _set_type(change: UpdateColumnType) -> str:
    assert not isinstance(change.type, str | pa.DataType), "made from types of records"
    return set_type(change.name, change.type)
