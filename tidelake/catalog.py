"""The catalog: databases and tables by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidelake.compaction.table_rewrite import finish_rewrite, is_unfinished, rewrite_table
from tidelake.errors import BadInput
from tidelake.frames.incoming import ArrowArray, ArrowSchema, ArrowStream, arrow_schema_of
from tidelake.materialized.refresh_result import Refreshed
from tidelake.migration import Migration, migrate_database, migrate_files, migrate_table
from tidelake.rescaling import check_rescalable, rescale
from tidelake.storage.base.arguments import checked, checked_except
from tidelake.storage.catalog import opening
from tidelake.storage.catalog.base import Catalog as StorageCatalog
from tidelake.storage.catalog.entry_repair import repair
from tidelake.storage.catalog.identifier import SYSTEM_DATABASE, Identifier
from tidelake.storage.catalog.view import View
from tidelake.storage.catalog.views import Views
from tidelake.storage.ddl.schema_changes import (
    RewriteChange,
    SchemaChange,
    SetOption,
    UpdateColumnType,
    UpdatePrimaryKey,
)
from tidelake.storage.ddl.schema_creation import columns_from_arrow
from tidelake.storage.kinds.format_tables.definition import no_ordinary_table
from tidelake.storage.kinds.format_tables.objects import is_object_table
from tidelake.storage.kinds.system_tables.by_name import system_table
from tidelake.storage.maintenance.altered_rows import check_rows_stay_readable
from tidelake.storage.maintenance.table_clone import (
    check_clonable,
    clone_files,
    schemas_of_clone,
    snapshot_to_clone,
)
from tidelake.storage.model.schema.field_ids import FieldIds
from tidelake.storage.model.types import DataField
from tidelake.table import Table
from tidelake.table_kinds.format_table import FormatTable
from tidelake.table_kinds.object_table import ObjectTable
from tidelake.table_kinds.system_table import ReadOnlyTable, WarehouseSystemTable


class Catalog:
    """A catalog of one warehouse. Table names are `database.table`; `database.table$branch_dev` is a branch."""

    def __init__(self, inner: StorageCatalog) -> None:
        self._inner = inner
        self._views = Views(inner)

    def __repr__(self) -> str:
        return f"Catalog({self._inner.warehouse!r})"

    @checked
    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a database. Raises BadInput if it exists, unless if_not_exists."""
        self._inner.create_database(name, if_not_exists=if_not_exists)

    @checked
    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Drop a database. Raises BadInput if it has tables, unless cascade: then they are dropped, too."""
        self._inner.drop_database(name, cascade=cascade)

    def list_databases(self) -> list[str]:
        return self._inner.list_databases()

    @checked
    def list_tables(self, database: str) -> list[str]:
        return self._inner.list_tables(database)

    @checked_except("schema")
    def create_table(
        self,
        name: str,
        schema: pa.Schema | Sequence[DataField] | ArrowSchema | ArrowStream | ArrowArray,
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table.

        schema: an Arrow schema; or a frame or its schema (pandas, Polars, DuckDB, any with an Arrow schema), whose rows
            are not written; or fields with Paimon's types where Arrow has none (`CHAR(3)`)
        options: table options of Paimon

        Raises BadInput if the table exists (unless if_not_exists), or if schema, keys and options contradict each
        other.
        """
        is_of_columns = isinstance(schema, Sequence) and all(isinstance(column, DataField) for column in schema)
        self._inner.create_table(
            name,
            schema if is_of_columns else arrow_schema_of(schema, f"table {name}"),
            primary_key=primary_key,
            partition_by=partition_by,
            options=options,
            comment=comment,
            if_not_exists=if_not_exists,
        )
        return self.table(name)

    @checked
    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a table: delete its directory with data, snapshots, branches and tags."""
        self._inner.drop_table(name, if_exists=if_exists)

    @checked
    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table. Stop its writers first.

        Atomic on a local disk; on an object store files are moved one by one.
        """
        self._inner.rename_table(name, new_name)

    @checked
    def alter_table(self, name: str, changes: Sequence[SchemaChange]) -> Table:
        """Change a table's schema: all changes in one new version. Raises BadInput, and then applies none.

        A column whose values may not fit its new type (a text as INT) is read first: if one doesn't, nobody could read
        the column afterwards.
        """
        if any(isinstance(change, UpdateColumnType) for change in changes):
            found = self.table(name)
            if type(found) is Table:  # no format table, whose files have no types of their own
                check_rows_stay_readable(found.context, changes)
        self._inner.alter_table(name, changes)
        return self.table(name)

    @checked
    def repair(self, name: str | None = None) -> list[str]:
        """Update the entries of a catalog (jdbc, hive) from the files in its warehouse.

        Returns the tables that changed.

        Adds tables that were copied there or whose entries were lost, and updates columns, options and partitions.
        Files are not changed, and entries without files stay.

        name: a database, or `database.table`; None is the whole warehouse
        """
        return repair(self._inner, name)

    # ------------------------------------------------------------ views

    @checked
    def list_views(self, database: str) -> list[str]:
        """Return the names of views, sorted."""
        return self._views.list_views(database)

    @checked
    def view(self, name: str) -> View:
        """Return a view's columns and queries, for query engines. Raises BadInput if the view does not exist."""
        return self._views.view(name)

    @checked
    def create_view(
        self,
        name: str,
        schema: pa.Schema | Sequence[DataField],
        query: str,
        *,
        dialects: Mapping[str, str] | None = None,
        comment: str | None = None,
        options: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> View:
        """Create a view.

        schema: columns of the query's result
        dialects: engine -> the query in its SQL, if different. A Hive metastore keeps none

        Raises BadInput if a table or view of this name exists, UnsupportedFeature for a catalog without views.
        """
        ids = FieldIds()
        columns = columns_from_arrow(schema) if isinstance(schema, pa.Schema) else schema
        fields = tuple(ids.column(column) for column in columns)
        made = View(fields, query, dict(dialects or {}), comment, dict(options or {}))
        self._views.create_view(name, made, if_not_exists=if_not_exists)
        return self.view(name)

    @checked
    def drop_view(self, name: str, *, if_exists: bool = False) -> None:
        self._views.drop_view(name, if_exists=if_exists)

    @checked
    def rename_view(self, name: str, new_name: str) -> None:
        self._views.rename_view(name, new_name)

    # ------------------------------------------------------------ tables

    @checked
    def rescale_table(self, name: str, bucket: int, *, partition: Mapping[str, Any] | None = None) -> list[str]:
        """Change the number of buckets of a table. Returns the directories of the changed partitions.

        Sets option `bucket`, and overwrites partitions with another number with their own rows, one after the other.
        Writers of other partitions can continue; open them again for the new number. A call that failed can be
        repeated: it continues.

        partition: column -> value; only partitions with these values. The others keep their number, and refuse writers
            until they are rescaled, too. For a table with `bucket` = -2 the option stays, and only partitions change

        Raises CommitConflict if others repeatedly wrote to a partition.
        """
        if bucket < 1:
            raise BadInput(f"{name}: bucket = {bucket}; give a number above 0")
        context = self.table(name).context
        check_rescalable(context, bucket, partition)
        if context.options["bucket"].strip() == "-2":
            context = context.with_options({"bucket": str(bucket)})
        else:
            context = self.alter_table(name, [SetOption("bucket", str(bucket))]).context
        return rescale(context, partition)

    @checked
    def rewrite_table(self, name: str, changes: Sequence[RewriteChange] = ()) -> int | None:
        """Change what files depend on, by rewriting all rows beside the table's writers, and swap them in one snapshot.

        Returns its id; None if there was nothing to rewrite. Tags and older snapshots keep the old definition, and
        followers continue, as no row changes. Writers that are open must be opened again: their commits are refused. A
        call that was interrupted can be repeated: it continues, and without changes it only finishes.

        changes: `UpdatePrimaryKey`; `UpdateColumnType` for wider columns of the key; `SetOption`, `RemoveOption` for
            `merge-engine`, `bucket`, `bucket-key`, `file.format`, and options that belong to them. Other columns and
            options are changed by `alter_table`, without a rewrite.

        Raises BadInput for a change that is impossible, and shows the rows that prevent it (no value in a column of the
        key, two rows of one key); UnsupportedFeature for tables of a REST server, and for tables with row ids;
        CommitConflict if others altered the table, or replaced its rows, again and again.
        """
        context = self.table(name).context
        self._inner.check_rewritable(name)
        was_unfinished = is_unfinished(context)
        finished = finish_rewrite(context) if was_unfinished else None
        if not changes:
            if not was_unfinished:
                raise BadInput(f"{name}: no rewrite of the table is to be finished; name what should change")
            return finished
        ordered = sorted(changes, key=lambda change: isinstance(change, UpdatePrimaryKey))  # which options must fit
        return rewrite_table(context, ordered, lambda made: self._inner.alter_table(name, made)) or finished

    @checked
    def refresh_table(
        self,
        name: str,
        *,
        full: bool = False,
        when_due: bool = False,
        dialect: str | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> Refreshed:
        """Refresh a materialized table in one snapshot, with DuckDB in this process (`tidelake[sql]`).

        Applies only changed rows if the query and its source allow it. Otherwise it recomputes all rows.

        full: recompute all rows
        when_due: only if rows are older than the definition's freshness
        dialect: "duckdb" if the definition is in DuckDB's SQL. By default only queries are accepted that mean the same
            in every dialect: rows or groups of one table, with sums and counts
        sources: name in the query -> table of this catalog. Other names are tables of this catalog, without a database
            those of the materialized table's database

        Raises BadInput for a suspended table, a query that DuckDB can't run, and a query with other columns than the
        table.
        """
        from tidelake.materialized.in_process import refresh_in_process  # importing sqlglot is slow

        return refresh_in_process(self.table, name, full, when_due, dialect, sources or {})

    @checked
    def clone_table(self, source: Table, name: str, *, snapshot: int | None = None, tag: str | None = None) -> Table:
        """Copy a snapshot of a table of any catalog into a new table of this catalog.

        Files are copied unchanged, and the schema with all its versions; history, tags, branches and consumers are not.
        A clone that fails is dropped.

        snapshot: the snapshot to copy; default: the newest
        tag: the tag to copy, instead of a snapshot

        Raises BadInput if a table of this name exists, or the source has no snapshot; UnsupportedFeature for a source
        with row tracking.
        """
        if isinstance(source, FormatTable):
            raise no_ordinary_table(f"clone_table({source.name}): {source.name}", source.kind)
        origin = source.context
        check_clonable(origin)
        cloned = snapshot_to_clone(origin, snapshot, tag)
        schemas = [origin.schemas.get(schema_id) for schema_id in origin.schemas.ids()]
        self._inner.restore_table(name, schemas_of_clone(origin, cloned, schemas))
        if cloned is not None:  # the table already exists, which reserves its name
            try:
                clone_files(origin, cloned, self._inner.load(name))
            except BaseException:
                self._inner.drop_table(name)
                raise
        return self.table(name)

    @checked
    def migrate_table(
        self,
        source: str,
        name: str,
        *,
        file_format: str | None = None,
        partition_types: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        keep_source: bool = False,
        dry_run: bool = False,
    ) -> Migration:
        """Register existing files as a new append table, without rewriting them. Stop their writers first.

        The source is a folder of parquet or orc files in Hive's partition directories, a format table of this catalog,
        or an Iceberg table: its folder in a Hadoop catalog, or its current metadata file. It stays complete until the
        commit. A call that failed can be repeated: it continues. After the commit
        the files are removed from the source, unless keep_source is set: then they have two names, and no engine may
        change them in place.

        file_format: `parquet` (the default) or `orc`
        partition_types: column -> SQL type, if it is not STRING
        dry_run: only return what would be done; all footers are read

        Raises BadInput and UnsupportedFeature for files with different columns, or that can't be part of a table.
        """
        return migrate_table(
            self._inner,
            source,
            name,
            file_format=file_format,
            partition_types=partition_types or {},
            options=options or {},
            comment=comment,
            keep_source=keep_source,
            dry_run=dry_run,
        )

    @checked
    def migrate_files(
        self,
        source: str,
        name: str,
        *,
        file_format: str | None = None,
        keep_source: bool = False,
        dry_run: bool = False,
    ) -> Migration:
        """Add existing files to an append table with the same columns and partitions. See `migrate_table`.

        A call that failed can be repeated with the same files; other files can be added later.

        Raises BadInput for other columns, UnsupportedFeature for a table with buckets or row ids.
        """
        return migrate_files(
            self._inner, source, name, file_format=file_format, keep_source=keep_source, dry_run=dry_run
        )

    @checked
    def migrate_database(
        self,
        source: str,
        database: str,
        *,
        tables: Sequence[str] | None = None,
        file_format: str | None = None,
        partition_types: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
        keep_source: bool = False,
        dry_run: bool = False,
    ) -> list[Migration]:
        """Migrate all folders in `source`, or all format tables of database `source` of this catalog.

        See `migrate_table`. All are checked before the first table is created. A call that failed can be repeated: it
        continues.

        database: database of the new tables; created if it does not exist
        tables: only these; None: all
        partition_types: for all tables with such a column
        """
        return migrate_database(
            self._inner,
            source,
            database,
            tables=tables or (),
            file_format=file_format,
            partition_types=partition_types or {},
            options=options or {},
            keep_source=keep_source,
            dry_run=dry_run,
        )

    @checked
    def table(self, name: str, options: Mapping[str, str] | None = None) -> Table:
        """Open a table. Raises BadInput if it does not exist.

        System tables such as `database.table$audit_log` and `sys.tables` are read-only.

        options: dynamic options, which override the stored ones for this object only
        """
        identifier = Identifier.parse(name)
        if identifier.database == SYSTEM_DATABASE:
            return WarehouseSystemTable(self._inner.warehouse_table(identifier, options))
        if (found := self._inner.format_table(name, options)) is not None:
            return ObjectTable(found) if is_object_table(found.options) else FormatTable(found)
        if identifier.system_table is None:
            context = self._inner.load(name, options)
            return ObjectTable(context) if is_object_table(context.schema.options) else Table(context)
        context = self._inner.load(str(replace(identifier, system_table=None)), options)
        return ReadOnlyTable(system_table(context, identifier.system_table))


@checked
def open_catalog(warehouse: str, **options: str) -> Catalog:
    """Open the catalog of a warehouse: a path, or a URI such as `s3://bucket/lake`.

    options: those of the store (`s3.endpoint`, `s3.access-key`, …; pass them as `**{…}`) and of the catalog:
        metastore="jdbc", "hive" or "rest", with their options (docs/catalogs.md). Default: the file system catalog
    """
    return Catalog(opening.open_catalog(warehouse, options))
