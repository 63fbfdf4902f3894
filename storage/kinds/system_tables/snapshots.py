"""`t$snapshots`: one row per snapshot that exists. `t$statistics`: the statistics that an analysis counted.

Source: Java `table/system/SnapshotsTable.java`, `table/system/StatisticTable.java`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from tidelake.errors import CorruptFile
from tidelake.storage.base.pretty_json import pretty_json
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
from tidelake.storage.model.snapshots.snapshot import Snapshot, parse_json_object
from tidelake.storage.model.table import TableContext


class SnapshotsTable(MetadataTable[Snapshot]):
    name = "snapshots"
    fields: ClassVar[Sequence[pa.Field]] = (
        bigint("snapshot_id", nullable=False),
        bigint("schema_id", nullable=False),
        text("commit_user", nullable=False),
        bigint("commit_identifier", nullable=False),
        text("commit_kind", nullable=False),
        pa.field("commit_time", TIME, nullable=False),
        text("base_manifest_list", nullable=False),
        text("delta_manifest_list", nullable=False),
        text("changelog_manifest_list"),
        bigint("total_record_count"),
        bigint("delta_record_count"),
        bigint("changelog_record_count"),
        bigint("watermark"),
        bigint("next_row_id"),
        text("operation"),
        text("writer_version"),
    )

    def items(self, at: SystemTableRead) -> Sequence[Snapshot]:
        store = at.context.snapshots
        ids = matching_keys(at.predicate, self.fields[0], store.ids())
        return [snapshot for snapshot_id in ids if (snapshot := store.find(snapshot_id)) is not None]

    def columns(self, items: Sequence[Snapshot], context: TableContext) -> Columns:
        makers = {field.name: _attribute(items, field.name) for field in self.fields}
        return {
            **makers,
            "snapshot_id": _attribute(items, "id"),
            "commit_time": lambda: [local_time(snapshot.time_ms) for snapshot in items],
            "commit_kind": lambda: [str(snapshot.commit_kind.value) for snapshot in items],
        }


def _attribute(items: Sequence[Any], name: str) -> Any:
    return lambda: [getattr(item, name) for item in items]


class StatisticsTable(MetadataTable[Mapping[str, Any]]):
    name = "statistics"
    fields: ClassVar[Sequence[pa.Field]] = (
        bigint("snapshot_id", nullable=False),
        bigint("schema_id", nullable=False),
        bigint("mergedRecordCount"),
        bigint("mergedRecordSize"),
        text("colstat"),
    )

    def items(self, at: SystemTableRead) -> Sequence[Mapping[str, Any]]:
        if at.snapshot is None or at.snapshot.statistics is None:
            return []
        path = at.context.paths.statistics(at.snapshot.statistics)
        try:
            data = at.context.io.read(path)
        except FileNotFoundError:
            raise CorruptFile(path, "statistics that a snapshot references", "no file") from None
        members = parse_json_object(data, path, "statistics")
        if missing := {"snapshotId", "schemaId"} - members.keys():
            raise CorruptFile(path, "the JSON of statistics", f"no {sorted(missing)[0]}")
        return [members]

    def columns(self, items: Sequence[Mapping[str, Any]], context: TableContext) -> Columns:
        return {
            "snapshot_id": lambda: [item["snapshotId"] for item in items],
            "schema_id": lambda: [item["schemaId"] for item in items],
            "mergedRecordCount": lambda: [item.get("mergedRecordCount") for item in items],
            "mergedRecordSize": lambda: [item.get("mergedRecordSize") for item in items],
            "colstat": lambda: [pretty_json(item.get("colStats") or {}) for item in items],
        }
