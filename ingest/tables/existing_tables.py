"""Finds existing tables of entries that stand for many tables, by the pipeline's own snapshots in them."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tidelake.checkpoint.routing import Routing, routing_of
from tidelake.errors import TidelakeError
from tidelake.ingest.settings import Config
from tidelake.ingest.tables.table_history import CommitHistory
from tidelake.ingest.tables.table_templates import ExpandedTable, TableTemplates
from tidelake.storage.base.threads import map_parallel
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext


def with_existing_tables(config: Config, catalog: Catalog, quarantined: Collection[str] = ()) -> Config:
    """Return the configuration with an entry for each of these tables. Blocks.

    quarantined: tables with kept records; they may not exist yet.

    Tables that the pipeline never committed to are left out, even if an entry could name them. A table that can't be
    read is regarded as the pipeline's, so that the start reports its error.
    """
    templates = TableTemplates(config.tables)
    if not templates:
        return config
    known = {table.name for table in config.tables}
    databases = templates.databases.intersection(catalog.list_databases())
    existing = [f"{database}.{table}" for database in sorted(databases) for table in catalog.list_tables(database)]
    names = [name for name in dict.fromkeys([*existing, *quarantined]) if name not in known]

    def of(name: str) -> ExpandedTable | None:
        candidates = templates.tables_named(name)
        if not candidates:
            return None
        try:
            context = catalog.load(name) if name in existing else None
            snapshot = None if context is None else CommitHistory(context, config.pipeline).own_snapshot()
        except (OSError, TidelakeError):
            return candidates[0]
        if context is None or snapshot is None:
            return candidates[0] if name in quarantined else None
        return _maker(candidates, config.format, context, snapshot)

    found = [table for table in map_parallel(of, names) if table is not None]
    return msgspec.structs.replace(config, tables=[*config.named_tables, *found, *config.templates])


def _maker(
    candidates: list[ExpandedTable], format_name: str, context: TableContext, snapshot: Snapshot
) -> ExpandedTable:
    """Return the entry whose records the table has, if several entries could have named it."""
    routing = routing_of(snapshot.properties, context.paths.snapshot(snapshot.id))
    made = [t for t in candidates if Routing.of(format_name, t.match_patterns, t.topic_patterns) == routing]
    return (made or candidates)[0].fitted(context.schema.names)
