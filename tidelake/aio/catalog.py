"""`tidelake.catalog` with async."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidelake.aio.table import Table
from tidelake.catalog import Catalog as BlockingCatalog
from tidelake.materialized.refresh import Refreshed
from tidelake.public import open_catalog as open_blocking_catalog
from tidelake.storage.base.threads import run_uncancellable
from tidelake.storage.catalog.view import View
from tidelake.storage.ddl.schema_changes import SchemaChange
from tidelake.storage.model.types import DataField
from tidelake.table_kinds.migrating import Migration


async def open_catalog(warehouse: str, **options: str) -> Catalog:
    """See `tidelake.open_catalog`."""
    return Catalog(await asyncio.to_thread(open_blocking_catalog, warehouse, **options))


class Catalog:
    """See `tidelake.Catalog`."""

    def __init__(self, inner: BlockingCatalog) -> None:
        self._inner = inner

    async def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        await run_uncancellable(self._inner.create_database, name, if_not_exists=if_not_exists)

    async def drop_database(self, name: str, *, cascade: bool = False) -> None:
        await run_uncancellable(self._inner.drop_database, name, cascade=cascade)

    async def list_databases(self) -> list[str]:
        return await asyncio.to_thread(self._inner.list_databases)

    async def list_tables(self, database: str) -> list[str]:
        return await asyncio.to_thread(self._inner.list_tables, database)

    async def create_table(
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
        return Table(
            await run_uncancellable(
                self._inner.create_table,
                name,
                schema,
                primary_key=primary_key,
                partition_by=partition_by,
                options=options,
                comment=comment,
                if_not_exists=if_not_exists,
            )
        )

    async def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        await run_uncancellable(self._inner.drop_table, name, if_exists=if_exists)

    async def rename_table(self, name: str, new_name: str) -> None:
        await run_uncancellable(self._inner.rename_table, name, new_name)

    async def alter_table(self, name: str, changes: Sequence[SchemaChange]) -> Table:
        return Table(await run_uncancellable(self._inner.alter_table, name, changes))

    async def list_views(self, database: str) -> list[str]:
        return await asyncio.to_thread(self._inner.list_views, database)

    async def view(self, name: str) -> View:
        return await asyncio.to_thread(self._inner.view, name)

    async def create_view(
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
        return await run_uncancellable(
            self._inner.create_view,
            name,
            schema,
            query,
            dialects=dialects,
            comment=comment,
            options=options,
            if_not_exists=if_not_exists,
        )

    async def drop_view(self, name: str, *, if_exists: bool = False) -> None:
        await run_uncancellable(self._inner.drop_view, name, if_exists=if_exists)

    async def rename_view(self, name: str, new_name: str) -> None:
        await run_uncancellable(self._inner.rename_view, name, new_name)

    async def repair(self, name: str | None = None) -> list[str]:
        return await run_uncancellable(self._inner.repair, name)

    async def rescale_table(self, name: str, bucket: int, *, partition: Mapping[str, Any] | None = None) -> list[str]:
        return await run_uncancellable(self._inner.rescale_table, name, bucket, partition=partition)

    async def refresh_table(
        self,
        name: str,
        *,
        full: bool = False,
        when_due: bool = False,
        dialect: str | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> Refreshed:
        return await run_uncancellable(
            self._inner.refresh_table, name, full=full, when_due=when_due, dialect=dialect, sources=sources
        )

    async def clone_table(
        self, source: Table, name: str, *, snapshot: int | None = None, tag: str | None = None
    ) -> Table:
        cloned = await run_uncancellable(self._inner.clone_table, source._inner, name, snapshot=snapshot, tag=tag)
        return Table(cloned)

    async def migrate_table(
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
        return await run_uncancellable(
            self._inner.migrate_table,
            source,
            name,
            file_format=file_format,
            partition_types=partition_types,
            options=options,
            comment=comment,
            keep_source=keep_source,
            dry_run=dry_run,
        )

    async def migrate_files(
        self,
        source: str,
        name: str,
        *,
        file_format: str | None = None,
        keep_source: bool = False,
        dry_run: bool = False,
    ) -> Migration:
        return await run_uncancellable(
            self._inner.migrate_files,
            source,
            name,
            file_format=file_format,
            keep_source=keep_source,
            dry_run=dry_run,
        )

    async def migrate_database(
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
        return await run_uncancellable(
            self._inner.migrate_database,
            source,
            database,
            tables=tables,
            file_format=file_format,
            partition_types=partition_types,
            options=options,
            keep_source=keep_source,
            dry_run=dry_run,
        )

    async def table(self, name: str, options: Mapping[str, str] | None = None) -> Table:
        return Table(await asyncio.to_thread(self._inner.table, name, options))
