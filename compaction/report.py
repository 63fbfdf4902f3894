"""What a compaction job did."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from storage.binary_row import decode_rows
from storage.errors import TidelakeError
from storage.files.bucket_directory import partition_directory
from storage.table import TableContext
from storage.types.json_values import json_values
from storage.write.bucket_router import BucketKey
from storage.write.compactor import CompactResult


@dataclass(frozen=True, slots=True)
class BucketCompaction:
    """One compaction that is in the table now.

    reason: why it was picked
    partition: its values by column, as JSON holds them; {} for an unpartitioned table
    directory: where it is in the table, `dt=19857/hour=7` or "": dates and nulls look different there, and some
        characters are escaped
    files_before, files_after, bytes_before, bytes_after: of what it took and what took their place
    files_written: of the latter, those that are new; others only changed their level
    """

    partition: dict[str, Any]
    directory: str
    bucket: int
    reason: str
    files_before: int
    files_after: int
    files_written: int
    bytes_before: int
    bytes_after: int

    def to_members(self) -> dict[str, Any]:
        """The report as members, for JSON and log lines."""
        return asdict(self)

    @classmethod
    def of(cls, context: TableContext, key: BucketKey, result: CompactResult) -> BucketCompaction:
        return cls(
            _partition_values(context, key.partition),
            partition_directory(context, key.partition),
            key.bucket,
            str(result.reason),
            len(result.before),
            len(result.after),
            len(result.new_files) - len(result.tombstones),
            sum(file.file_size for file in result.before),
            sum(file.file_size for file in result.after),
        )


def _partition_values(context: TableContext, partition: bytes) -> dict[str, Any]:
    fields = context.schema.partition_fields
    columns = decode_rows([partition], [field.type for field in fields]) if fields else []
    return {field.name: json_values(column)[0] for field, column in zip(fields, columns, strict=True)}


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """The report of a compaction of one table.

    planned_snapshot_id: the snapshot that was planned last; None for a table without any
    snapshot_ids: those it made
    lost: compactions thrown away because another commit had touched their files
    is_cancelled: whether it was cancelled before all was done
    has_more: whether that round may have made more due
    error: a file that can't be read (its bucket was left as it was, the others were not held up), or how all was lost
    """

    table: str
    planned_snapshot_id: int | None = None
    buckets: tuple[BucketCompaction, ...] = ()
    snapshot_ids: tuple[int, ...] = ()
    lost: int = 0
    is_cancelled: bool = False
    has_more: bool = False
    error: TidelakeError | None = None

    def to_members(self) -> dict[str, Any]:
        """The report as JSON members."""
        return {
            "table": self.table,
            "snapshots": list(self.snapshot_ids),
            "lost": self.lost,
            "stopped": self.is_cancelled,
            "buckets": [one.to_members() for one in self.buckets],
        }
