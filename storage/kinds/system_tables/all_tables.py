"""System tables about a warehouse: `sys.tables`, `sys.partitions`, `sys.all_table_options`, `sys.catalog_options`.

Source: Java `table/system/AllTablesTable.java`, `AllPartitionsTable.java`, `AllTableOptionsTable.java`,
`CatalogOptionsTable.java`, `catalog/CatalogUtils.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.kinds.system_tables.metadata_table import Columns, Item, MetadataTable, bigint, text
from tidelake.storage.kinds.system_tables.partitions import FileTotals, partitions_read
from tidelake.storage.kinds.system_tables.system_table import SystemTable, SystemTableRead
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.options.catalog_values import CatalogValues
from tidelake.storage.model.paths import parse_partition_path
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.fallback_branch import fallback_branch


class WarehouseTable(MetadataTable[Item]):
    """A system table about all tables of a warehouse.

    context: the location of the warehouse and the name of this system table. It has no columns.
    tables: opens every table of every database.
    catalog_options: the options that the catalog was opened with.
    """

    def __init__(
        self,
        context: TableContext,
        tables: Callable[[], Iterator[TableContext]],
        catalog_options: Mapping[str, str],
    ) -> None:
        super().__init__(context)
        self.tables = tables
        self.catalog_options = catalog_options


class AllTables(WarehouseTable[TableContext]):
    """All tables of the warehouse.

    The columns about creation and counts are null, as only some catalogs of Java keep them.
    """

    name = "tables"
    fields: ClassVar[Sequence[pa.Field]] = (
        text("database_name"),
        text("table_name"),
        text("table_type"),
        pa.field("partitioned", pa.bool_()),
        pa.field("primary_key", pa.bool_()),
        text("owner"),
        bigint("created_at"),
        text("created_by"),
        bigint("updated_at"),
        text("updated_by"),
        bigint("record_count"),
        bigint("file_size_in_bytes"),
        bigint("file_count"),
        bigint("last_file_creation_time"),
    )

    def items(self, at: SystemTableRead) -> Sequence[TableContext]:
        return list(self.tables())

    def columns(self, items: Sequence[TableContext], context: TableContext) -> Columns:
        return {
            **{field.name: lambda: [None] * len(items) for field in self.fields},
            "database_name": lambda: [_names(table)[0] for table in items],
            "table_name": lambda: [_names(table)[1] for table in items],
            "table_type": lambda: [table.options.get("type", "table") for table in items],
            "partitioned": lambda: [bool(table.schema.partition_keys) for table in items],
            "primary_key": lambda: [table.schema.has_primary_key for table in items],
            "owner": lambda: [table.options.get("owner") for table in items],
        }


class AllPartitions(WarehouseTable[tuple[TableContext, FileTotals]]):
    """The partitions of all partitioned tables."""

    name = "partitions"
    fields: ClassVar[Sequence[pa.Field]] = (
        text("database_name"),
        text("table_name"),
        text("partition_name"),
        bigint("record_count"),
        bigint("file_size_in_bytes"),
        bigint("file_count"),
        bigint("last_file_creation_time"),
        pa.field("done", pa.bool_()),
    )

    def items(self, at: SystemTableRead) -> Sequence[tuple[TableContext, FileTotals]]:
        partitioned = (table for table in self.tables() if table.schema.partition_keys)
        return [(table, of_one) for table in partitioned for of_one in _partitions_of(table)]

    def columns(self, items: Sequence[tuple[TableContext, FileTotals]], context: TableContext) -> Columns:
        return {
            "database_name": lambda: [_names(table)[0] for table, _ in items],
            "table_name": lambda: [_names(table)[1] for table, _ in items],
            "partition_name": lambda: [_stored_name(table, of_one.partition) for table, of_one in items],
            "record_count": lambda: [of_one.row_count for _, of_one in items],
            "file_size_in_bytes": lambda: [of_one.size_bytes for _, of_one in items],
            "file_count": lambda: [of_one.file_count for _, of_one in items],
            "last_file_creation_time": lambda: [of_one.updated_epoch_ms for _, of_one in items],
            "done": lambda: [False] * len(items),
        }


class AllTableOptions(WarehouseTable[tuple[TableContext, str, str]]):
    """The options of all tables as they are stored, and the location of each table as `path`."""

    name = "all_table_options"
    fields: ClassVar[Sequence[pa.Field]] = (
        text("database_name"),
        text("table_name"),
        text("key"),
        text("value"),
    )

    def items(self, at: SystemTableRead) -> Sequence[tuple[TableContext, str, str]]:
        options = ((table, {**table.options, "path": table.location}) for table in self.tables())
        return [(table, key, value) for table, of_table in options for key, value in of_table.items()]

    def columns(self, items: Sequence[tuple[TableContext, str, str]], context: TableContext) -> Columns:
        return {
            "database_name": lambda: [_names(table)[0] for table, _, _ in items],
            "table_name": lambda: [_names(table)[1] for table, _, _ in items],
            "key": lambda: [key for _, key, _ in items],
            "value": lambda: [value for _, _, value in items],
        }


class CatalogOptionsTable(WarehouseTable[tuple[str, str]]):
    """The catalog's options. Needs catalog option `catalog-options-table.enabled`, as options may hold secrets."""

    name = "catalog_options"
    fields: ClassVar[Sequence[pa.Field]] = (text("key", nullable=False), text("value", nullable=False))

    def items(self, at: SystemTableRead) -> Sequence[tuple[str, str]]:
        return list(self.catalog_options.items())

    def columns(self, items: Sequence[tuple[str, str]], context: TableContext) -> Columns:
        return {"key": lambda: [key for key, _ in items], "value": lambda: [value for _, value in items]}


_WAREHOUSE_TABLES: Final[Mapping[str, type[WarehouseTable]]] = {  # type: ignore[type-arg]
    table.name: table for table in (AllTables, AllPartitions, AllTableOptions, CatalogOptionsTable)
}
_ALIASES: Final = {"all_tables": AllTables.name, "all_partitions": AllPartitions.name}
_ENABLED: Final = "catalog-options-table.enabled"


def warehouse_table(
    context: TableContext,
    name: str,
    tables: Callable[[], Iterator[TableContext]],
    catalog_options: Mapping[str, str],
) -> SystemTable:
    """Return a system table about the warehouse. The parameters are those of WarehouseTable.

    name: without `sys.`. `all_tables` is the same as `tables`, `all_partitions` the same as `partitions`.
    """
    lower = name.lower()
    found = _WAREHOUSE_TABLES.get(_ALIASES.get(lower, lower))
    if found is None:
        available = ", ".join(f"sys.{known}" for known in _WAREHOUSE_TABLES)
        raise BadInput(f"no table sys.{name}; there are {available}{did_you_mean(name, _WAREHOUSE_TABLES)}")
    if found is CatalogOptionsTable and not CatalogValues(catalog_options).shows_catalog_options:
        raise BadInput(f"sys.{name} may show secrets; open the catalog with option {_ENABLED} = true to read it")
    return found(context, tables, catalog_options)


def _names(table: TableContext) -> tuple[str, str]:
    database, _, name = table.name.partition(".")
    return database, name


def _stored_name(table: TableContext, partition: bytes) -> str:
    """Return a partition's name as in its directory, but unescaped: `dt=19857` with `partition.legacy-name`."""
    spec = parse_partition_path(partition_directory(table, partition))
    return "/".join(f"{name}={value}" for name, value in spec.items())


def _partitions_of(table: TableContext) -> list[FileTotals]:
    latest = table.snapshots.latest()
    return partitions_read(table, latest, fallback_branch(table, latest))
