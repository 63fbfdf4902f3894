"""Decides which tables a record belongs to.

Records name their source table. Each table of the pipeline has patterns of source tables, and a source table may have
several tables. (`tidelake.storage.write` decides partition and bucket of a row.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelake.checkpoint.routing import takes_topic
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import Target
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.settings import TableSettings
from tidelake.ingest.tables.table_templates import ExpandedTable, TableTemplates

_WILDCARDS: Final = frozenset("*?[")  # wildcards of shell patterns


@dataclass(frozen=True, slots=True)
class Route:
    """The source tables and topics of a table.

    match: shell patterns of source table names and topics, see `SourceTable.matches`. One must match.
    topics: shell patterns of topics. One of these must match, too.

    Copies of tables that gh-ost and pt-online-schema-change use are only matched by names without wildcards, because
    their rows are those of the original table.
    """

    table: str
    match: Sequence[str]
    topics: Sequence[str] = ("*",)

    def accepts(self, source: SourceTable) -> bool:
        if not takes_topic(self.topics, source.topic):
            return False
        fitting = [pattern for pattern in self.match if source.matches(pattern)]
        if source.is_shadow:
            return any(_WILDCARDS.isdisjoint(pattern) for pattern in fitting)
        return bool(fitting)


class TableRouter:
    """Finds the tables of a pipeline by source table or by topic. Each result is computed once.

    Most routes name their source table, so they are found by name. Otherwise a thousand tables would try a million
    patterns.

    templates: entries that name the tables of records without a route.
    tables: names of all tables, including those that don't exist yet. It grows when `templates` name tables.
    """

    def __init__(self, routes: Sequence[Route], templates: TableTemplates | None = None) -> None:
        self._routes = list(routes)
        self.templates = templates or TableTemplates()
        self.tables = [route.table for route in routes]
        self._template_of: dict[str, str | None] = {}  # table to the template that names it; None if a route names it
        self._with_name: dict[str, list[int]] = {}  # name to the routes that match it without wildcards
        self._with_pattern: set[int] = set()
        for number, route in enumerate(routes):
            for text in route.match:
                if _WILDCARDS.isdisjoint(text):
                    self._with_name.setdefault(text, []).append(number)
                else:
                    self._with_pattern.add(number)
        self._targets: dict[str, Target] = {}
        self._tables_for: dict[SourceTable, tuple[str, ...]] = {}
        self._sharing: dict[str, frozenset[str]] = {}  # table to others that have a source table in common with it
        self._tables_of: dict[str, tuple[str, ...]] = {}
        self._sources_of: dict[str, frozenset[str]] = {}

    def add_table(self, table: ExpandedTable) -> None:
        """Add a table that a template named."""
        self._template_of[table.name] = table.template
        self._routes.append(Route(table.name, (), table.topic_patterns))
        self._tables_of = {}
        self.tables.append(table.name)

    def add_target(self, target: Target) -> None:
        """Set the target of a table that was created or changed."""
        self._targets[target.name] = target

    def target(self, table: str) -> Target | None:
        """Return the target of a table; None if the table doesn't exist yet."""
        return self._targets.get(table)

    def remove_target(self, table: str) -> None:
        """Remove the target of a table. No record is decoded for it until `add_target`."""
        self._targets.pop(table, None)

    def target_of(self, source: SourceTable) -> Target | None:
        """Return the target of the only table of a source table's records; None if they have no table, or it doesn't
        exist yet. Raises BadInput if several tables match.
        """
        table = self.table_of(source)
        return None if table is None else self._targets.get(table)

    def table_of(self, source: SourceTable) -> str | None:
        """Return the name of the only table of a source table's records. Raises BadInput if several tables match."""
        tables = self.tables_for(source)
        if len(tables) > 1:
            raise BadInput(
                f"{' and '.join(tables)} both match the records of {source}, but only one table is expected. Make "
                "`match` narrower, so that only one matches"
            )
        return tables[0] if tables else None

    def tables_for(self, source: SourceTable) -> tuple[str, ...]:
        """Return the names of all tables of a source table's records, in the order of the configuration.

        A template names a table only for records that no other entry takes. Raises BadInput for a name that it can't
        give.
        """
        if source not in self._tables_for:
            named = {number for name in source.spellings for number in self._with_name.get(name, ())}
            routes = [self._routes[number] for number in sorted(named | self._with_pattern)]
            tables = [route.table for route in routes if route.accepts(source)]
            if not tables and (name := self._named_by_template(source)) is not None:
                tables = [name]
            for table in tables:
                self._sources_of[table] = self._sources_of.get(table, frozenset()) | {str(source)}
                self._sharing[table] = self.sharing(table) | (frozenset(tables) - {table})
            self._tables_for[source] = tuple(tables)
        return self._tables_for[source]

    def sharing(self, table: str) -> frozenset[str]:
        """Return the other tables of its source tables, as far as `tables_for` was called for them."""
        return self._sharing.get(table, frozenset())

    def _named_by_template(self, source: SourceTable) -> str | None:
        found = self.templates.table_for(source)
        if found is None:
            return None
        owner = self._template_of.get(found.name, None if found.name in self.tables else found.template)
        if owner != found.template:
            raise BadInput(
                f"{found.template} gives the records of {source} the table name {found.name}, but the entry "
                f"{owner or found.name} already has a table of this name. Give one of them another name "
                "(`source_tables: {mapping: …}`), or exclude it (`excluding_tables`)"
            )
        return found.name

    def sources_of(self, table: str) -> frozenset[str]:
        """Return the full names of source tables of a table, as far as `tables_for` was called for them."""
        return self._sources_of.get(table, frozenset())

    def tables_of(self, topic: str) -> tuple[str, ...]:
        """Return the names of the tables whose position includes the topic."""
        known = self._tables_of  # the attribute may be replaced meanwhile, when tables are added
        if topic not in known:
            known[topic] = tuple(route.table for route in self._routes if takes_topic(route.topics, topic))
        return known[topic]


def router_of(entries: Sequence[TableSettings]) -> TableRouter:
    """Return the router of all configured tables, and of entries that stand for many tables."""
    own = [t for t in entries if not t.is_template and not isinstance(t, ExpandedTable)]
    routes = [Route(t.name, t.match_patterns, t.topic_patterns) for t in own]
    router = TableRouter(routes, TableTemplates(entries))
    for table in entries:
        if isinstance(table, ExpandedTable):
            router.add_table(table)
    return router
