"""Which table a record goes to.

Records name their source table; a table of the pipeline says with patterns which ones it takes. (Partition and bucket
of a row are `storage.write`'s business.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from checkpoint.routing import takes_topic
from ingest.formats.base import Target
from ingest.formats.source_table import SourceTable
from ingest.settings import TableSettings
from ingest.tables.table_templates import ExpandedTable, TableTemplates
from storage.errors import BadInput

_WILDCARDS: Final = frozenset("*?[")  # of shell patterns


@dataclass(frozen=True, slots=True)
class Route:
    """What flows into a table.

    match: shell patterns over source table names and topics, as `SourceTable.matches` reads them; one must fit.
    topics: shell patterns over topics; one must fit, too.

    The tables that gh-ost and pt-online-schema-change copy rows through are only taken where they are named without
    wildcards: their rows are those of the table that they stand for.
    """

    table: str
    match: Sequence[str]
    topics: Sequence[str] = ("*",)

    def takes(self, source: SourceTable) -> bool:
        if not takes_topic(self.topics, source.topic):
            return False
        fitting = [pattern for pattern in self.match if source.matches(pattern)]
        if source.is_shadow:
            return any(_WILDCARDS.isdisjoint(pattern) for pattern in fitting)
        return bool(fitting)


class TableRouter:
    """The tables of a pipeline, asked by source table or by topic. Each answer is worked out once.

    Most routes name their source table: these are found by name, or a thousand tables would try a million patterns.

    templates: name the tables of records that no route takes.
    tables: names of all tables, those that don't exist yet included. It grows as `templates` name some.
    """

    def __init__(self, routes: Sequence[Route], templates: TableTemplates | None = None) -> None:
        self._routes = list(routes)
        self.templates = templates or TableTemplates()
        self.tables = [route.table for route in routes]
        self._template_of: dict[str, str | None] = {}  # table to the template that names it; None for a route's own
        self._with_name: dict[str, list[int]] = {}  # routes by what they match, where that is no pattern
        self._with_pattern: set[int] = set()
        for number, route in enumerate(routes):
            for text in route.match:
                if _WILDCARDS.isdisjoint(text):
                    self._with_name.setdefault(text, []).append(number)
                else:
                    self._with_pattern.add(number)
        self._targets: dict[str, Target] = {}
        self._table_of: dict[SourceTable, str | None] = {}
        self._tables_of: dict[str, tuple[str, ...]] = {}
        self._sources_of: dict[str, frozenset[str]] = {}

    def add_table(self, table: ExpandedTable) -> None:
        """A template named it."""
        self._template_of[table.name] = table.template
        self._routes.append(Route(table.name, (), table.topic_patterns))
        self._tables_of = {}
        self.tables.append(table.name)

    def add_target(self, target: Target) -> None:
        """The table exists now, or has changed."""
        self._targets[target.name] = target

    def target(self, table: str) -> Target | None:
        """What the records of a table are decoded into; None when it doesn't exist yet."""
        return self._targets.get(table)

    def remove_target(self, table: str) -> None:
        """Nothing is decoded for the table until `add_target`."""
        self._targets.pop(table, None)

    def target_of(self, source: SourceTable) -> Target | None:
        """What the records of a source table are decoded into; None: no table takes them, or it doesn't exist yet."""
        table = self.table_of(source)
        return None if table is None else self._targets.get(table)

    def table_of(self, source: SourceTable) -> str | None:
        """Name of the table that takes the records of a source table. Raises BadInput when several do."""
        if source not in self._table_of:
            named = {number for name in source.spellings for number in self._with_name.get(name, ())}
            routes = [self._routes[number] for number in sorted(named | self._with_pattern)]
            tables = [route.table for route in routes if route.takes(source)]
            if len(tables) > 1:
                raise BadInput(
                    f"{' and '.join(tables)} both take the records of {source}. Make `match` narrower, so that one does"
                )
            table = tables[0] if tables else self._named_by_template(source)
            if table is not None:
                self._sources_of[table] = self._sources_of.get(table, frozenset()) | {str(source)}
            self._table_of[source] = table
        return self._table_of[source]

    def _named_by_template(self, source: SourceTable) -> str | None:
        found = self.templates.table_for(source)
        if found is None:
            return None
        owner = self._template_of.get(found.name, None if found.name in self.tables else found.template)
        if owner != found.template:
            raise BadInput(
                f"{found.template} gives the records of {source} the name {found.name}, which the entry "
                f"{owner or found.name} has a table of. Give one of them another name "
                "(`source_tables: {mapping: …}`), or leave it out (`excluding_tables`)"
            )
        return found.name

    def sources_of(self, table: str) -> frozenset[str]:
        """Source tables whose records go to the table, as far as it was asked of them: spelled in full."""
        return self._sources_of.get(table, frozenset())

    def tables_of(self, topic: str) -> tuple[str, ...]:
        """Names of the tables whose position must say how far the topic was read."""
        known = self._tables_of  # not what replaces it meanwhile: that is for more tables
        if topic not in known:
            known[topic] = tuple(route.table for route in self._routes if takes_topic(route.topics, topic))
        return known[topic]


def router_of(entries: Sequence[TableSettings]) -> TableRouter:
    """Of all tables that there are, and of entries that stand for many."""
    own = [t for t in entries if not t.is_template and not isinstance(t, ExpandedTable)]
    routes = [Route(t.name, t.match_patterns, t.topic_patterns) for t in own]
    router = TableRouter(routes, TableTemplates(entries))
    for table in entries:
        if isinstance(table, ExpandedTable):
            router.add_table(table)
    return router
