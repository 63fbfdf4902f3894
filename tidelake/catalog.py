"""Databases and tables by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from storage.arguments import checked
from storage.catalog import opening
from storage.catalog.base import Catalog as StorageCatalog
from storage.catalog.identifier import SYSTEM_DATABASE, Identifier
from storage.catalog.repair import repair
from storage.catalog.view import View
from storage.catalog.views import Views
from storage.ddl.schema_changes import SchemaChange, SetOption
from storage.ddl.schema_creation import columns_from_arrow
from storage.errors import BadInput
from storage.format_tables.definition import no_ordinary_table
from storage.format_tables.objects import is_object_table
from storage.schema.field_ids import FieldIds
from storage.system_tables.registry import system_table
from storage.types import DataField
from tidelake.cloning import clone
from tidelake.materialized.refreshed import Refreshed
from tidelake.rescaling import check_rescalable, rescale
from tidelake.system_table import ReadOnlyTable, WarehouseSystemTable
from tidelake.table import Table
from tidelake.table_kinds.format_table import FormatTable
from tidelake.table_kinds.migrating import Migration, migrate_files, migrate_table
from tidelake.table_kinds.migrating_databases import migrate_database
from tidelake.table_kinds.object_table import ObjectTable


class Catalog:
    """A warehouse. Table names are `database.table`; `database.table$branch_dev` is a branch of one."""

    def __init__(self, inner: StorageCatalog) -> None:
        self._inner = inner
        self._views = Views(inner)

    def __repr__(self) -> str:
        return f"Catalog({self._inner.warehouse!r})"

    @checked
    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Raises BadInput when it exists, unless if_not_exists."""
        self._inner.create_database(name, if_not_exists=if_not_exists)

    @checked
    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Raises BadInput when it holds tables, unless cascade: then they are dropped too."""
        self._inner.drop_database(name, cascade=cascade)

    def list_databases(self) -> list[str]:
        return self._inner.list_databases()

    @checked
    def list_tables(self, database: str) -> list[str]:
        return self._inner.list_tables(database)

    @checked
    def create_table(
        self,
        name: str,
        schema: pa.Schema | Sequence[DataField],
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """A new table with its first schema. Options are Paimon's; `bucket` is 1 with a primary key unless given.

        schema: columns as Arrow has them, or with Paimon's own types where Arrow lacks one (`CHAR(3)`).
        Raises BadInput when the table exists (unless if_not_exists), or when schema, keys and options don't go
        together.
        """
        is_of_columns = isinstance(schema, Sequence) and all(isinstance(column, DataField) for column in schema)
        if not isinstance(schema, pa.Schema) and not is_of_columns:
            raise BadInput(f"table {name}: the schema is a pyarrow.Schema, not a {type(schema).__name__}")
        self._inner.create_table(
            name,
            schema,
            primary_key=primary_key,
            partition_by=partition_by,
            options=options,
            comment=comment,
            if_not_exists=if_not_exists,
        )
        return self.table(name)

    @checked
    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Deletes the table's directory: data, snapshots, branches and tags."""
        self._inner.drop_table(name, if_exists=if_exists)

    @checked
    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table. Atomic on a local disk; on an object store files are moved one by one. Stop its writers
        first.
        """
        self._inner.rename_table(name, new_name)

    @checked
    def alter_table(self, name: str, changes: Sequence[SchemaChange]) -> Table:
        """A new version of the schema with all changes, or BadInput and none of them."""
        self._inner.alter_table(name, changes)
        return self.table(name)

    @checked
    def repair(self, name: str | None = None) -> list[str]:
        """Let a catalog with names of its own (jdbc, hive) say what the files in its warehouse say: tables that were
        copied there or whose entries were lost come in, columns, options and partitions are brought up to date. Files
        are not touched, and entries without files stay.

        name: a database, or `database.table`; None is the whole warehouse. Returns the tables whose entries changed.
        """
        return repair(self._inner, name)

    # ------------------------------------------------------------ views

    @checked
    def list_views(self, database: str) -> list[str]:
        """Sorted."""
        return self._views.list_views(database)

    @checked
    def view(self, name: str) -> View:
        """Its columns and queries; engines run them. Raises BadInput when there is none."""
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
        """schema: the columns that the query gives.
        dialects: engine -> the query as it writes it, where that differs. A Hive metastore keeps none.

        Raises BadInput when there is a table or a view of this name, UnsupportedFeature of a catalog without views.
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
        """Another number of buckets: option `bucket` is set to it, and partitions that are in another number are
        overwritten with their own rows, one after the other. Returns their directories. Writers of other partitions may
        go on; they must be opened again for the new number. A call that failed can be repeated: it goes on.

        partition: column -> value; only partitions that agree. The others keep their number, and refuse writers until
        they are rescaled, too. Of a table with `bucket` = -2 the option stays, and only partitions change.
        Raises CommitConflict when others wrote to a partition again and again.
        """
        if bucket < 1:
            raise BadInput(f"{name}: bucket = {bucket}; give a number above 0")
        context = self.table(name).context
        check_rescalable(context)
        if context.options["bucket"].strip() == "-2":
            context = context.with_options({"bucket": str(bucket)})
        else:
            context = self.alter_table(name, [SetOption("bucket", str(bucket))]).context
        return rescale(context, partition)

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
        """Bring a materialized table's rows up to date, in one snapshot, by DuckDB in this process (`tidelake[sql]`):
        only rows that change, where the query and the changes of its source allow that; else all of them.

        full: all rows, anyway. when_due: only if they are older than the definition allows.
        dialect: "duckdb" where the definition is in DuckDB's SQL. Left out, only what means the same everywhere is
            taken: rows or groups of one table, with sums and counts.
        sources: name in the query -> table of this catalog. Others mean what they say, those without a database tables
            of the materialized table's.
        Raises BadInput for a suspended table, a query that DuckDB can't run, and one that gives other columns than the
        table has.
        """
        from tidelake.materialized.refreshing import refresh_in_process  # sqlglot takes a while

        return refresh_in_process(self.table, name, full, when_due, dialect, sources or {})

    @checked
    def clone_table(self, source: Table, name: str, *, snapshot: int | None = None, tag: str | None = None) -> Table:
        """A new table of this catalog with the rows that `source`, of any catalog, has at a snapshot.

        Files are copied as they are, and the schema with all its versions; history, tags, branches and consumers are
        not. A clone that fails is dropped.

        snapshot, tag: at most one; default: the newest snapshot.

        Raises BadInput when there is a table of this name and for a source without snapshots, UnsupportedFeature for
        one that tracks rows.
        """
        if isinstance(source, FormatTable):
            raise no_ordinary_table(f"clone_table({source.name}): {source.name}", source.kind)
        clone(source.context, self._inner, name, snapshot, tag)
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
        """A new append table of the files of others, which stay as they are: a folder of parquet or orc files in
        Hive's partition directories, or a format table of this catalog. Stop its writers first.

        Until the commit the source is whole. A call that failed can be repeated: it goes on. Afterwards the names in
        the source are gone, unless keep_source: then the files have two, and no engine may change them in place.

        file_format: `parquet` (the default) or `orc`. partition_types: column -> type as SQL spells it, where it is not
        STRING. dry_run: only say what would be done; all footers are read.
        Raises BadInput and UnsupportedFeature for files that differ in their columns, or can't be a table's.
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
        """As `migrate_table`, into an append table that is there, with the same columns and partitions, whatever rows
        it has. A call that failed can be repeated with the same files; others may be added later.

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
        """A table of each folder in `source`, named as its folder, or of each format table of the database `source` of
        this catalog: see `migrate_table`. All are looked at before the first is made. A call that failed can be
        repeated: it goes on.

        database: of the new tables; made if there is none. tables: only these; None: all. partition_types: of whatever
        tables have such a column.
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
        """options: dynamic ones, over the stored ones, for this object only. Raises BadInput when there is no such
        table. `database.table$audit_log` and the like are system tables, to be read only; so is `sys.tables`.
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
    """The catalog of a warehouse: a path, or a URI such as `s3://bucket/lake`.

    options: the store's (`s3.endpoint`, `s3.access-key`, …; pass them as `**{…}`), and the catalog's: metastore="jdbc"
        or "rest", with what they take (docs/catalogs.md). Left out, it is the file system's.
    """
    return Catalog(opening.open_catalog(warehouse, options))
