"""`tidelake.table_maintenance` with async. A cancelled call that changes something is completed first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from tidelake.aio.history import TableHistory
from tidelake.storage.base.threads import run_uncancellable
from tidelake.table_maintenance import TableMaintenance as BlockingMaintenance


class TableMaintenance(TableHistory):
    """See `tidelake.Table`."""

    _inner: BlockingMaintenance

    async def expire_partitions(
        self, *, older_than: timedelta | None = None, strategy: str | None = None, dry_run: bool = False
    ) -> list[str]:
        return await run_uncancellable(
            self._inner.expire_partitions, older_than=older_than, strategy=strategy, dry_run=dry_run
        )

    async def mark_done(self, partitions: Sequence[Mapping[str, Any]], *, dry_run: bool = False) -> list[str]:
        return await run_uncancellable(self._inner.mark_done, partitions, dry_run=dry_run)
