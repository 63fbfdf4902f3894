"""Which system tables there are, by name.

Source: Java `table/system/SystemTableLoader.java`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from storage.errors import UnsupportedFeature
from storage.messages.suggestions import did_you_mean
from storage.system_tables.audit_log import AuditLog
from storage.system_tables.base import SystemTable
from storage.system_tables.binlog import Binlog
from storage.system_tables.read_optimized import ReadOptimized
from storage.table import TableContext

SYSTEM_TABLES: Final[Mapping[str, type[SystemTable]]] = {
    table.name: table for table in (AuditLog, Binlog, ReadOptimized)
}


def system_table(context: TableContext, name: str) -> SystemTable:
    """Raises UnsupportedFeature for one that is not here."""
    found = SYSTEM_TABLES.get(name)
    if found is None:
        raise UnsupportedFeature(
            f"{context.name}${name}",
            f"of system tables, {', '.join(SYSTEM_TABLES)} can be read{did_you_mean(name, SYSTEM_TABLES)}",
            f"Open {context.name} and ask it: snapshots(), tags(), options, schema",
        )
    return found(context)
