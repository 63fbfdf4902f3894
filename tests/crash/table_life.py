"""The life of a small table: it is created, written and committed a few times. It may end at any call, and another
process continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tests.support.changelog_fold import check_changelog
from tidelake.errors import BadInput
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.commit.publisher import CommitEnvironment
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.options import ChangelogProducer
from tidelake.storage.model.snapshots.snapshot import SnapshotStore
from tidelake.storage.model.table import TableContext
from tidelake.table import Table
from tidelake.writer import Writer

NAME: Final = "db.t"
USER: Final = "etl"
SCHEMA: Final = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.string()), ("at", pa.int64())])
_WITH_KIND: Final = SCHEMA.append(pa.field(KIND_COLUMN, pa.int8(), nullable=False))
# Commits wait for the compaction of two runs; every commit expires what came before.
COMPACT_AT_TWO: Final = {"num-sorted-run.compaction-trigger": "2", "commit.force-compact": "true"}
EXPIRE_ALL_BUT_ONE: Final = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "1",
    "snapshot.time-retained": "1 ms",
}
_EXACT: Final = (ChangelogProducer.FULL_COMPACTION, ChangelogProducer.LOOKUP)
NO_WAIT: Final = CommitEnvironment(sleep_ms=lambda _: None)

Row = tuple[int, str, int]


@dataclass(frozen=True)
class TableKind:
    """What the table is. Rows of an append table are never equal, so that one too many and one too few are seen."""

    id: str
    primary_key: bool
    options: Mapping[str, str]
    commits: int = 3

    def changes(self, identifier: int) -> list[tuple[RowKind, Row]]:
        """What the commit of this identifier adds; 0 is the rival's. Later commits replace and delete earlier rows."""
        keys = range(identifier, identifier + 3) if self.primary_key else range(100 * identifier, 100 * identifier + 3)
        changes = [(RowKind.INSERT, (key, f"{identifier}-{key}", identifier)) for key in keys]
        if self.primary_key and identifier:
            changes.append((RowKind.DELETE, (identifier - 1, "", identifier)))
        return changes

    def after(self, identifiers: Sequence[int]) -> list[Row]:
        """The rows of a table with these commits, in this order unless a sequence field says otherwise."""
        ordered = sorted(identifiers) if "sequence.field" in self.options else identifiers
        changes = [change for identifier in ordered for change in self.changes(identifier)]
        if not self.primary_key:
            return sorted(row for _, row in changes)
        rows: dict[int, Row] = {}
        for kind, row in changes:
            rows.pop(row[0], None)
            if kind is RowKind.INSERT:
                rows[row[0]] = row
        return sorted(rows.values())


@dataclass(frozen=True)
class Summing(TableKind):
    """Rows of a key add up, so that a commit or a compaction that counts twice or half is seen."""

    def changes(self, identifier: int) -> list[tuple[RowKind, Row]]:
        added = [(key, f"{identifier}-{key}", 10**identifier) for key in range(identifier, identifier + 3)]
        return [*((RowKind.INSERT, row) for row in (*added, *added)), (RowKind.DELETE, added[0])]

    def after(self, identifiers: Sequence[int]) -> list[Row]:
        rows: dict[int, Row] = {}
        for kind, (key, text, at) in (change for identifier in identifiers for change in self.changes(identifier)):
            _, _, total = rows.get(key, (key, "", 0))
            rows[key] = key, text, total + (at if kind is RowKind.INSERT else -at)
        return sorted(rows.values())


SUM_UP: Final = {
    "merge-engine": "aggregation",
    "fields.at.aggregate-function": "sum",
    "fields.v.ignore-retract": "true",
}


@dataclass
class Life:
    """One process's part of it. acknowledged: identifiers whose commit returned."""

    io: FileIO
    warehouse: str
    kind: TableKind
    acknowledged: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Start up, find out how far the table is, commit the newest again, then the rest, shut down."""
        context = self.open()
        with Writer(context, USER, environment=NO_WAIT) as writer:
            newest = TableCommit(context, USER).latest_of_user()
            for identifier in range(newest.commit_identifier if newest else 1, self.kind.commits + 1):
                writer.write(batch(self.kind.changes(identifier)))
                writer.commit(identifier)
                self.acknowledged.append(identifier)

    def open(self) -> TableContext:
        """The table, made if need be."""
        catalog = FileSystemCatalog(self.io, self.warehouse)
        catalog.create_database("db", if_not_exists=True)
        key = ["k"] if self.kind.primary_key else []
        catalog.create_table(NAME, SCHEMA, primary_key=key, options=self.kind.options, if_not_exists=True)
        return catalog.load(NAME)

    def rival_commits(self) -> None:
        with Writer(self.open(), "rival") as writer:
            writer.write(batch(self.kind.changes(0)))
            writer.commit(1)


def batch(changes: Sequence[tuple[RowKind, Row]]) -> pa.Table:
    rows = [dict(zip(SCHEMA.names, row, strict=True)) | {KIND_COLUMN: int(kind)} for kind, row in changes]
    return pa.Table.from_pylist(rows, _WITH_KIND)


@dataclass(frozen=True)
class Found:
    """A table as a new process finds it.

    identifiers: of our commits in their order, with 0 for the rival's; those whose snapshots expired came before. Each
    is there as often as it was committed.
    """

    identifiers: list[int]
    rows: list[Row]
    problems: Sequence[Any]
    is_expired: bool = False
    is_compacted: bool = False


def look(io: FileIO, warehouse: str) -> Found:
    """An absent table is an empty one."""
    try:
        context = FileSystemCatalog(io, warehouse).load(NAME)
    except BadInput:
        return Found([], [], [])
    store = SnapshotStore(io, context.paths)
    there = list(store.range(store.earliest_id(), store.latest_id()))
    identifiers = [s.commit_identifier if s.commit_user == USER else 0 for s in there if s.commit_kind != "COMPACT"]
    is_compacted = any(s.commit_kind == "COMPACT" for s in there)
    is_expired = bool(there) and there[0].id > 1
    if is_expired:
        first = identifiers[0] if identifiers else there[0].commit_identifier + 1
        identifiers = [*range(1, first), *identifiers]
    with_level_0 = Table(context.with_options({"deletion-vectors.merge-on-read": "true"}))
    rows = sorted(tuple(row.values()) for row in with_level_0.scan().to_arrow().to_pylist())
    if context.options.changelog_producer in _EXACT:
        check_changelog(Table(context))
    return Found(identifiers, rows, verify(context, deep=True), is_expired, is_compacted)
