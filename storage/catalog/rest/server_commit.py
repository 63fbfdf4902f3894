"""Commits snapshots through a REST catalog's server, which decides about the commit and writes the snapshot file.

Source: Java `rest/RESTCatalog.java` (commitSnapshot), `rest/requests/CommitTableRequest.java`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tidelake.errors import AccessDenied, CommitConflict
from tidelake.storage.catalog.rest.rest_client import Refused, RestClient
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.model.paths import parse_partition_path
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.snapshot_commit import PartitionStatistics, Statistics
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class ServerCommits:
    """Makes the snapshot commits of one table, or of a branch.

    object_name: the name of the table or branch: `orders`, `orders$branch_dev`.
    table_id: the server's id of the table. The server refuses the commit if another table has this name by now.
    """

    client: RestClient
    database: str
    object_name: str
    table_id: str
    keeps_partitions: ClassVar[bool] = True  # the server updates them from the statistics of each commit

    def __call__(self, context: TableContext) -> ServerCommit:
        return ServerCommit(self, context)


class ServerCommit:
    """A `SnapshotCommit` that asks the server to commit."""

    def __init__(self, table: ServerCommits, context: TableContext) -> None:
        self._table = table
        self._context = context

    def commit(self, base: Snapshot | None, snapshot: Snapshot, statistics: Statistics) -> bool:
        table = self._table
        body = {
            "tableId": table.table_id,
            "baseSnapshotUuid": None if base is None else base.uuid,
            "snapshot": snapshot.to_members(),
            "statistics": [self._statistics(found) for found in statistics()],
        }
        try:
            answer = table.client.post(body, "databases", table.database, "tables", table.object_name, "commit")
        except AccessDenied as e:
            raise CommitConflict(
                f"{self._context.name}: the catalog's token doesn't allow this commit, nothing was published: {e}"
            ) from e
        except Refused as e:
            raise CommitConflict(
                f"{self._context.name}: the catalog refused the commit, nothing was published: {e}. Open the table and "
                "write again"
            ) from e
        return bool(answer.get("success"))

    def is_committed(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        """Return True always: the server only shows committed snapshots."""
        return True

    def _statistics(self, found: PartitionStatistics) -> dict[str, Any]:
        path = partition_directory(self._context, found.partition) if self._context.schema.partition_keys else ""
        return {
            "spec": parse_partition_path(path) if path else {},
            "recordCount": found.record_count,
            "fileSizeInBytes": found.file_size_bytes,
            "fileCount": found.file_count,
            "lastFileCreationTime": found.last_file_creation_time_ms or 0,
            "totalBuckets": found.total_buckets,
        }
