"""`t$partitions`: totals of the live files of each partition. `t$buckets`: totals of each bucket of each partition.

Rows are counted as they are stored in the files, without merging.

Source: Java `table/system/PartitionsTable.java`, `BucketsTable.java`, `manifest/PartitionEntry.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, TypeVar

import pyarrow as pa

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.kinds.system_tables.files import files_at
from tidelake.storage.kinds.system_tables.metadata_table import TIME, Columns, MetadataTable, bigint, text
from tidelake.storage.kinds.system_tables.row_text import sql_row_texts, sql_texts
from tidelake.storage.kinds.system_tables.system_table import SystemTableRead
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.fallback_branch import FallbackBranch

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class FileTotals:
    """Totals of the live files of one partition or of one bucket.

    updated_ms: creation time of the newest file: the wall clock of its writer, as if it were UTC. None if no file has
        one.
    total_buckets: the number of buckets in the last entry that was added.
    deleted_rows: rows marked in deletion vectors. None if a vector has no cardinality.
    """

    partition: bytes
    bucket: int
    partition_text: str = ""
    row_count: int = 0
    size_bytes: int = 0
    file_count: int = 0
    updated_ms: int | None = None
    total_buckets: int = 0
    deleted_rows: int | None = 0

    @property
    def updated_epoch_ms(self) -> int | None:
        """Return updated_ms as epoch time, if the writer's clock was in the time zone of this process."""
        if self.updated_ms is None:
            return None
        shown = datetime.fromtimestamp(self.updated_ms / 1000, UTC).replace(tzinfo=None)
        return round(shown.timestamp() * 1000)

    def add(self, entry: ManifestEntry) -> None:
        file = entry.file
        self.row_count += file.row_count
        self.size_bytes += file.file_size
        self.file_count += 1
        self.total_buckets = entry.total_buckets
        if file.creation_time_ms is not None:
            self.updated_ms = max(self.updated_ms or file.creation_time_ms, file.creation_time_ms)


def totals(entries: Iterable[ManifestEntry], key: Callable[[ManifestEntry], Key]) -> dict[Key, FileTotals]:
    found: dict[Key, FileTotals] = {}
    for entry in entries:
        of_key = key(entry)
        if of_key not in found:
            found[of_key] = FileTotals(entry.partition, entry.bucket)
        found[of_key].add(entry)
    return found


def partition_totals(context: TableContext, snapshot: Snapshot | None) -> list[FileTotals]:
    """Return the totals of each partition, sorted by its text, such as `dt=2024-05-14/hour=7`.

    The text is "" for an unpartitioned table. Rows in the postpone bucket don't count.
    """
    readable = (entry for entry in files_at(context, snapshot) if entry.bucket >= 0)
    found = totals(readable, lambda entry: entry.partition)
    if context.options.deletion_vectors_enabled and snapshot is not None:
        _count_deleted(found, context, snapshot)
    for partition, partition_text in zip(found, spec_texts(context, list(found)), strict=True):
        found[partition].partition_text = partition_text
    return sorted(found.values(), key=lambda of_one: of_one.partition_text)


def partitions_read(context: TableContext, snapshot: Snapshot | None, other: FallbackBranch | None) -> list[FileTotals]:
    """Return the totals of the partitions that a read returns, including those of the table's fallback branch."""
    found = partition_totals(context, snapshot)
    if other is None:
        return found
    others = partition_totals(other.context, other.snapshot)
    first, second = (others, found) if other.has_priority else (found, others)
    partitions = {item.partition for item in first}
    both = [*first, *(item for item in second if item.partition not in partitions)]
    return sorted(both, key=lambda item: item.partition_text)


