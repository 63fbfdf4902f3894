"""`tidelake.table` with async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import pyarrow as pa

from tidelake.aio.blocking_iterators import iterate, wait_for_snapshot
from tidelake.aio.forwarding import reads, wraps_result, writes, yields
from tidelake.aio.scan import Scan
from tidelake.aio.writer import Writer
from tidelake.compaction.cancellation import CancellationToken
from tidelake.compaction.report import CompactionReport
from tidelake.storage.base.threads import run_uncancellable, run_with_cancel
from tidelake.storage.read.changes.change_reader import ChangeBatch
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.stream.start import StartAt
from tidelake.table import Table as BlockingTable


class Table:
    """See `tidelake.Table`."""

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

    # ------------------------------------------------------------ rows

    writer = wraps_result(BlockingTable.writer, Writer)
    scan = reads(BlockingTable.scan, Scan)

    # ------------------------------------------------------------ changes

    changes = yields(BlockingTable.changes)

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

    # ------------------------------------------------------------ changed rows

    truncate = writes(BlockingTable.truncate)
    delete = writes(BlockingTable.delete)
    update = writes(BlockingTable.update)
    append = writes(BlockingTable.append)
    upsert = writes(BlockingTable.upsert)
    bootstrap = writes(BlockingTable.bootstrap)
    overwrite = writes(BlockingTable.overwrite)
    merge = writes(BlockingTable.merge)
    update_columns = writes(BlockingTable.update_columns)

    # ------------------------------------------------------------ snapshots

    snapshots = reads(BlockingTable.snapshots)
    expire = writes(BlockingTable.expire)
    rollback = writes(BlockingTable.rollback)

    # ------------------------------------------------------------ tags

    tags = reads(BlockingTable.tags)
    create_tag = writes(BlockingTable.create_tag)
    replace_tag = writes(BlockingTable.replace_tag)
    rename_tag = writes(BlockingTable.rename_tag)
    delete_tag = writes(BlockingTable.delete_tag)
    expire_tags = writes(BlockingTable.expire_tags)

    # ------------------------------------------------------------ branches

    branches = reads(BlockingTable.branches)
    create_branch = writes(BlockingTable.create_branch)
    delete_branch = writes(BlockingTable.delete_branch)
    rename_branch = writes(BlockingTable.rename_branch)
    fast_forward = writes(BlockingTable.fast_forward)
    merge_branch = writes(BlockingTable.merge_branch)

    # ------------------------------------------------------------ files

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

    compact_manifests = writes(BlockingTable.compact_manifests)
    rewrite_file_index = writes(BlockingTable.rewrite_file_index)
    clean_orphans = writes(BlockingTable.clean_orphans)

    # ------------------------------------------------------------ partitions, statistics

    expire_partitions = writes(BlockingTable.expire_partitions)
    mark_done = writes(BlockingTable.mark_done)
    analyze = writes(BlockingTable.analyze)
    statistics = reads(BlockingTable.statistics)

    # ------------------------------------------------------------ repair

    remove_missing_files = writes(BlockingTable.remove_missing_files)
    remove_missing_manifests = writes(BlockingTable.remove_missing_manifests)
    repair_earliest_snapshot = writes(BlockingTable.repair_earliest_snapshot)
    publish_iceberg_metadata = writes(BlockingTable.publish_iceberg_metadata)
    purge = writes(BlockingTable.purge)
