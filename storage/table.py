"""What one needs to know to act on a table: where it lies, its schema, its options. (The facade is
`tidelake.table`.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from storage.errors import BadInput
from storage.fileio.base import FileIO
from storage.format import DEFAULT_BRANCH
from storage.options import TableOptions
from storage.paths import TablePaths
from storage.schema.schema_store import SchemaStore
from storage.schema.table_schema import TableSchema


@dataclass(frozen=True)
class TableContext:
    """One table at one version of its schema. Immutable, cheap to copy, pickles.

    location: the table's root, without a trailing slash. name: `database.table`, for messages.
    schema: the version to act under; its options, overridden by what the caller passed, are `options`.
    """

    io: FileIO
    location: str
    name: str
    schema: TableSchema
    options: TableOptions
    branch: str = DEFAULT_BRANCH

    @cached_property
    def paths(self) -> TablePaths:
        return TablePaths(self.location, self.branch, self.options.data_file_path_directory)

    @cached_property
    def schemas(self) -> SchemaStore:
        """Every version of the schema, by id; read once and kept."""
        return SchemaStore(self.io, self.paths)

    def with_schema(self, schema: TableSchema) -> TableContext:
        """The same table seen under another version of its schema; dynamic options stay."""
        return replace(self, schema=schema, options=self.options.rebase(schema.options))

    def with_options(self, options: Mapping[str, str]) -> TableContext:
        """The same table with dynamic options over its own."""
        return replace(self, options=self.options.overridden(options))

    @classmethod
    def open(
        cls,
        io: FileIO,
        location: str,
        name: str,
        *,
        branch: str = DEFAULT_BRANCH,
        options: Mapping[str, str] | None = None,
    ) -> TableContext:
        """The table at its latest schema. Raises BadInput when there is no table (or no such branch)."""
        schemas = SchemaStore(io, TablePaths(location, branch))
        schema = schemas.latest()
        if schema is None:
            what = f"{name} at {location}" if branch == DEFAULT_BRANCH else f"{name} at {location} (branch {branch})"
            raise BadInput(f"{what} is not a table: it has no schema file. Create it with create_table first")
        return cls(io, location, name, schema, TableOptions(schema.options, options or {}), branch)
