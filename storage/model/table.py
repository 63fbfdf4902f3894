"""The context of a table for all operations: its location, schema, options and stores. (The public facade is
`tidelake.table`.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

from tidelake.errors import BadInput
from tidelake.storage.fileio import uncached
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.metadata_cache import MetadataCache
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.options.option_changes import check_dynamic_options
from tidelake.storage.model.paths import TablePaths
from tidelake.storage.model.schema.schema_store import SchemaStore
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.snapshots.change_history import ChangeHistory, ChangelogStore
from tidelake.storage.model.snapshots.snapshot import SnapshotStore
from tidelake.storage.model.snapshots.snapshot_commit import SnapshotCommit
from tidelake.storage.model.snapshots.table_identity import TableIdentity
from tidelake.storage.model.snapshots.tags import TagStore

T = TypeVar("T")


class SnapshotCommits(Protocol):
    """How a catalog commits snapshots of any of its tables. Can be pickled.

    keeps_partitions: whether the catalog learns of a table's new partitions with its commits
        (`metastore.partitioned-table`).
    """

    @property
    def keeps_partitions(self) -> bool: ...
    def __call__(self, context: TableContext, /) -> SnapshotCommit: ...


@dataclass(frozen=True)
class TableContext:
    """One table with one version of its schema. Immutable, cheap to copy. Can be pickled; its stores are then created
    again.

    location: the table's root, without a trailing slash.
    name: `database.table`, for messages.
    schema: the version to use.
    options: the options of the schema, overridden by the caller's options.
    snapshot_commit: how the table's catalog commits snapshots; None is the file system (`tidelake.storage.commit`).
    metadata_cache: the content of metadata files of the table; copies of the context share it.
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
        """All versions of the schema, by id. Each is read once."""
        return SchemaStore(self.io, self.paths)

    @cached_property
    def snapshots(self) -> SnapshotStore:
        """The snapshots of the branch."""
        return SnapshotStore(self.io, self.paths)

    @cached_property
    def tags(self) -> TagStore:
        """The tags of the branch."""
        return TagStore(self.io, self.paths)

    @cached_property
    def changelogs(self) -> ChangelogStore:
        """The changelogs of the branch that outlive their snapshots."""
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
        """Return the result of `make` for this context. Later calls return the same object. Thread-safe.

        For stores in packages above this module: `context.shared(ManifestStore)`.
        """
        found = self._shared.get(make)
        return cast(T, found if found is not None else self._shared.setdefault(make, make(self)))

    @cached_property
    def _shared(self) -> dict[Callable[[TableContext], Any], Any]:
        return {}

    # ------------------------------------------------------------ copies

    def with_keys_of(self, schema_id: int) -> TableContext:
        """Return the table with the keys of a file that was written under this schema.

        It is this object, unless the table was rewritten with another key, or wider columns of it, since.
        """
        if schema_id == self.schema.id:
            return self
        written = self.schemas.get(schema_id)
        return self if self.schema.has_same_keys(written) else self.with_schema(written)

    def with_schema(self, schema: TableSchema) -> TableContext:
        """Return the same table with another version of its schema and the same dynamic options."""
        return replace(self, schema=schema, options=self.options.rebase(schema.options))

    def opened_with(self, options: Mapping[str, str] | None) -> TableContext:
        """Return the same table with dynamic options of a caller. Raises BadInput for those that can't override."""
        check_dynamic_options(self.schema.options, options or {})
        return self.with_options(options or {})

    def with_options(self, options: Mapping[str, str]) -> TableContext:
        """Return the same table with these dynamic options on top of its own. Unchecked: for steps of this release."""
        return replace(self, options=self.options.overridden(options))

    def with_cache(self, cache: MetadataCache) -> TableContext:
        """Return the same table with a metadata cache of the caller."""
        return replace(self, metadata_cache=cache)

    def uncached(self) -> TableContext:
        """Return the same table, whose files are read as they are now in the store."""
        return replace(self, io=uncached(self.io), metadata_cache=MetadataCache())

    def of_branch(self, branch: str) -> TableContext:
        """Return another branch of the table, with its latest schema. Raises BadInput if it does not exist."""
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
        """Return the table with its latest schema.

        Raises BadInput if the table or the branch does not exist, and for options that can't override the stored ones.
        """
        paths = TablePaths(location, branch)
        schema = SchemaStore(io, paths).latest()
        if schema is None:
            what = f"{name} at {location}" if branch == DEFAULT_BRANCH else f"{name} at {location} (branch {branch})"
            raise BadInput(f"{what} is not a table: it has no schema file. Create it with create_table first")
        if branch != DEFAULT_BRANCH and io.exists(paths.branch_claim(branch)) and _lacks_schemas(io, paths, schema):
            raise BadInput(
                f"{name}: branch {branch} is being created, or its creation was interrupted. If nothing creates it, "
                "delete it (delete_branch), and create it again"
            )
        stored = TableOptions(schema.options)
        return cls(io, location, name, schema, stored, branch, snapshot_commit).opened_with(options)


def _lacks_schemas(io: FileIO, paths: TablePaths, newest: TableSchema) -> bool:
    """Return whether the creation of a branch with a claim has not come to its end: schemas are written last, the
    newest one at the end. (Somebody who was too late to create it claims a complete branch, too.)
    """
    snapshots = SnapshotStore(io, paths)
    earliest_id = snapshots.earliest_id()
    first = None if earliest_id is None else snapshots.find(earliest_id)
    return first is None or newest.id < first.schema_id
