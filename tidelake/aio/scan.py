"""`tidelake.scan` with async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pyarrow as pa

from tidelake.aio.blocking_iterators import iterate
from tidelake.scan import Scan as BlockingScan
from tidelake.storage.read.explain import ExplainedFile
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.split import Split


class Scan:
    """See `tidelake.Scan`."""

    def __init__(self, inner: BlockingScan) -> None:
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

    async def estimated_rows(self) -> int | None:
        return await asyncio.to_thread(self._inner.estimated_rows)

    def to_batches(self, splits: Sequence[Split] | None = None) -> AsyncIterator[pa.RecordBatch]:
        return iterate(lambda: self._inner.to_batches(splits))

    async def to_arrow(self, splits: Sequence[Split] | None = None) -> pa.Table:
        return await asyncio.to_thread(self._inner.to_arrow, splits)
