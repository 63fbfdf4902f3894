"""Which table a record goes to.

Records name their source table; a table of the pipeline says with patterns which ones it takes. (Partition and bucket
of a row are `storage.write`'s business.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ingest.formats.base import Target
from ingest.formats.source_table import SourceTable
from storage.errors import BadInput


@dataclass(frozen=True, slots=True)
class Route:
    """A table, and what flows into it.

    match: shell patterns over source table names and topics, as `SourceTable.matches` reads them; one must fit.
    topics: shell patterns over topics; one must fit, too.
    """

    target: Target
    match: Sequence[str]
    topics: Sequence[str] = ("*",)

    def takes(self, source: SourceTable) -> bool:
        return self.takes_topic(source.topic) and any(source.matches(pattern) for pattern in self.match)

    def takes_topic(self, topic: str) -> bool:
        """Whether the topic may hold records for this table; the records themselves may still be another table's."""
        return any(fnmatchcase(topic, pattern) for pattern in self.topics)


class Router:
    """The tables of a pipeline, asked by source table or by topic. Each answer is worked out once."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes
        self._targets: dict[SourceTable, Target | None] = {}
        self._tables: dict[str, tuple[str, ...]] = {}

    def target_of(self, source: SourceTable) -> Target | None:
        """The table that takes the records of a source table; None: no table. Raises BadInput when several do."""
        if source not in self._targets:
            routes = [route for route in self._routes if route.takes(source)]
            if len(routes) > 1:
                names = " and ".join(route.target.name for route in routes)
                raise BadInput(
                    f"{names} both take the records of {source}. Make `match` narrower, so that one table takes them"
                )
            self._targets[source] = routes[0].target if routes else None
        return self._targets[source]

    def tables_of(self, topic: str) -> tuple[str, ...]:
        """Names of the tables whose position must tell how far the topic was read."""
        if topic not in self._tables:
            self._tables[topic] = tuple(route.target.name for route in self._routes if route.takes_topic(topic))
        return self._tables[topic]
