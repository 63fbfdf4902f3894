"""System tables about what holds snapshots: `t$tags`, `t$branches`, `t$consumers`.

Source: Java `table/system/TagsTable.java`, `BranchesTable.java`, `ConsumersTable.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.kinds.system_tables.metadata_table import (
    TIME,
    Columns,
    MetadataTable,
    bigint,
    local_time,
    matching_keys,
    text,
)
from tidelake.storage.kinds.system_tables.system_table import SystemTableRead
from tidelake.storage.model.paths import parse_branch_name
from tidelake.storage.model.snapshots.consumers import Consumer, consumer_names
from tidelake.storage.model.snapshots.tags import Tag
from tidelake.storage.model.table import TableContext


class TagsTable(MetadataTable[Tag]):
    name = "tags"
    fields: ClassVar[Sequence[pa.Field]] = (
        text("tag_name", nullable=False),
        bigint("snapshot_id", nullable=False),
        bigint("schema_id", nullable=False),
        pa.field("commit_time", TIME, nullable=False),
        bigint("record_count"),
        pa.field("create_time", TIME),
        text("time_retained"),
    )

    def items(self, at: SystemTableRead) -> Sequence[Tag]:
        tags = at.context.tags
        found = []
        for name in matching_keys(at.predicate, self.fields[0], tags.names()):
            try:
                found.append(tags.tag(name))
            except BadInput:  # another process deleted it
                continue
        return found

    def columns(self, items: Sequence[Tag], context: TableContext) -> Columns:
        return {
            "tag_name": lambda: [tag.name for tag in items],
            "snapshot_id": lambda: [tag.snapshot.id for tag in items],
            "schema_id": lambda: [tag.snapshot.schema_id for tag in items],
            "commit_time": lambda: [local_time(tag.snapshot.time_ms) for tag in items],
            "record_count": lambda: [tag.snapshot.total_record_count for tag in items],
            "create_time": lambda: pa.array([tag.created_at for tag in items], pa.timestamp("us")).cast(
                TIME, safe=False
            ),
            "time_retained": lambda: [None if tag.retained is None else iso_duration(tag.retained) for tag in items],
        }


class BranchesTable(MetadataTable[tuple[str, int]]):
    """The branches of a table.

    create_time: the time when the branch's directory was last changed.
    """

    name = "branches"
    fields: ClassVar[Sequence[pa.Field]] = (
        text("branch_name", nullable=False),
        pa.field("create_time", TIME, nullable=False),
    )

    def items(self, at: SystemTableRead) -> Sequence[tuple[str, int]]:
        entries = at.context.io.list_directory(at.context.paths.branch_directory)
        return sorted(
            (name, e.modified_ms) for e in entries if e.is_directory and (name := parse_branch_name(e.name)) is not None
        )

    def columns(self, items: Sequence[tuple[str, int]], context: TableContext) -> Columns:
        return {
            "branch_name": lambda: [name for name, _ in items],
            "create_time": lambda: [local_time(modified_ms) for _, modified_ms in items],
        }


class ConsumersTable(MetadataTable[tuple[str, int]]):
    name = "consumers"
    fields: ClassVar[Sequence[pa.Field]] = (
        text("consumer_id", nullable=False),
        bigint("next_snapshot_id", nullable=False),
    )

    def items(self, at: SystemTableRead) -> Sequence[tuple[str, int]]:
        io, paths = at.context.io, at.context.paths
        names = matching_keys(at.predicate, self.fields[0], consumer_names(io, paths))
        positions = [(name, Consumer(io, paths, name).next_snapshot_id()) for name in names]
        return [(name, position) for name, position in positions if position is not None]

    def columns(self, items: Sequence[tuple[str, int]], context: TableContext) -> Columns:
        return {
            "consumer_id": lambda: [name for name, _ in items],
            "next_snapshot_id": lambda: [position for _, position in items],
        }


def iso_duration(duration: timedelta) -> str:
    """Return a duration as Java's `Duration.toString`: PT24H, PT1H30M, PT0.5S. Hours are the largest unit."""
    sign = -1 if duration < timedelta(0) else 1
    micros = abs(duration) // timedelta(microseconds=1)
    seconds, fraction = divmod(micros, 10**6)
    parts = []
    if hours := seconds // 3600:
        parts.append(f"{sign * hours}H")
    if minutes := seconds // 60 % 60:
        parts.append(f"{sign * minutes}M")
    if (rest := seconds % 60) or fraction or not parts:
        digits = f".{fraction:06d}".rstrip("0") if fraction else ""
        parts.append(f"{'-' if sign < 0 else ''}{rest}{digits}S")
    return "PT" + "".join(parts)
