"""The report of a compaction job."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tidelake.errors import TidelakeError
from tidelake.storage.commit.commit_increment import CompactResult
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.json_values import json_values


@dataclass(frozen=True, slots=True)
class BucketCompaction:
    """One compaction that was committed.

    reason: why it was picked
    partition: the partition's values by column, as JSON values; {} for an unpartitioned table
    directory: the partition's directory, `dt=19857/hour=7` or "". There, dates and nulls have another form, and some
        characters are escaped
    files_before: the number of input files
    files_after: the number of files that replaced them
    bytes_before: the size of the input files
    bytes_after: the size of the files that replaced them
    files_written: the number of new files among those; the others only changed their level
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
        """Return the report as members, for JSON and log lines."""
        return asdict(self)

    @classmethod
    def of(cls, context: TableContext, key: BucketId, result: CompactResult) -> BucketCompaction:
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

    planned_snapshot_id: the snapshot that was planned last; None for a table without snapshots
    snapshot_ids: the snapshots that the job committed
    lost: the number of compactions discarded because another commit had changed their files
    is_cancelled: whether it was cancelled before everything was done
    has_more: whether that round may have made more compactions due
    error: a file that can't be read (its bucket was not compacted, the others were), or why everything was lost
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
        """Return the report as JSON members."""
        return {
            "table": self.table,
            "snapshots": list(self.snapshot_ids),
            "lost": self.lost,
            "stopped": self.is_cancelled,
            "buckets": [one.to_members() for one in self.buckets],
        }
