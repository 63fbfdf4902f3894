"""All system tables, by name.

Source: Java `table/system/SystemTableLoader.java`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidelake.errors import UnsupportedFeature
from tidelake.storage.kinds.system_tables.audit_log import AuditLog
from tidelake.storage.kinds.system_tables.binlog import Binlog
from tidelake.storage.kinds.system_tables.files import FileKeyRanges, FilesTable
from tidelake.storage.kinds.system_tables.manifests import ManifestsTable, TableIndexesTable
from tidelake.storage.kinds.system_tables.partitions import BucketsTable, PartitionsTable
from tidelake.storage.kinds.system_tables.read_optimized import ReadOptimized
from tidelake.storage.kinds.system_tables.references import BranchesTable, ConsumersTable, TagsTable
from tidelake.storage.kinds.system_tables.row_tracking import RowTracking
from tidelake.storage.kinds.system_tables.schemas import AggregationFieldsTable, OptionsTable, SchemasTable
from tidelake.storage.kinds.system_tables.snapshots import SnapshotsTable, StatisticsTable
from tidelake.storage.kinds.system_tables.system_table import SystemTable
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.table import TableContext

_TABLES: Final[Sequence[type[SystemTable]]] = (
    *(AuditLog, Binlog, ReadOptimized, RowTracking),
    *(SnapshotsTable, SchemasTable, OptionsTable, AggregationFieldsTable, StatisticsTable),
    *(FilesTable, FileKeyRanges, PartitionsTable, BucketsTable),
    *(ManifestsTable, TableIndexesTable, TagsTable, BranchesTable, ConsumersTable),
)
SYSTEM_TABLES: Final[Mapping[str, type[SystemTable]]] = {table.name: table for table in _TABLES}


def system_table(context: TableContext, name: str) -> SystemTable:
    """Return a system table by its name. Raises UnsupportedFeature if it is not supported."""
    found = SYSTEM_TABLES.get(name.lower())
    if found is None:
        raise UnsupportedFeature(
            f"{context.name}${name}",
            f"of system tables, {', '.join(SYSTEM_TABLES)} can be read{did_you_mean(name, SYSTEM_TABLES)}",
            "Name one of these",
        )
    return found(context)