def spec_texts(context: TableContext, partitions: Sequence[bytes]) -> list[str]:
    """Return `dt=2024-05-14/hour=7` for each serialized partition.

    Nulls and blanks become the value of option `partition.default-name`.
    """
    fields = context.schema.partition_fields
    if not fields or not partitions:
        return [""] * len(partitions)
    values = decode_rows(partitions, [field.type for field in fields])
    default = context.options.partition_default_name
    texts = [sql_texts(column, field.type).to_pylist() for column, field in zip(values, fields, strict=True)]
    names = [field.name for field in fields]
    shown = [[value if value and value.strip() else default for value in of_column] for of_column in texts]
    return [
        "/".join(f"{name}={value}" for name, value in zip(names, row, strict=True)) for row in zip(*shown, strict=True)
    ]


def _count_deleted(found: Mapping[bytes, FileTotals], context: TableContext, snapshot: Snapshot) -> None:
    for entry in context.shared(ManifestStore).read_index(snapshot.index_manifest):
        of_partition = found.get(entry.partition)
        if of_partition is None or of_partition.deleted_rows is None:
            continue
        counts = [vector.cardinality for vector in entry.file.vectors]
        known = [count for count in counts if count is not None]
        of_partition.deleted_rows = of_partition.deleted_rows + sum(known) if len(known) == len(counts) else None


class PartitionsTable(MetadataTable[FileTotals]):
    """The partitions of a snapshot.

    created_at, created_by, updated_by, options: always null, as only some catalogs of Java keep them.
    done: always false, for the same reason.
    """

    name = "partitions"
    fields: ClassVar[Sequence[pa.Field]] = (
        text("partition"),
        bigint("record_count", nullable=False),
        bigint("file_size_in_bytes", nullable=False),
        bigint("file_count", nullable=False),
        pa.field("last_update_time", TIME),
        pa.field("created_at", TIME),
        text("created_by"),
        text("updated_by"),
        text("options"),
        pa.field("total_buckets", pa.int32(), nullable=False),
        pa.field("done", pa.bool_(), nullable=False),
        bigint("deleted_record_count"),
    )

    def items(self, at: SystemTableRead) -> Sequence[FileTotals]:
        return partitions_read(at.context, at.snapshot, at.other)

    def columns(self, items: Sequence[FileTotals], context: TableContext) -> Columns:
        unknown = [None] * len(items)
        return {
            "partition": lambda: [item.partition_text for item in items],
            **_counts(items),
            "created_at": lambda: unknown,
            "created_by": lambda: unknown,
            "updated_by": lambda: unknown,
            "options": lambda: unknown,
            "total_buckets": lambda: [item.total_buckets for item in items],
            "done": lambda: [False] * len(items),
            "deleted_record_count": lambda: [item.deleted_rows for item in items],
        }


class BucketsTable(MetadataTable[FileTotals]):
    name = "buckets"
    fields: ClassVar[Sequence[pa.Field]] = (
        text("partition"),
        pa.field("bucket", pa.int32(), nullable=False),
        bigint("record_count", nullable=False),
        bigint("file_size_in_bytes", nullable=False),
        bigint("file_count", nullable=False),
        pa.field("last_update_time", TIME),
    )

    def items(self, at: SystemTableRead) -> Sequence[FileTotals]:
        context = at.context
        found = list(totals(files_at(context, at.snapshot), lambda entry: entry.bucket_id).values())
        texts = sql_row_texts([item.partition for item in found], context.schema.partition_fields, context.name)
        for item, partition_text in zip(found, texts.to_pylist(), strict=True):
            item.partition_text = partition_text
        return sorted(found, key=lambda item: (item.partition_text, item.bucket))

    def columns(self, items: Sequence[FileTotals], context: TableContext) -> Columns:
        return {
            "partition": lambda: [item.partition_text for item in items],
            "bucket": lambda: [item.bucket for item in items],
            **_counts(items),
        }


def _counts(items: Sequence[FileTotals]) -> Columns:
    return {
        "record_count": lambda: [item.row_count for item in items],
        "file_size_in_bytes": lambda: [item.size_bytes for item in items],
        "file_count": lambda: [item.file_count for item in items],
        "last_update_time": lambda: [item.updated_ms for item in items],
    }
