"""Which source tables, and which topics, the rows of each table came from, and what is to become of them: kept in its
snapshots.

A truncate empties a table exactly only where all of its rows are those of the source table that was emptied, and came
in the same order as it. No position tells that, and what this process has seen is not all that was ever read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ingest.formats.ddl_statements import ColumnStatement
from ingest.formats.source_order import SourceOrder

LINEAGE_PROPERTY: Final = "tidelake.origins"  # key in Snapshot.properties
_VERSION: Final = 1
_NAMES_MAX: Final = 4  # beyond it a table is one of many, whichever they are


@dataclass(frozen=True, slots=True)
class TruncateMarker:
    """By a truncate whose records of other partitions may still be on their way.

    at: where it stands in the source's log: records that stand before it are no rows any more.
    behind: partitions of the topic of which no record from behind it has come. (One that comes up later has none from
        before it.)
    """

    at: SourceOrder
    behind: frozenset[int]


@dataclass(frozen=True, slots=True)
class AlteredCopy:
    """By one record: a record that is read again after a crash counts once."""

    topic: str
    offset: int
    statements: tuple[ColumnStatement, ...]


@dataclass(frozen=True, slots=True)
class SourceLineage:
    """tables: spelled in full (`shop.public.orders`); None: many, or unknown.
    topics: likewise.
    truncate: None once all partitions have come behind the last truncate.
    altered: by the name of a copy of the source table, what was altered in it; the copy may take the table's place.
    """

    tables: frozenset[str] | None = frozenset()
    topics: frozenset[str] | None = frozenset()
    truncate: TruncateMarker | None = None
    altered: Mapping[str, tuple[AlteredCopy, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> SourceLineage:
        """As a snapshot says; one that doesn't say, or in a later version, knows nothing."""
        try:
            members = json.loads(properties.get(LINEAGE_PROPERTY, "{}"))
            if members["version"] == _VERSION:
                names = (None if members[name] is None else frozenset(members[name]) for name in ("tables", "topics"))
                tables, topics = names
                return cls(tables, topics, _truncate_marker(members.get("emptied")), _altered(members.get("altered")))
        except (ValueError, KeyError, TypeError):
            pass
        return UNKNOWN

    def with_names(self, tables: Iterable[str] = (), topics: Iterable[str] = ()) -> SourceLineage:
        return replace(self, tables=_joined(self.tables, tables), topics=_joined(self.topics, topics))

    def to_text(self) -> str:
        names: dict[str, Any] = {
            name: None if (of := getattr(self, name)) is None else sorted(of) for name in ("tables", "topics")
        }
        if (marker := self.truncate) is not None:
            at = {"log": marker.at.log, "place": marker.at.place}
            names["emptied"] = {**at, "behind": sorted(marker.behind)}
        if self.altered:
            names["altered"] = {
                copy: [[one.topic, one.offset, [[s.old, s.new, s.type] for s in one.statements]] for one in of]
                for copy, of in self.altered.items()
            }
        return json.dumps({"version": _VERSION, **names}, ensure_ascii=False, separators=(",", ":"))


UNKNOWN: Final = SourceLineage(None, None)


class TableLineage:
    """Of all tables of a pipeline. Not for use by two threads at once.

    sources_of: source tables whose records this process decoded for a table.
    """

    def __init__(self, sources_of: Callable[[str], Iterable[str]]) -> None:
        self._sources_of = sources_of
        self._known: dict[str, SourceLineage] = {}
        self.unpublished: set[str] = set()
        """Tables whose next snapshot must be made even without rows: an idle table's position passes records, too."""

    def restore(self, known: Mapping[str, SourceLineage]) -> None:
        """What the newest snapshots say. Of tables that have none there is nothing."""
        self._known = dict(known)

    def restore_one(self, table: str, properties: Mapping[str, str]) -> None:
        """As the table's newest snapshot says."""
        self._known[table] = SourceLineage.of(properties)

    def add_topic(self, table: str, topic: str) -> None:
        """Rows for the table came from this topic."""
        of = self._known.get(table, SourceLineage())
        if of.topics is not None and topic not in of.topics:
            self._known[table] = of.with_names(topics=[topic])

    def of(self, table: str) -> SourceLineage:
        return self._known.get(table, SourceLineage()).with_names(tables=self._sources_of(table))

    def truncate_marker(self, table: str) -> TruncateMarker | None:
        """The last known one; quick."""
        known = self._known.get(table)
        return None if known is None else known.truncate

    def set_truncate_marker(self, table: str, marker: TruncateMarker | None) -> None:
        """None: nothing from before the truncate can come any more."""
        self._known[table] = replace(self._known.get(table, SourceLineage()), truncate=marker)

    def altered_in(self, table: str, copy: str) -> tuple[ColumnStatement, ...]:
        """What was done to the columns of a copy of the table's source, in order."""
        known = self._known.get(table, SourceLineage()).altered.get(copy, ())
        return tuple(statement for one in known for statement in one.statements)

    def alter_copy(self, table: str, copy: str, altered: AlteredCopy) -> None:
        """The table's next snapshots carry it, until `forget_copy`."""
        known = self._known.get(table, SourceLineage())
        if altered not in known.altered.get(copy, ()):
            of_copy = (*known.altered.get(copy, ()), altered)
            self._known[table] = replace(known, altered={**known.altered, copy: of_copy})
            self.unpublished.add(table)

    def forget_copy(self, table: str, copy: str) -> None:
        """It was recreated, was dropped, or has taken the table's place."""
        known = self._known.get(table, SourceLineage())
        if copy in known.altered:
            left = {name: of for name, of in known.altered.items() if name != copy}
            self._known[table] = replace(known, altered=left)
            self.unpublished.add(table)


def _altered(members: dict[str, Any] | None) -> dict[str, tuple[AlteredCopy, ...]]:
    return {
        copy: tuple(
            AlteredCopy(str(topic), int(offset), tuple(ColumnStatement(*one) for one in statements))
            for topic, offset, statements in of
        )
        for copy, of in (members or {}).items()
    }


def _truncate_marker(members: dict[str, Any] | None) -> TruncateMarker | None:
    if members is None:
        return None
    at = SourceOrder(str(members["log"]), tuple(int(part) for part in members["place"]))
    return TruncateMarker(at, frozenset(int(partition) for partition in members["behind"]))


def _joined(known: frozenset[str] | None, more: Iterable[str]) -> frozenset[str] | None:
    if known is None:
        return None
    joined = known | frozenset(more)
    return joined if len(joined) <= _NAMES_MAX else None
