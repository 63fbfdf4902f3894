"""Reads and writes the files of a table's schema versions.

Source: Java `schema/SchemaManager.java`.
"""

from __future__ import annotations

from contextlib import suppress

from tidelake.errors import BadInput, CorruptFile, TidelakeError
from tidelake.storage.base import env
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.requests import is_remote, run_both
from tidelake.storage.model.paths import TablePaths, parse_schema_id
from tidelake.storage.model.schema.table_schema import TableSchema


class SchemaStore:
    """Reads and publishes `schema/schema-<id>`. Versions never change, so each is read once."""

    def __init__(self, io: FileIO, paths: TablePaths) -> None:
        self._io = io
        self._paths = paths
        self._known: dict[int, TableSchema] = {}
        self._lock = env.Lock()

    def get(self, schema_id: int) -> TableSchema:
        """Return a version. Raises CorruptFile if it is missing, as files of the table refer to it."""
        with self._lock:
            if schema_id in self._known:
                return self._known[schema_id]
        path = self._paths.schema(schema_id)
        try:
            data = self._io.read(path)
        except FileNotFoundError:
            raise CorruptFile(
                path, f"schema version {schema_id}, which files of the table reference", "no file"
            ) from None
        schema = TableSchema.from_json(data, path)
        with self._lock:
            return self._known.setdefault(schema_id, schema)

    def expect(self, schema: TableSchema) -> None:
        """Let `get` return a version that is not published yet, for files that are written under it."""
        with self._lock:
            self._known[schema.id] = schema

    def forget(self, schema_id: int) -> None:
        """Undo `expect`."""
        with self._lock:
            self._known.pop(schema_id, None)

    def ids(self) -> list[int]:
        """Return the ids of all versions, ascending. Schemas have no hint file, so this lists the directory."""
        entries = self._io.list_directory(self._paths.schema_directory)
        return sorted(number for e in entries if (number := parse_schema_id(e.name)) is not None)

    def latest_id(self) -> int | None:
        return max(self.ids(), default=None)

    def latest(self) -> TableSchema | None:
        """Return the newest version, or None if the table doesn't exist.

        Of an object store the first version is asked for together with the list: most tables have no other.
        """
        if is_remote(self._paths.location):
            latest, _ = run_both(self._paths.location, self.latest_id, self._read_first)
        else:
            latest = self.latest_id()
        return None if latest is None else self.get(latest)

    def _read_first(self) -> None:
        with suppress(TidelakeError, OSError):  # the list decides whether it is needed
            self.get(0)

    def publish(self, schema: TableSchema) -> bool:
        """Write a new version.

        Returns False if its id is taken: another process changed the schema, so read it again.
        """
        if schema.id < 0:
            raise BadInput(f"schema ids count from 0, not {schema.id}")
        return self._io.create_if_absent(self._paths.schema(schema.id), schema.to_json().encode())

    def latest_id_from(self, known_id: int) -> int:
        """Return the newest id. This takes one request if it is the known one: ids are consecutive."""
        while self._io.exists(self._paths.schema(known_id + 1)):
            known_id += 1
        return known_id

    def __getstate__(self) -> tuple[FileIO, TablePaths]:
        return self._io, self._paths

    def __setstate__(self, state: tuple[FileIO, TablePaths]) -> None:
        self.__init__(*state)  # type: ignore[misc]
