"""The lineage of each table: the source tables and topics of its rows, the types of its document ids, and pending
truncates and altered copies. The table's snapshots record it.

Emptying a table for a truncate is exact only if all its rows come from the truncated source table, and in the order of
the truncate. The position doesn't show this, and this process has not seen all records that were ever read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidelake.ingest.formats.ddl_statements import ColumnStatement
from tidelake.ingest.formats.document_ids import DocumentIds
from tidelake.ingest.formats.format_capabilities import SourceOrder

LINEAGE_PROPERTY: Final = "tidelake.origins"  # key in Snapshot.properties
_VERSION: Final = 1
_NAMES_MAX: Final = 4  # with more names, the names don't matter


@dataclass(frozen=True, slots=True)
class TruncateMarker:
    """The last truncate of a table, while other partitions may still deliver records from before it.

    at: its place in the source's log. Records before this place are no rows any more.
    behind: partitions of the topic that have not delivered a record from after the truncate yet. (A partition that is
        created later has no record from before it.)
    topic: the topic of the truncate. None in snapshots of earlier releases: any topic.
    """

    at: SourceOrder
    behind: frozenset[int]
    topic: str | None = None

    def is_behind(self, topic: str, partition: int) -> bool:
        """Return whether the partition may still deliver records from before the truncate."""
        return partition in self.behind and self.topic in (None, topic)


@dataclass(frozen=True, slots=True)
class AlteredCopy:
    """The schema changes of one record in a copy of a source table. After a crash a repeated record is recognized."""

    topic: str
    offset: int
    statements: tuple[ColumnStatement, ...]


@dataclass(frozen=True, slots=True)
class SourceLineage:
    """The lineage of one table.

    tables: full names of the source tables (`shop.public.orders`); None: many, or unknown.
    topics: names of the topics; None: many, or unknown.
    truncate: the last truncate; None after all partitions have delivered records from after it.
    altered: for each copy of the source table, its schema changes. The copy may replace the table (online DDL).
    ids: the types of its document ids, as `DocumentIds.to_members` returns them.
    """

    tables: frozenset[str] | None = frozenset()
    topics: frozenset[str] | None = frozenset()
    truncate: TruncateMarker | None = None
    altered: Mapping[str, tuple[AlteredCopy, ...]] = field(default_factory=dict)
    ids: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> SourceLineage:
        """Return the lineage in a snapshot. It is unknown if the snapshot has none, or one of a later version."""
        try:
            members = json.loads(properties.get(LINEAGE_PROPERTY, "{}"))
            if members["version"] == _VERSION:
                names = (None if members[name] is None else frozenset(members[name]) for name in ("tables", "topics"))
                tables, topics = names
                marker, altered = _truncate_marker(members.get("emptied")), _altered(members.get("altered"))
                return cls(tables, topics, marker, altered, members.get("ids", {}))
        except (ValueError, KeyError, TypeError):
            pass
        return UNKNOWN

    @classmethod
    def joined(cls, snapshots: Iterable[Mapping[str, str]]) -> SourceLineage:
        """Return the lineage of rows that several commit users wrote.

        snapshots: properties of the newest snapshot of each, the oldest first.
        """
        found = cls()
        for lineage in map(cls.of, snapshots):
            tables = None if lineage.tables is None else _joined(found.tables, lineage.tables)
            topics = None if lineage.topics is None else _joined(found.topics, lineage.topics)
            found = replace(lineage, tables=tables, topics=topics)
        return found

    def with_names(self, tables: Iterable[str] = (), topics: Iterable[str] = ()) -> SourceLineage:
        return replace(self, tables=_joined(self.tables, tables), topics=_joined(self.topics, topics))

    def to_text(self) -> str:
        names: dict[str, Any] = {
            name: None if (of := getattr(self, name)) is None else sorted(of) for name in ("tables", "topics")
        }
        if (marker := self.truncate) is not None:
            at = {"log": marker.at.log, "place": marker.at.place}
            of_topic = {} if marker.topic is None else {"topic": marker.topic}
            names["emptied"] = {**at, "behind": sorted(marker.behind), **of_topic}
        if self.altered:
            names["altered"] = {
                copy: [[one.topic, one.offset, [[s.old, s.new, s.type] for s in one.statements]] for one in of]
                for copy, of in self.altered.items()
            }
        if self.ids:
            names["ids"] = self.ids
        return json.dumps({"version": _VERSION, **names}, ensure_ascii=False, separators=(",", ":"))


UNKNOWN: Final = SourceLineage(None, None)


class TableLineage:
    """The lineage of all tables of a pipeline. Not thread-safe.

    sources_of: returns the source tables whose records this process decoded for a table.
    ids_of: returns the document ids that this process decoded for a table.
    """

    def __init__(
        self, sources_of: Callable[[str], Iterable[str]], ids_of: Callable[[str], DocumentIds] | None = None
    ) -> None:
        self._sources_of = sources_of
        self._ids_of = ids_of or (lambda _: DocumentIds())
        self._known: dict[str, SourceLineage] = {}
        self.unpublished: set[str] = set()
        """Tables that need a snapshot even without rows, because the position of an idle table passes records, too."""

    def restore(self, known: Mapping[str, SourceLineage]) -> None:
        """Set the lineage of the newest snapshots. Tables without snapshots have none."""
        self._known = dict(known)
        for table in known:
            self._restore_ids(table)

    def restore_one(self, table: str, properties: Mapping[str, str]) -> None:
        """Set the lineage of the table's newest snapshot."""
        self._known[table] = SourceLineage.of(properties)
        self._restore_ids(table)

    def _restore_ids(self, table: str) -> None:
        self._ids_of(table).include(table, DocumentIds.of(self._known[table].ids))

    def add_topic(self, table: str, topic: str) -> None:
        """Record that the table has rows from this topic."""
        of = self._known.get(table, SourceLineage())
        if of.topics is not None and topic not in of.topics:
            self._known[table] = of.with_names(topics=[topic])

    def topics_of(self, table: str) -> frozenset[str] | None:
        """Return the topics that the table has rows from; None: many, or unknown. This is fast."""
        return self._known.get(table, SourceLineage()).topics

    def of(self, table: str) -> SourceLineage:
        of = self._known.get(table, SourceLineage()).with_names(tables=self._sources_of(table))
        return replace(of, ids=self._ids_of(table).to_members())

    def truncate_marker(self, table: str) -> TruncateMarker | None:
        """Return the last known truncate. This is fast."""
        known = self._known.get(table)
        return None if known is None else known.truncate

    def set_truncate_marker(self, table: str, marker: TruncateMarker | None) -> None:
        """Set the last truncate. None: no record from before it can arrive any more."""
        self._known[table] = replace(self._known.get(table, SourceLineage()), truncate=marker)

    def altered_in(self, table: str, copy: str) -> tuple[ColumnStatement, ...]:
        """Return the schema changes of a copy of the source table, in order."""
        known = self._known.get(table, SourceLineage()).altered.get(copy, ())
        return tuple(statement for one in known for statement in one.statements)

    def alter_copy(self, table: str, copy: str, altered: AlteredCopy) -> None:
        """Add a schema change of a copy. The table's next snapshots record it, until `forget_copy`."""
        known = self._known.get(table, SourceLineage())
        if altered not in known.altered.get(copy, ()):
            of_copy = (*known.altered.get(copy, ()), altered)
            self._known[table] = replace(known, altered={**known.altered, copy: of_copy})
            self.unpublished.add(table)

    def forget_copy(self, table: str, copy: str) -> None:
        """Forget the changes of a copy, because it was recreated or dropped, or has replaced the table."""
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
    return TruncateMarker(at, frozenset(int(partition) for partition in members["behind"]), members.get("topic"))


def _joined(known: frozenset[str] | None, more: Iterable[str]) -> frozenset[str] | None:
    if known is None:
        return None
    joined = known | frozenset(more)
    return joined if len(joined) <= _NAMES_MAX else None
