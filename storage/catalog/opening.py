"""From a warehouse's address to its catalog."""

from __future__ import annotations

from collections.abc import Mapping

from storage.catalog.filesystem import FileSystemCatalog
from storage.errors import BadInput, UnsupportedFeature
from storage.fileio import open_file_io


def open_catalog(warehouse: str, options: Mapping[str, str] | None = None) -> FileSystemCatalog:
    """warehouse: a path, or a URI such as `s3://bucket/lake`. options: the store's, and `metastore`.

    Raises BadInput for a warehouse without a name, UnsupportedFeature for another metastore than the file system.
    """
    if not warehouse.strip():
        raise BadInput("the warehouse is blank; name a directory, or a URI such as s3://bucket/lake")
    of_store = dict(options or {})
    metastore = of_store.pop("metastore", "filesystem")
    if metastore != "filesystem":
        raise UnsupportedFeature(
            f"metastore = {metastore}", "only the file system catalog exists so far", "Leave metastore out"
        )
    return FileSystemCatalog(open_file_io(warehouse, of_store), warehouse)
