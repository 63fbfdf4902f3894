"""`tidelake.table` with async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from tidelake.aio.blocking_iterators import iterate, wait_for_snapshot
from tidelake.aio.row_changes import RowChanges
from tidelake.aio.scan import Scan
from tidelake.aio.writer import Writer
from tidelake.compaction.cancellation import CancellationToken
from tidelake.compaction.jobs.file_index_rewrite import FileIndexRewrite
from tidelake.compaction.report import CompactionReport
from tidelake.storage.base.threads import run_uncancellable, run_with_cancel
from tidelake.storage.commit.expire.expire_now import ExpiryResult
from tidelake.storage.read.changes.change_reader import ChangeBatch
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.stream.start import StartAt
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.table import Table as BlockingTable


class Table(RowChanges):
    """See `tidelake.Table`."""

    _inner: BlockingTable

    def __init__(self, inner: BlockingTable) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return f"aio.{self._inner!r}"

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def location(self) -> str:
        return self._inner.location

    @property
    def schema(self) -> pa.Schema:
        return self._inner.schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        return self._inner.primary_key

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self._inner.partition_by

    @property
    def options(self) -> Mapping[str, str]:
        return self._inner.options

    def writer(
        self,
        *,
        commit_user: str | None = None,
        memory: MemoryBudget | None = None,
        overwrite: bool | Mapping[str, Any] | None = None,
    ) -> Writer:
        return Writer(self._inner.writer(commit_user=commit_user, memory=memory, overwrite=overwrite))

    async def scan(
        self,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        as_of: datetime | int | None = None,
        between: tuple[int | str | datetime, ...] | None = None,
        between_mode: str | None = None,
        auto_tag: str | None = None,
        columns: Sequence[str] | None = None,
        filter: Predicate | Any = None,
    ) -> Scan:
        return Scan(
            await asyncio.to_thread(
                self._inner.scan,
                snapshot=snapshot,
                tag=tag,
                as_of=as_of,
                between=between,
                between_mode=between_mode,
                auto_tag=auto_tag,
                columns=columns,
                filter=filter,
            )
        )

    def changes(
        self,
        *,
        start: int | None = None,
        end: int | None = None,
        between: tuple[int | str | datetime, ...] | None = None,
        between_mode: str | None = None,
        auto_tag: str | None = None,
    ) -> AsyncIterator[ChangeBatch]:
        return iterate(
            lambda: self._inner.changes(
                start=start, end=end, between=between, between_mode=between_mode, auto_tag=auto_tag
            )
        )

    async def follow(
        self,
        *,
        start: StartAt | None = None,
        consumer: str | None = None,
        end: int | None = None,
        share: tuple[int, int] | None = None,
    ) -> AsyncGenerator[ChangeBatch]:
        """See `tidelake.Table.follow`. Ends at its bound, or when it is cancelled or closed.

        Its files are closed then, also if the loop is left early. Waiting for a snapshot uses no thread.
        """
        follower = await asyncio.to_thread(self._inner.follower, start=start, consumer=consumer, end=end, share=share)
        step = asyncio.to_thread if consumer is None else run_uncancellable  # a consumer's position is written
        try:
            while not follower.is_done:
                changes = await step(follower.step)
                if changes is None:
                    if not follower.is_done:
                        await wait_for_snapshot(follower)
                    continue
                async with aclosing(iterate(partial(iter, changes))) as found:
                    async for change in found:
                        yield change
        finally:
            await run_uncancellable(follower.close)

    async def compact(
        self,
        *,
        full: bool = False,
        where: Predicate | Any = None,
        order_by: Sequence[str] = (),
        strategy: str | None = None,
    ) -> CompactionReport:
        """See `tidelake.Table.compact`.

        If it is cancelled, it discards what is not committed yet, and ends when all tasks have ended.
        """
        cancellation = CancellationToken()
        return await run_with_cancel(
            cancellation.cancel_now,
            self._inner.compact,
            full=full,
            where=where,
            order_by=order_by,
            strategy=strategy,
            cancellation=cancellation,
        )

    async def rewrite_file_index(self, *, where: Predicate | Any = None, dry_run: bool = False) -> FileIndexRewrite:
        return await asyncio.to_thread(self._inner.rewrite_file_index, where=where, dry_run=dry_run)

    async def expire(
        self, *, retain_min: int | None = None, retain_max: int | None = None, retain_ms: int | None = None
    ) -> ExpiryResult:
        """See `tidelake.Table.expire`. If it is cancelled, it first completes the deletion."""
        return await run_uncancellable(
            self._inner.expire, retain_min=retain_min, retain_max=retain_max, retain_ms=retain_ms
        )
