"""The directory of a table's Iceberg metadata: one metadata file per version, and the hint that names the newest.

Source: Java `iceberg/IcebergPathFactory.java`, `IcebergCommitCallback.catalogTableMetadataPath`; Iceberg's
`HadoopTableOperations`.
"""

from __future__ import annotations

import re
from typing import Final

from tidelake.errors import CorruptFile, UnsupportedFeature
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.iceberg.table_metadata import IcebergMetadata
from tidelake.storage.model.options.iceberg_options import MetadataLocation
from tidelake.storage.model.table import TableContext

METADATA: Final = "/metadata"  # last part of the path
_HINT: Final = "version-hint.text"
_METADATA_FILE: Final = re.compile(r"v(\d+)\.metadata\.json")
_DATABASE_SUFFIX: Final = ".db"


def metadata_directory(context: TableContext) -> str:
    """Return the directory. Raises UnsupportedFeature if the table is not in a warehouse, where it would have to be."""
    if context.options.iceberg_metadata_location is MetadataLocation.TABLE:
        return context.location + METADATA
    database_path, _, table = context.location.rpartition("/")
    warehouse, _, database = database_path.rpartition("/")
    if not database.endswith(_DATABASE_SUFFIX) or database == _DATABASE_SUFFIX:
        raise UnsupportedFeature(
            f"{context.name}: option metadata.iceberg.storage-location = catalog-location",
            f"the table's database is {database_path}, not a folder NAME{_DATABASE_SUFFIX} of a warehouse",
            "Set metadata.iceberg.storage-location = table-location",
        )
    return f"{warehouse}/iceberg/{database.removesuffix(_DATABASE_SUFFIX)}/{table}{METADATA}"


class MetadataDirectory:
    """The metadata files of one table, by version."""

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self.path = path
        self._known: tuple[bytes, IcebergMetadata | None] = (b"", None)  # the last file that was read or written

    def metadata_path(self, version: int) -> str:
        return f"{self.path}/v{version}.metadata.json"

    def find(self, version: int) -> IcebergMetadata | None:
        """Return None for a missing or unreadable file: it is then made again."""
        path = self.metadata_path(version)
        try:
            data = self._io.read(path)
            if data != self._known[0]:
                self._known = data, IcebergMetadata.from_json(data, path)
            return self._known[1]
        except (FileNotFoundError, CorruptFile):
            return None

    def exists(self, version: int) -> bool:
        return self._io.exists(self.metadata_path(version))

    def write(self, metadata: IcebergMetadata) -> None:
        data = metadata.to_json()
        self._io.write(self.metadata_path(metadata.current.id), data, durable=False)
        self._known = data, metadata

    def hint(self) -> int | None:
        """Return the version that the hint names; None for a missing or unreadable hint."""
        try:
            return int(self._io.read(f"{self.path}/{_HINT}"))
        except (FileNotFoundError, ValueError):
            return None

    def write_hint(self, version: int) -> None:
        self._io.write(f"{self.path}/{_HINT}", str(version).encode(), durable=False)

    def versions(self) -> list[int]:
        """List the directory. Returns the versions of all metadata files, ascending."""
        found = (_METADATA_FILE.fullmatch(entry.name) for entry in self._io.list_directory(self.path))
        return sorted(int(match[1]) for match in found if match)

    def delete_versions(self, versions: list[int]) -> None:
        self._io.delete_all([self.metadata_path(version) for version in versions])

    def delete_all(self) -> None:
        self._io.delete_directory(self.path)
