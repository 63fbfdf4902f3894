"""`tidelake.catalog` with async."""

from __future__ import annotations

import asyncio

from tidelake.aio.forwarding import reads, writes
from tidelake.aio.table import Table
from tidelake.catalog import Catalog as BlockingCatalog
from tidelake.catalog import open_catalog as open_blocking_catalog
from tidelake.storage.base.threads import run_uncancellable


async def open_catalog(warehouse: str, **options: str) -> Catalog:
    """See `tidelake.open_catalog`."""
    return Catalog(await asyncio.to_thread(open_blocking_catalog, warehouse, **options))


class Catalog:
    """See `tidelake.Catalog`."""

    def __init__(self, inner: BlockingCatalog) -> None:
        self._inner = inner

    create_database = writes(BlockingCatalog.create_database)
    drop_database = writes(BlockingCatalog.drop_database)
    list_databases = reads(BlockingCatalog.list_databases)

    list_tables = reads(BlockingCatalog.list_tables)
    create_table = writes(BlockingCatalog.create_table, Table)
    drop_table = writes(BlockingCatalog.drop_table)
    rename_table = writes(BlockingCatalog.rename_table)
    alter_table = writes(BlockingCatalog.alter_table, Table)
    repair = writes(BlockingCatalog.repair)
    rescale_table = writes(BlockingCatalog.rescale_table)
    rewrite_table = writes(BlockingCatalog.rewrite_table)
    refresh_table = writes(BlockingCatalog.refresh_table)

    async def clone_table(
        self, source: Table, name: str, *, snapshot: int | None = None, tag: str | None = None
    ) -> Table:
        """See `tidelake.Catalog.clone_table`. If it is cancelled, it first completes the call."""
        cloned = await run_uncancellable(self._inner.clone_table, source._inner, name, snapshot=snapshot, tag=tag)
        return Table(cloned)

    migrate_table = writes(BlockingCatalog.migrate_table)
    migrate_files = writes(BlockingCatalog.migrate_files)
    migrate_database = writes(BlockingCatalog.migrate_database)
    table = reads(BlockingCatalog.table, Table)

    list_views = reads(BlockingCatalog.list_views)
    view = reads(BlockingCatalog.view)
    create_view = writes(BlockingCatalog.create_view)
    drop_view = writes(BlockingCatalog.drop_view)
    rename_view = writes(BlockingCatalog.rename_view)
