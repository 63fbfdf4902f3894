"""From a warehouse's address to its catalog."""

from __future__ import annotations

from collections.abc import Mapping

from storage.arguments import check_file_name, check_text
from storage.catalog.filesystem import FileSystemCatalog
from storage.catalog.jdbc.address import check_sqlalchemy
from storage.catalog.options import CatalogOptions
from storage.errors import BadInput
from storage.fileio import FileIO, open_file_io
from storage.fileio.location import absolute, scheme_of
from storage.fileio.stores import REMOTE_SCHEMES


def open_catalog(
    warehouse: str, options: Mapping[str, str] | None = None, io: FileIO | None = None
) -> FileSystemCatalog:
    """warehouse: a path, or a URI such as `s3://bucket/lake`.
    options: the catalog's (`metastore`, `table-default.…`) and the store's (`s3.endpoint`).
    io: in place of the store that they name.

    Raises BadInput for a warehouse without a name and for options there are none of, UnsupportedFeature for what this
    release lacks: another metastore than the file system and a database, locks without one.
    """
    if not warehouse.strip():
        raise BadInput("the warehouse is blank; name a directory, or a URI such as s3://bucket/lake")
    check_text("the warehouse", warehouse)
    for part in filter(None, warehouse.split("/")):
        check_file_name("the warehouse: a directory in it,", part)
    given = CatalogOptions.of(options or {})
    other = given.own.get("warehouse", warehouse)
    if absolute(other).rstrip("/") != absolute(warehouse).rstrip("/"):
        raise BadInput(f"catalog option warehouse = {other!r}, but {warehouse!r} is to be opened; name it once")
    store = io or open_file_io(warehouse, given.store)
    shown = {"warehouse": warehouse, **(options or {})}
    if given.own.get("metastore", "filesystem").strip().lower() == "jdbc":
        return _jdbc_catalog(store, warehouse, given, shown)
    return FileSystemCatalog(store, warehouse, table_defaults=given.table_defaults, options=shown)


def _jdbc_catalog(store: FileIO, warehouse: str, given: CatalogOptions, shown: Mapping[str, str]) -> FileSystemCatalog:
    check_sqlalchemy()
    from storage.catalog.jdbc.catalog import JdbcCatalog, JdbcSettings  # noqa: PLC0415  # it needs sqlalchemy

    settings = JdbcSettings.of(given.own, is_object_store=scheme_of(warehouse) in REMOTE_SCHEMES)
    return JdbcCatalog(store, warehouse, settings, table_defaults=given.table_defaults, options=shown)
