"""`t$manifests`: the manifests of a snapshot. `t$table_indexes`: the index files of a snapshot.

Source: Java `table/system/ManifestsTable.java`, `table/system/TableIndexesTable.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa

from tidelake.storage.commit.manifests.index_manifest import IndexEntry
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.manifest_store import ListFile, ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import table_manifests
from tidelake.storage.kinds.system_tables.metadata_table import Columns, MetadataTable, bigint, text
from tidelake.storage.kinds.system_tables.row_text import sql_row_texts
from tidelake.storage.kinds.system_tables.system_table import SystemTableRead
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired


class ManifestsTable(MetadataTable[ManifestFileMeta]):
    """The manifests of the base list, of the delta list and of the changelog list."""

    name = "manifests"
    fields: ClassVar[Sequence[pa.Field]] = (
        text("file_name", nullable=False),
        bigint("file_size", nullable=False),
        bigint("num_added_files", nullable=False),
        bigint("num_deleted_files", nullable=False),
        bigint("schema_id", nullable=False),
        text("min_partition_stats"),
        text("max_partition_stats"),
        bigint("min_row_id"),
        bigint("max_row_id"),
    )

    def items(self, at: SystemTableRead) -> Sequence[ManifestFileMeta]:
        snapshot = at.snapshot
        if snapshot is None:
            return []
        store = at.context.shared(ManifestStore)
        with raise_if_snapshot_expired(at.context, snapshot.id):
            metas = table_manifests(store, snapshot)
            if snapshot.changelog_manifest_list is not None:
                changelog = ListFile(snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)
                metas = [*metas, *store.read_list(changelog)]
        return metas

    def columns(self, items: Sequence[ManifestFileMeta], context: TableContext) -> Columns:
        def bounds(rows: list[bytes]) -> pa.Array:
            return sql_row_texts(rows, context.schema.partition_fields, context.name)

        return {
            "file_name": lambda: [meta.file_name for meta in items],
            "file_size": lambda: [meta.file_size for meta in items],
            "num_added_files": lambda: [meta.num_added_files for meta in items],
            "num_deleted_files": lambda: [meta.num_deleted_files for meta in items],
            "schema_id": lambda: [meta.schema_id for meta in items],
            "min_partition_stats": lambda: bounds([meta.partition_stats.min_values for meta in items]),
            "max_partition_stats": lambda: bounds([meta.partition_stats.max_values for meta in items]),
            "min_row_id": lambda: [meta.min_row_id for meta in items],
            "max_row_id": lambda: [meta.max_row_id for meta in items],
        }


_VECTORS: Final = pa.list_(
    pa.struct(
        [
            pa.field("f0", pa.string(), nullable=False),
            pa.field("f1", pa.int32(), nullable=False),
            pa.field("f2", pa.int32(), nullable=False),
            pa.field("_CARDINALITY", pa.int64()),
        ]
    )
)


class TableIndexesTable(MetadataTable[IndexEntry]):
    """The index files of a snapshot.

    dv_ranges: offset and length of the deletion vector of each data file.
    The columns after dv_ranges are set for global indexes only.
    """

    name = "table_indexes"
    fields: ClassVar[Sequence[pa.Field]] = (
        text("partition"),
        pa.field("bucket", pa.int32(), nullable=False),
        text("index_type", nullable=False),
        text("file_name", nullable=False),
        bigint("file_size", nullable=False),
        bigint("row_count", nullable=False),
        pa.field("dv_ranges", _VECTORS),
        bigint("row_range_start"),
        bigint("row_range_end"),
        pa.field("index_field_id", pa.int32()),
        text("index_field_name"),
    )

    def items(self, at: SystemTableRead) -> Sequence[IndexEntry]:
        if at.snapshot is None:
            return []
        with raise_if_snapshot_expired(at.context, at.snapshot.id):
            return at.context.shared(ManifestStore).read_index(at.snapshot.index_manifest)

    def columns(self, items: Sequence[IndexEntry], context: TableContext) -> Columns:
        def of_global_index(member: str) -> list[Any]:
            return [None if e.file.global_index is None else e.file.global_index.get(member) for e in items]

        def column_names() -> list[str | None]:
            ids = of_global_index("_INDEX_FIELD_ID")
            return [f.name if (f := context.schema.by_id.get(number)) is not None else None for number in ids]

        return {
            "partition": lambda: sql_row_texts(
                [entry.partition for entry in items], context.schema.partition_fields, context.name
            ),
            "bucket": lambda: [entry.bucket for entry in items],
            "index_type": lambda: [entry.file.index_type for entry in items],
            "file_name": lambda: [entry.file.file_name for entry in items],
            "file_size": lambda: [entry.file.file_size for entry in items],
            "row_count": lambda: [entry.file.row_count for entry in items],
            "dv_ranges": lambda: [_vectors(entry) for entry in items],
            "row_range_start": lambda: of_global_index("_ROW_RANGE_START"),
            "row_range_end": lambda: of_global_index("_ROW_RANGE_END"),
            "index_field_id": lambda: of_global_index("_INDEX_FIELD_ID"),
            "index_field_name": column_names,
        }


def _vectors(entry: IndexEntry) -> list[dict[str, Any]] | None:
    if not entry.file.holds_deletion_vectors:
        return None
    return [
        {"f0": vector.data_file, "f1": vector.offset, "f2": vector.length, "_CARDINALITY": vector.cardinality}
        for vector in entry.file.vectors
    ]
