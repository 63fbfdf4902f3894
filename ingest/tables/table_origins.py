"""Which source tables, and which topics, the rows of each table came from: kept in its snapshots.

A truncate empties a table exactly only where all of its rows are those of the source table that was emptied, and came
in the same order as it. No position tells that, and what this process has seen is not all that was ever read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

ORIGINS_PROPERTY: Final = "tidelake.origins"  # key in Snapshot.properties
_VERSION: Final = 1
_NAMES_MAX: Final = 4  # beyond it a table is one of many, whichever they are


@dataclass(frozen=True, slots=True)
class Origins:
    """tables: spelled in full (`shop.public.orders`); None: many, or nobody knows.
    topics: likewise.
    """

    tables: frozenset[str] | None = frozenset()
    topics: frozenset[str] | None = frozenset()

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Origins:
        """As a snapshot says; one that doesn't say, or in a later version, knows nothing."""
        try:
            members = json.loads(properties.get(ORIGINS_PROPERTY, "{}"))
            if members["version"] == _VERSION:
                return cls(
                    *(None if members[name] is None else frozenset(members[name]) for name in ("tables", "topics"))
                )
        except (ValueError, KeyError, TypeError):
            pass
        return UNKNOWN

    def with_names(self, tables: Iterable[str] = (), topics: Iterable[str] = ()) -> Origins:
        return Origins(_joined(self.tables, tables), _joined(self.topics, topics))

    def to_text(self) -> str:
        names = {name: None if (of := getattr(self, name)) is None else sorted(of) for name in ("tables", "topics")}
        return json.dumps({"version": _VERSION, **names}, ensure_ascii=False, separators=(",", ":"))


UNKNOWN: Final = Origins(None, None)


class TableOrigins:
    """Of all tables of a pipeline. Not for use by two threads at once.

    sources_of: source tables whose records this process decoded for a table.
    """

    def __init__(self, sources_of: Callable[[str], Iterable[str]]) -> None:
        self._sources_of = sources_of
        self._known: dict[str, Origins] = {}

    def restore(self, known: Mapping[str, Origins]) -> None:
        """What the newest snapshots say. Of tables that have none there is nothing."""
        self._known = dict(known)

    def restore_one(self, table: str, properties: Mapping[str, str]) -> None:
        """As the table's newest snapshot says."""
        self._known[table] = Origins.of(properties)

    def brought(self, table: str, topic: str) -> None:
        """Rows for the table came from this topic."""
        of = self._known.get(table, Origins())
        if of.topics is not None and topic not in of.topics:
            self._known[table] = of.with_names(topics=[topic])

    def of(self, table: str) -> Origins:
        return self._known.get(table, Origins()).with_names(tables=self._sources_of(table))


def _joined(known: frozenset[str] | None, more: Iterable[str]) -> frozenset[str] | None:
    if known is None:
        return None
    joined = known | frozenset(more)
    return joined if len(joined) <= _NAMES_MAX else None
