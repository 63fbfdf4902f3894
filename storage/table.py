"""What one needs to know to act on a table: where it is, its schema, its options, and its stores. (The facade is
`tidelake.table`.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

from storage.errors import BadInput
from storage.fileio.base import FileIO
from storage.format import DEFAULT_BRANCH
from storage.metadata_cache import MetadataCache
from storage.options import TableOptions
from storage.paths import TablePaths
from storage.schema.schema_store import SchemaStore
from storage.schema.table_schema import TableSchema
from storage.snapshots.change_history import ChangeHistory
from storage.snapshots.changelogs import ChangelogStore
from storage.snapshots.snapshot import SnapshotStore
from storage.snapshots.snapshot_commit import SnapshotCommit
from storage.snapshots.table_identity import TableIdentity
from storage.snapshots.tags import TagStore

T = TypeVar("T")


class SnapshotCommits(Protocol):
    """How a catalog commits snapshots, of whichever of its tables. It pickles.

    keeps_partitions: whether the catalog learns of a table's new partitions with its commits
        (`metastore.partitioned-table`).
    """

    @property
    def keeps_partitions(self) -> bool: ...
    def __call__(self, context: TableContext, /) -> SnapshotCommit: ...


@dataclass(frozen=True)
class TableContext:
    """One table at one version of its schema. Immutable, cheap to copy. It pickles; its stores are made again there.

    location: the table's root, without a trailing slash.
    name: `database.table`, for messages.
    schema: the version to act under.
    options: those of the schema, overridden by what the caller passed.
    snapshot_commit: how the table's catalog commits snapshots; None is the file system (`storage.commit`).
    metadata_cache: what metadata files of the table hold; copies of the context share it.
    """

    io: FileIO
    location: str
    name: str
    schema: TableSchema
    options: TableOptions
    branch: str = DEFAULT_BRANCH
    snapshot_commit: SnapshotCommits | None = None
    metadata_cache: MetadataCache = field(default_factory=MetadataCache, compare=False, repr=False)

    @cached_property
    def paths(self) -> TablePaths:
        return TablePaths(self.location, self.branch, self.options.data_file_path_directory)

    # ------------------------------------------------------------ stores

    @cached_property
    def schemas(self) -> SchemaStore:
        """Every version of the schema, by id; read once and kept."""
        return SchemaStore(self.io, self.paths)

    @cached_property
    def snapshots(self) -> SnapshotStore:
        """The snapshots of the branch."""
        return SnapshotStore(self.io, self.paths)

    @cached_property
    def tags(self) -> TagStore:
        """Those of the branch."""
        return TagStore(self.io, self.paths)

    @cached_property
    def changelogs(self) -> ChangelogStore:
        """Those of the branch that outlive their snapshots."""
        return ChangelogStore(self.io, self.paths)

    @cached_property
    def history(self) -> ChangeHistory:
        """The snapshots of the branch, and the changelogs that outlive them."""
        return ChangeHistory(self.io, self.paths, self.snapshots)

    @cached_property
    def identity(self) -> TableIdentity:
        """Whether the table is still the one that was opened."""
        return TableIdentity(self.io, self.paths, self.schema, self.name)

    def shared(self, make: Callable[[TableContext], T]) -> T:
        """What `make` makes of this context: made at the first call, the same object afterwards. Thread-safe.

        For stores that stand above this module: `context.shared(ManifestStore)`.
        """
        found = self._shared.get(make)
        return cast(T, found if found is not None else self._shared.setdefault(make, make(self)))

    @cached_property
    def _shared(self) -> dict[Callable[[TableContext], Any], Any]:
        return {}

    # ------------------------------------------------------------ copies

    def with_schema(self, schema: TableSchema) -> TableContext:
        """The same table seen under another version of its schema; dynamic options stay."""
        return replace(self, schema=schema, options=self.options.rebase(schema.options))

    def with_options(self, options: Mapping[str, str]) -> TableContext:
        """The same table with dynamic options over its own."""
        return replace(self, options=self.options.overridden(options))

    def with_cache(self, cache: MetadataCache) -> TableContext:
        """The same table with a cache of metadata that the caller keeps."""
        return replace(self, metadata_cache=cache)

    def of_branch(self, branch: str) -> TableContext:
        """Another branch of the table, at its latest schema. Raises BadInput when there is none."""
        commit = self.snapshot_commit
        return TableContext.open(self.io, self.location, self.name, branch=branch, snapshot_commit=commit)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "metadata_cache"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @classmethod
    def open(
        cls,
        io: FileIO,
        location: str,
        name: str,
        *,
        branch: str = DEFAULT_BRANCH,
        options: Mapping[str, str] | None = None,
        snapshot_commit: SnapshotCommits | None = None,
    ) -> TableContext:
        """The table at its latest schema. Raises BadInput when there is no table (or no such branch)."""
        schemas = SchemaStore(io, TablePaths(location, branch))
        schema = schemas.latest()
        if schema is None:
            what = f"{name} at {location}" if branch == DEFAULT_BRANCH else f"{name} at {location} (branch {branch})"
            raise BadInput(f"{what} is not a table: it has no schema file. Create it with create_table first")
        return cls(io, location, name, schema, TableOptions(schema.options, options or {}), branch, snapshot_commit)
