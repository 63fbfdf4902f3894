"""`tidelake.scan` with async."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidelake.aio.forwarding import reads, yields
from tidelake.scan import Scan as BlockingScan
from tidelake.storage.read.predicate import Predicate


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

    def limit(self, rows: int) -> Scan:
        return Scan(self._inner.limit(rows))

    def shard(self, index: int, count: int) -> Scan:
        return Scan(self._inner.shard(index, count))

    async def row_range(self, start: int, end: int) -> Scan:
        return Scan(await asyncio.to_thread(self._inner.row_range, start, end))

    splits = reads(BlockingScan.splits)
    count = reads(BlockingScan.count)
    head = reads(BlockingScan.head)
    to_pandas = reads(BlockingScan.to_pandas)
    to_polars = reads(BlockingScan.to_polars)
    to_duckdb = reads(BlockingScan.to_duckdb)
    to_ray_dataset = reads(BlockingScan.to_ray_dataset)
    to_ray = to_ray_dataset
    to_torch = reads(BlockingScan.to_torch)
    to_arrow_batch_reader = reads(BlockingScan.to_arrow_batch_reader)
    explain = reads(BlockingScan.explain)
    estimated_rows = reads(BlockingScan.estimated_rows)
    to_batches = yields(BlockingScan.to_batches)
    to_arrow = reads(BlockingScan.to_arrow)
