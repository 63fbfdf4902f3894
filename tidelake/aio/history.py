"""`tidelake.history` with async. A cancelled call that changes something is completed first."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from tidelake.history import TableHistory as BlockingHistory
from tidelake.storage.base.threads import run_uncancellable
from tidelake.storage.maintenance.orphans import OrphanCleaning
from tidelake.storage.maintenance.rollback import LaterStates
from tidelake.storage.maintenance.verify.inspection import ORPHAN_AGE_MS
from tidelake.storage.model.snapshots.snapshot import Snapshot


class TableHistory:
    """See `tidelake.Table`."""

    _inner: BlockingHistory

    async def snapshots(self) -> list[Snapshot]:
        return await asyncio.to_thread(self._inner.snapshots)

    async def tags(self) -> dict[str, Snapshot]:
        return await asyncio.to_thread(self._inner.tags)

    async def create_tag(self, name: str, *, snapshot: int | None = None, retain: timedelta | None = None) -> Snapshot:
        return await run_uncancellable(self._inner.create_tag, name, snapshot=snapshot, retain=retain)

    async def replace_tag(self, name: str, *, snapshot: int | None = None, retain: timedelta | None = None) -> Snapshot:
        return await run_uncancellable(self._inner.replace_tag, name, snapshot=snapshot, retain=retain)

    async def rename_tag(self, name: str, new_name: str) -> None:
        await run_uncancellable(self._inner.rename_tag, name, new_name)

    async def delete_tag(self, name: str) -> int:
        return await run_uncancellable(self._inner.delete_tag, name)

    async def expire_tags(self, *, older_than: datetime | None = None, dry_run: bool = False) -> list[str]:
        return await run_uncancellable(self._inner.expire_tags, older_than=older_than, dry_run=dry_run)

    async def branches(self) -> list[str]:
        return await asyncio.to_thread(self._inner.branches)

    async def create_branch(self, name: str, *, tag: str | None = None, snapshot: int | None = None) -> None:
        await run_uncancellable(self._inner.create_branch, name, tag=tag, snapshot=snapshot)

    async def delete_branch(self, name: str) -> None:
        await run_uncancellable(self._inner.delete_branch, name)

    async def rename_branch(self, name: str, new_name: str) -> None:
        await run_uncancellable(self._inner.rename_branch, name, new_name)

    async def fast_forward(self, branch: str) -> Snapshot:
        return await run_uncancellable(self._inner.fast_forward, branch)

    async def rollback(
        self,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        as_of: datetime | int | None = None,
        watermark: int | None = None,
        dry_run: bool = False,
    ) -> LaterStates:
        return await run_uncancellable(
            self._inner.rollback, snapshot=snapshot, tag=tag, as_of=as_of, watermark=watermark, dry_run=dry_run
        )

    async def clean_orphans(self, *, older_than_ms: int = ORPHAN_AGE_MS, dry_run: bool = False) -> OrphanCleaning:
        return await run_uncancellable(self._inner.clean_orphans, older_than_ms=older_than_ms, dry_run=dry_run)
