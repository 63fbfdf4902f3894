"""From a warehouse's address to its catalog."""

from __future__ import annotations

from collections.abc import Mapping

from storage.arguments import check_file_name, check_text
from storage.catalog.filesystem import FileSystemCatalog
from storage.catalog.options import CatalogOptions
from storage.errors import BadInput
from storage.fileio import FileIO, open_file_io
from storage.fileio.location import absolute


def open_catalog(
    warehouse: str, options: Mapping[str, str] | None = None, io: FileIO | None = None
) -> FileSystemCatalog:
    """warehouse: a path, or a URI such as `s3://bucket/lake`.
    options: the catalog's (`metastore`, `table-default.…`) and the store's (`s3.endpoint`).
    io: in place of the store that they name.

    Raises BadInput for a warehouse without a name and for options there are none of, UnsupportedFeature for what this
    release lacks: another metastore than the file system, locks.
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
    return FileSystemCatalog(
        store, warehouse, table_defaults=given.table_defaults, options={"warehouse": warehouse, **(options or {})}
    )
