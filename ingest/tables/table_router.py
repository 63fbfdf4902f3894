"""Which table a record goes to.

Records name their source table; a table of the pipeline says with patterns which ones it takes. (Partition and bucket
of a row are `storage.write`'s business.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from checkpoint.routing import takes_topic
from ingest.formats.base import Target
from ingest.formats.source_table import SourceTable
from storage.errors import BadInput

_WILDCARDS: Final = frozenset("*?[")  # of shell patterns

_SHADOW: Final = re.compile(r"_.+_(gho|ghc|del|new|old)")


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
        if _SHADOW.fullmatch(source.table or ""):
            return any(_WILDCARDS.isdisjoint(pattern) for pattern in fitting)
        return bool(fitting)


class TableRouter:
    """The tables of a pipeline, asked by source table or by topic. Each answer is worked out once.

    Most routes name their source table: these are found by name, or a thousand tables would try a million patterns.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes
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

    @property
    def tables(self) -> list[str]:
        """Names of all tables, those that don't exist yet included."""
        return [route.table for route in self._routes]

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
            self._table_of[source] = tables[0] if tables else None
        return self._table_of[source]

    def tables_of(self, topic: str) -> tuple[str, ...]:
        """Names of the tables whose position must say how far the topic was read."""
        if topic not in self._tables_of:
            self._tables_of[topic] = tuple(route.table for route in self._routes if takes_topic(route.topics, topic))
        return self._tables_of[topic]
