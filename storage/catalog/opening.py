"""Opens a catalog by the address of its warehouse."""

from __future__ import annotations

from collections.abc import Mapping

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base.arguments import check_file_name, check_text
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.catalog.jdbc.database_address import check_sqlalchemy
from tidelake.storage.catalog.options import CACHE_OPTIONS, CatalogOptions
from tidelake.storage.fileio import FileIO, open_file_io
from tidelake.storage.fileio.location import LOCAL_SCHEME, REMOTE_SCHEMES, absolute, local_path, scheme_of
from tidelake.storage.model.options.catalog_values import CatalogValues


def open_catalog(warehouse: str, options: Mapping[str, str] | None = None, io: FileIO | None = None) -> Catalog:
    """Open a catalog.

    warehouse: a path, or a URI such as `s3://bucket/lake`.
    options: options of the catalog (`metastore`, `table-default.…`) and of the store (`s3.endpoint`).
    io: the file access to use, instead of the store that warehouse and options name.

    Raises BadInput for a blank warehouse and for unknown options. Raises UnsupportedFeature for what this release does
    not support: another kind of metastore, or locks in a catalog without locks.
    """
    if not warehouse.strip():
        raise BadInput("the warehouse is blank; name a directory, or a URI such as s3://bucket/lake")
    check_text("the warehouse", warehouse)
    for part in filter(None, warehouse.split("/")):
        check_file_name("the warehouse: a directory in it,", part)
    given = CatalogOptions.of(options or {})
    metastore = given.own.metastore
    shown = {"warehouse": warehouse, **(options or {})}
    if metastore == "rest":
        return _rest_catalog(warehouse, given, shown, io)
    other = given.own.get("warehouse", warehouse)
    if absolute(other).rstrip("/") != absolute(warehouse).rstrip("/"):
        raise BadInput(f"catalog option warehouse = {other!r}, but {warehouse!r} is opened; name the warehouse once")
    if scheme_of(warehouse) not in REMOTE_SCHEMES and (wanted := sorted(CACHE_OPTIONS & given.store.keys())):
        raise UnsupportedFeature(
            f"catalog option {wanted[0]} for {warehouse}",
            "only files in object stores are kept on a local disk",
            "Leave it out",
        )
    store = io or open_file_io(warehouse, given.store)
    if metastore == "jdbc":
        return _jdbc_catalog(store, warehouse, given, shown)
    if metastore == "hive":
        return _hive_catalog(store, warehouse, given, shown)
    return FileSystemCatalog(store, warehouse, table_defaults=given.table_defaults, options=shown)


def check_holds_files(warehouse: str, options: Mapping[str, str]) -> None:
    """Check that the warehouse is a location where a caller, such as a pipeline, can store its own files.

    Raises UnsupportedFeature if the warehouse is only a server's name for a catalog.
    """
    is_named = CatalogValues(options).metastore == "rest"
    if is_named and scheme_of(warehouse) == LOCAL_SCHEME and not local_path(warehouse).startswith("/"):
        raise UnsupportedFeature(
            f"warehouse {warehouse!r} of a REST catalog",
            "a pipeline stores files in the warehouse, but this is not a location",
            "Use a path or URI that the server also accepts as the name of the catalog",
        )


def _rest_catalog(warehouse: str, given: CatalogOptions, shown: Mapping[str, str], io: FileIO | None) -> Catalog:
    from tidelake.storage.catalog.rest.rest_catalog import RestCatalog  # noqa: PLC0415  # its HTTP client takes 3 MiB
    from tidelake.storage.catalog.rest.rest_client import RestClient  # noqa: PLC0415

    return RestCatalog(
        RestClient.of(given.own),
        warehouse,
        store_options=given.store,
        table_defaults=given.table_defaults,
        options=shown,
        io=io,
    )


def _jdbc_catalog(store: FileIO, warehouse: str, given: CatalogOptions, shown: Mapping[str, str]) -> Catalog:
    check_sqlalchemy()
    from tidelake.storage.catalog.jdbc.jdbc_catalog import JdbcCatalog, JdbcSettings  # noqa: PLC0415  # it needs sqlalchemy

    settings = JdbcSettings.of(given.own, is_object_store=scheme_of(warehouse) in REMOTE_SCHEMES)
    return JdbcCatalog(store, warehouse, settings, table_defaults=given.table_defaults, options=shown)


def _hive_catalog(store: FileIO, warehouse: str, given: CatalogOptions, shown: Mapping[str, str]) -> Catalog:
    from tidelake.storage.catalog.hive.metastore_client import check_pymetastore  # noqa: PLC0415  # its parser of XML takes 1 MiB

    check_pymetastore()
    from tidelake.storage.catalog.hive.hive_catalog import HiveCatalog  # noqa: PLC0415  # it needs pymetastore
    from tidelake.storage.catalog.hive.hive_settings import HiveSettings  # noqa: PLC0415

    settings = HiveSettings.of(given.own, is_object_store=scheme_of(warehouse) in REMOTE_SCHEMES)
    return HiveCatalog(store, warehouse, settings, table_defaults=given.table_defaults, options=shown)
