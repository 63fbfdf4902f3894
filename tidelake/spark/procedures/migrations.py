"""Procedures that make tables of existing files. They run in the driver: no file is rewritten."""

from __future__ import annotations

from collections.abc import Mapping

from tidelake.catalog import Catalog, open_catalog
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.migration import Migration
from tidelake.storage.catalog.identifier import Identifier

Options = Mapping[str, str] | None


def migrate_table(
    table: str,
    warehouse: str,
    *,
    target_table: str,
    source_type: str = "hive",
    options: Options = None,
    delete_origin: bool = True,
    catalog_options: Options = None,
) -> Migration:
    """Migrate a folder or a format table. See `Catalog.migrate_table`.

    table: a format table of the catalog (so also one of Hive's), or a folder
    target_table: the new table
    options: of the new table
    delete_origin: drop the entry of a format table, which is then empty
    """
    catalog = _open_hive(source_type, warehouse, catalog_options)
    done = catalog.migrate_table(table, target_table, options=options)
    _drop_origin(catalog, table, delete_origin)
    return done


def migrate_database(
    database: str,
    warehouse: str,
    *,
    target_database: str,
    source_type: str = "hive",
    options: Options = None,
    catalog_options: Options = None,
) -> list[Migration]:
    """Migrate all tables of a database. See `Catalog.migrate_database`.

    database: a database of format tables, or a folder of folders
    """
    return _open_hive(source_type, warehouse, catalog_options).migrate_database(
        database, target_database, options=options
    )


def migrate_file(
    source_table: str,
    target_table: str,
    warehouse: str,
    *,
    source_type: str = "hive",
    delete_origin: bool = True,
    catalog_options: Options = None,
) -> Migration:
    """Add files to an existing table. See `Catalog.migrate_files`.

    source_table: a format table, or a folder, whose files are added to target_table
    """
    catalog = _open_hive(source_type, warehouse, catalog_options)
    done = catalog.migrate_files(source_table, target_table)
    _drop_origin(catalog, source_table, delete_origin)
    return done


def migrate_iceberg_table(
    source_table: str,
    warehouse: str,
    *,
    iceberg_options: Mapping[str, str],
    options: Options = None,
    parallelism: int | None = None,
    catalog_options: Options = None,
) -> Migration:
    """Migrate a table of Iceberg's Hadoop catalog to a table of the same name. See `Catalog.migrate_table`.

    source_table: `db.t` in both catalogs
    iceberg_options: `metadata.iceberg.storage=hadoop-catalog` and `iceberg_warehouse`, the folder of that catalog
    options: of the new table
    parallelism: changes nothing, as no row is read

    Source: Java `flink/procedure/MigrateIcebergTableProcedure.java`,
    `iceberg/migrate/IcebergMigrateHadoopMetadata.java`.
    """
    given = dict(iceberg_options)
    storage = given.pop("metadata.iceberg.storage", None)
    if storage != "hadoop-catalog":
        raise UnsupportedFeature(
            f"migrate_iceberg_table with metadata.iceberg.storage = {storage or 'unset'}",
            "the newest metadata file is found in the folders of a Hadoop catalog only",
            "Set it to hadoop-catalog, or name the metadata file: tidelake table migrate DB.TABLE --from METADATA_FILE "
            "-w WAREHOUSE",
        )
    folder = given.pop("iceberg_warehouse", None)
    if folder is None:
        raise BadInput(
            "migrate_iceberg_table needs iceberg_warehouse=… in iceberg_options: the Hadoop catalog's folder"
        )
    if given:
        raise BadInput(
            f"migrate_iceberg_table: {', '.join(given)} is no option of iceberg_options; options of a store are those "
            "of the catalog"
        )
    catalog = open_catalog(warehouse, **(catalog_options or {}))
    source = Identifier.parse(source_table)
    location = f"{folder.rstrip('/')}/{source.database}/{source.table}"
    return catalog.migrate_table(location, source_table, options=options)


def _open_hive(source_type: str, warehouse: str, catalog_options: Options) -> Catalog:
    if source_type != "hive":
        raise UnsupportedFeature(
            f"migration of {source_type} tables",
            "only files in Hive's layout can be migrated",
            "Use source_type = hive, or call migrate_iceberg_table",
        )
    return open_catalog(warehouse, **(catalog_options or {}))


def _drop_origin(catalog: Catalog, source: str, delete_origin: bool) -> None:
    if delete_origin and "/" not in source:
        catalog.drop_table(source)
