"""Procedures that repair catalogs and tables, merge manifests and copy tables. They run in the driver.

`UNSUPPORTED_PROCEDURES` names the procedures of Paimon that are refused, and why: paimon-spark offers them for the same
warehouse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelake.catalog import open_catalog
from tidelake.compaction.manifest_compaction import ManifestCompaction

Options = Mapping[str, str] | None


class EarliestSnapshots(NamedTuple):
    previous_earliest_snapshot_id: int
    current_earliest_snapshot_id: int


def compact_manifest(
    table: str, warehouse: str, *, options: Options = None, dry_run: bool = False, catalog_options: Options = None
) -> ManifestCompaction:
    """Merge the table's manifests. Commits merge them, too, but later.

    options: of the table, such as `manifest.target-file-size`
    dry_run: only count them
    """
    opened = open_catalog(warehouse, **(catalog_options or {})).table(table, options or {})
    return opened.compact_manifests(dry_run=dry_run)


def repair(warehouse: str, *, database_or_table: str = "", catalog_options: Options = None) -> list[str]:
    """Update the entries of a catalog with entries (jdbc, hive) from the files in its warehouse.

    database_or_table: one or more, separated by commas. Default: the whole warehouse

    Returns the tables whose entries changed. See `Catalog.repair`.
    """
    catalog = open_catalog(warehouse, **(catalog_options or {}))
    names: list[str | None] = [name.strip() for name in database_or_table.split(",") if name.strip()]
    return [table for name in names or [None] for table in catalog.repair(name)]


def repair_earliest_snapshot(
    table: str, warehouse: str, snapshot_id: int, *, catalog_options: Options = None
) -> EarliestSnapshots:
    """Make this snapshot the earliest one, after files of earlier ones were lost.

    See `Table.repair_earliest_snapshot`.
    """
    opened = open_catalog(warehouse, **(catalog_options or {})).table(table)
    return EarliestSnapshots(opened.repair_earliest_snapshot(snapshot_id), snapshot_id)


def remove_unexisting_manifests(table: str, warehouse: str, *, catalog_options: Options = None) -> list[str]:
    """Remove lost manifests from the latest snapshot; call `remove_unexisting_files` next. Returns their names."""
    return open_catalog(warehouse, **(catalog_options or {})).table(table).remove_missing_manifests()


def copy(source_table: str, target_table: str, warehouse: str, *, catalog_options: Options = None) -> None:
    """Create a table with the files and the schema of the source's latest snapshot. See `Catalog.clone_table`."""
    catalog = open_catalog(warehouse, **(catalog_options or {}))
    catalog.clone_table(catalog.table(source_table), target_table)


_ROW_IDS: Final = "this release never changes the row ids of data-evolution tables"
_INDEX: Final = "this release neither writes nor reads global indexes"
_FUNCTION: Final = "only engines with their own SQL have functions"
_CHAIN: Final = "this release can't write chain tables"

UNSUPPORTED_PROCEDURES: Final[Mapping[str, str]] = {
    "alter_function": _FUNCTION,
    "alter_view_dialect": "a view is created with all its dialects: drop it, and create it again (Catalog.create_view)",
    "compact_chain_table": _CHAIN,
    "create_function": _FUNCTION,
    "create_global_index": _INDEX,
    "drop_function": _FUNCTION,
    "drop_global_index": _INDEX,
    "materialize_deletion_vectors": f"{_ROW_IDS}; for other tables, a full compaction removes deleted rows",
    "reassign_row_id": _ROW_IDS,
    "refresh_object_table": "this release can't write object tables",
}
