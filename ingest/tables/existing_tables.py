"""Finds existing tables of entries that stand for many tables, by the pipeline's own snapshots in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from tidelake.checkpoint.routing import Routing, routing_of
from tidelake.errors import TidelakeError
from tidelake.ingest.settings import Config
from tidelake.ingest.tables.source_exclusion import leaves_out
from tidelake.ingest.tables.table_history import CommitHistory
from tidelake.ingest.tables.table_lineage import SourceLineage
from tidelake.ingest.tables.table_templates import ExpandedTable, TableTemplates
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import map_parallel
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExpandedConfig:
    """A configuration with an entry for each existing table.

    contexts: the tables that were opened to find them, in their state at that time.
    """

    config: Config
    contexts: Mapping[str, TableContext] = field(default_factory=dict)


def with_existing_tables(
    config: Config, catalog: Catalog, quarantined: Mapping[str, Collection[str] | None] | None = None
) -> ExpandedConfig:
    """Return the configuration with an entry for each of these tables. Blocks.

    quarantined: tables with kept records, which may not exist yet, and the source tables of these records; None:
        unknown.

    Tables that the pipeline never committed to are left out, even if an entry could name them. So are tables that have
    only records of source tables which no entry includes any more. A table that can't be read is regarded as the
    pipeline's, so that the start reports its error.
    """
    templates = TableTemplates(config.tables)
    if not templates:
        return ExpandedConfig(config)
    quarantined = quarantined or {}
    known = {table.name for table in config.tables}
    databases = templates.databases.intersection(catalog.list_databases())
    existing = [f"{database}.{table}" for database in sorted(databases) for table in catalog.list_tables(database)]
    contexts = dict[str, TableContext]()
    names = [name for name in dict.fromkeys([*existing, *quarantined]) if name not in known]

    def of(name: str) -> ExpandedTable | None:
        if not candidates_of(templates, name):
            return None
        try:
            context = catalog.load(name) if name in existing else None
            if context is not None:
                contexts[name] = context
            snapshot = None if context is None else CommitHistory(context, config.pipeline).own_snapshot()
        except (OSError, TidelakeError):
            return candidates_of(templates, name)[0]
        if context is None or snapshot is None:
            candidates = candidates_of(templates, name, quarantined.get(name))
            return candidates[0] if candidates and name in quarantined else None
        lineage = SourceLineage.of(snapshot.properties)
        candidates = candidates_of(templates, name, lineage.tables, lineage.topics)
        if not candidates:
            _log.info(
                "a table gets no more records",
                table=name,
                reason="no entry includes its source tables any more",
                source_tables=sorted(lineage.tables or ()),
            )
            return None
        return _maker(candidates, config.format, context, snapshot)

    found = [table for table in map_parallel(of, names) if table is not None]
    config = msgspec.structs.replace(config, tables=[*config.named_tables, *found, *config.templates])
    return ExpandedConfig(config, contexts)


def candidates_of(
    templates: TableTemplates,
    name: str,
    sources: Collection[str] | None = None,
    topics: Collection[str] | None = None,
) -> list[ExpandedTable]:
    """Return the settings that each entry would give to a table of this name.

    sources: full names of the source tables whose records the table has; entries that include none of them are left
        out. None: unknown.
    topics: topics of these records; None: unknown.
    """
    return [
        table
        for template in templates.entries
        if (table := template.table_named(name)) is not None and not leaves_out(template, name, sources, topics)
    ]


def _maker(
    candidates: list[ExpandedTable], format_name: str, context: TableContext, snapshot: Snapshot
) -> ExpandedTable:
    """Return the entry whose records the table has, if several entries could have named it."""
    routing = routing_of(snapshot.properties, context.paths.snapshot(snapshot.id))
    made = [t for t in candidates if Routing.of(format_name, t.match_patterns, t.topic_patterns) == routing]
    return (made or candidates)[0].fitted(context.schema.names)
