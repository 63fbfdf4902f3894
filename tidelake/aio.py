"""The same as `tidelake`, with async: nothing here blocks the event loop.

    catalog = await tidelake.aio.open_catalog("/data/lake")
    table = await catalog.table("shop.orders")
    async for change in table.follow(start="latest"):
        ...

Work runs in threads. A call that is cancelled is abandoned only where it reads. One that writes is waited for, however
often it is cancelled: another may follow on the same writer, its closing at the latest, and of a commit, or of a table
that is made or dropped, the outcome has to be known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

import tidelake
from compaction.cancellation import CancellationToken
from compaction.jobs.file_index_rewrite import FileIndexRewrite
from compaction.report import CompactionReport
from storage.ddl.schema_changes import SchemaChange
from storage.expire.expire_now import ExpiryResult
from storage.read.changes import ChangeBatch
from storage.read.follow import Follower
from storage.read.predicate import Predicate
from storage.read.skipping.explain import ExplainedFile
from storage.read.split import Split
from storage.read.stream.start import StartAt
from storage.threads import run_uncancellable, run_with_cancel
from storage.types import DataField
from storage.write.memory_budget import MemoryBudget
from tidelake.aio_maintenance import TableMaintenance

T = TypeVar("T")


async def open_catalog(warehouse: str, **options: str) -> Catalog:
    """See `tidelake.open_catalog`."""
    return Catalog(await asyncio.to_thread(tidelake.open_catalog, warehouse, **options))


async def _iterate(start: Callable[[], Iterator[T]]) -> AsyncGenerator[T]:
    """A blocking iterator's items; each is fetched in a thread when it is asked for.

    Closed, also by the event loop after a `break`, it closes the iterator in a thread: that may delete spill files.
    Cancelled, it waits for the item that is being fetched: an iterator can't be closed while it runs.
    """
    iterator = await run_uncancellable(start)
    end = object()
    try:
        while (item := await run_uncancellable(next, iterator, end)) is not end:
            yield item  # type: ignore[misc]
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            await run_uncancellable(close)


async def _wait(follower: Follower) -> None:
    """Until there is a snapshot, or until it is time to look for other news."""
    loop, there = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(there.set)

    cancel = follower.when_there(wake)
    if cancel is None:
        await asyncio.sleep(follower.wait_ms / 1000)
        return
    try:
        async with asyncio.timeout(follower.longest_wait_ms / 1000):
            await there.wait()
    except TimeoutError:
        pass
    finally:
        cancel()


class Catalog:
    """See `tidelake.Catalog`."""

    def __init__(self, inner: tidelake.Catalog) -> None:
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

    async def rescale_table(self, name: str, bucket: int, *, partition: Mapping[str, Any] | None = None) -> list[str]:
        return await run_uncancellable(self._inner.rescale_table, name, bucket, partition=partition)

    async def table(self, name: str, options: Mapping[str, str] | None = None) -> Table:
        return Table(await asyncio.to_thread(self._inner.table, name, options))


class Table(TableMaintenance):
    """See `tidelake.Table`."""

    _inner: tidelake.Table

    def __init__(self, inner: tidelake.Table) -> None:
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
        return _iterate(
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
        """See `tidelake.Table.follow`. Ends at its bound, or when it is cancelled or closed; what it opened is closed
        then, too, when it is left early. Waiting for a snapshot holds no thread.
        """
        follower = await asyncio.to_thread(self._inner.follower, start=start, consumer=consumer, end=end, share=share)
        step = asyncio.to_thread if consumer is None else run_uncancellable  # which writes how far the consumer is
        try:
            while not follower.is_done:
                changes = await step(follower.step)
                if changes is None:
                    if not follower.is_done:
                        await _wait(follower)
                    continue
                async with aclosing(_iterate(partial(iter, changes))) as found:
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
        """Cancelled, it gives up what is not in the table yet, and ends when nothing runs any more."""
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

    async def truncate(
        self,
        *,
        partition: Mapping[str, Any] | None = None,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> int | None:
        """Cancelled, it ends only when the outcome is known; then the cancellation goes on."""
        return await run_uncancellable(
            self._inner.truncate, partition=partition, commit_user=commit_user, identifier=identifier
        )

    async def delete(
        self, where: Predicate | Any, *, commit_user: str | None = None, identifier: int | None = None
    ) -> int | None:
        """Cancelled, it ends only when the outcome is known; then the cancellation goes on."""
        return await run_uncancellable(self._inner.delete, where, commit_user=commit_user, identifier=identifier)

    async def update(
        self,
        where: Predicate | Any,
        values: Mapping[str, Any],
        *,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> int | None:
        """Cancelled, it ends only when the outcome is known; then the cancellation goes on."""
        return await run_uncancellable(
            self._inner.update, where, values, commit_user=commit_user, identifier=identifier
        )

    async def expire(
        self, *, retain_min: int | None = None, retain_max: int | None = None, retain_ms: int | None = None
    ) -> ExpiryResult:
        """Cancelled, it ends when the files are removed; then the cancellation goes on."""
        return await run_uncancellable(
            self._inner.expire, retain_min=retain_min, retain_max=retain_max, retain_ms=retain_ms
        )


class Scan:
    """See `tidelake.Scan`."""

    def __init__(self, inner: tidelake.Scan) -> None:
        self._inner = inner

    @property
    def snapshot_id(self) -> int | None:
        return self._inner.snapshot_id

    @property
    def schema(self) -> pa.Schema:
        return self._inner.schema

    @property
    def has_splits(self) -> bool:
        return self._inner.has_splits

    def select(self, columns: Sequence[str]) -> Scan:
        return Scan(self._inner.select(columns))

    def where(self, condition: Predicate | Any) -> Scan:
        return Scan(self._inner.where(condition))

    async def splits(self) -> list[Split]:
        return await asyncio.to_thread(self._inner.splits)

    async def explain(self) -> list[ExplainedFile]:
        return await asyncio.to_thread(self._inner.explain)

    def to_batches(self, splits: Sequence[Split] | None = None) -> AsyncIterator[pa.RecordBatch]:
        return _iterate(lambda: self._inner.to_batches(splits))

    async def to_arrow(self, splits: Sequence[Split] | None = None) -> pa.Table:
        return await asyncio.to_thread(self._inner.to_arrow, splits)


class Writer:
    """See `tidelake.Writer`. One task at a time."""

    def __init__(self, inner: tidelake.Writer) -> None:
        self._inner = inner

    @property
    def commit_user(self) -> str:
        return self._inner.commit_user

    async def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Cancelled, it ends when the rows are taken; then the cancellation goes on."""
        await run_uncancellable(self._inner.write, rows)

    async def commit(
        self,
        identifier: int | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
    ) -> int | None:
        """Cancelled while publishing, it ends only when the outcome is known; then the cancellation goes on."""
        return await run_uncancellable(self._inner.commit, identifier, properties=properties, watermark=watermark)

    async def close(self) -> None:
        await run_uncancellable(self._inner.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
