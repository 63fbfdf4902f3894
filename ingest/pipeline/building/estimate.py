"""What a pipeline will write in an hour, judged by the newest records of its source: for `tidelake ingest plan`.

Nothing is written. Rows are decoded into the tables as they would be (`sampled_tables`); their files are encoded in
memory to learn their size; compactions are those that the picker of a bucket chooses, one flush after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint.offsets import OffsetRange
from compaction.merge_tree.universal_compaction import UniversalCompaction, UniversalCompactionOptions
from ingest.formats.registry import open_format
from ingest.pipeline.building.sampled_tables import Obstacle, SampledTable, SampledTables
from ingest.pipeline.building.sources import build_source
from ingest.settings import Config
from ingest.sources.ranges import read_ranges
from storage.bucketing import Bucketing
from storage.table import TableContext

_HOUR_MS: Final = 3_600_000
_FLUSHES_MAX: Final = 7_200  # of a bucket, that are gone through
_OVERHEAD: Final = 1_024  # bytes of a file around its rows, which `encoded` has once


@dataclass(frozen=True, slots=True)
class TableEstimate:
    """Of an hour at the sample's rate; None where its records don't tell a rate.

    exists: whether the table is there
    changes: of its columns, that the sample's records need and a run would make
    columns: their types, with those changes; of a table that isn't there, those that it would get
    rows: in the sample
    buckets: 0 where the table makes them as it goes
    files: new ones of all levels
    bytes: of new files before compaction
    write_amplification: bytes written with compaction, for each of those
    """

    name: str
    exists: bool
    columns: dict[str, str]
    primary_key: tuple[str, ...]
    partition_by: tuple[str, ...]
    changes: tuple[str, ...]
    rows: int
    rows_an_hour: float | None
    commits: float | None
    files: float | None
    bytes: float | None
    write_amplification: float | None
    buckets: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of a sample.

    obstacles: what a run would stumble over
    passed_over: source tables that no entry takes
    """

    tables: list[TableEstimate]
    obstacles: list[Obstacle]
    passed_over: list[str]


async def estimate(config: Config, records: int) -> Estimate:
    """records: how many of the newest are read, of all partitions together; the oldest of a folder, which doesn't tell
    where it ends.

    Raises what the source raises.
    """
    tables = await asyncio.to_thread(SampledTables, config)
    bounded = msgspec.structs.replace(config, source=msgspec.structs.replace(config.source, until="end"))
    source = build_source(bounded, open_format(config.format, config.format_options).KEPT_HEADERS)
    try:
        partitions = await source.open([])
        bounds = await source.bounds(list(partitions))
        share = max(1, records // max(1, len(bounds)))
        ranges = {p: OffsetRange(max(held.start, held.end - share), held.end) for p, held in bounds.items()}
        async with aclosing(read_ranges(source, bounds, ranges) if bounds else source.read({})) as batches:
            async for raw in batches:
                await asyncio.to_thread(tables.take, raw)
                records -= len(raw)
                if records <= 0 and not bounds:
                    break
    finally:
        await source.close()
    return Estimate(
        [_of_table(tables.known[name], config.checkpoint.interval_ms) for name in sorted(tables.known)],
        [tables.obstacles[key] for key in sorted(tables.obstacles)],
        sorted(tables.passed_over),
    )


def _of_table(sampled: SampledTable, interval_ms: int) -> TableEstimate:
    options, schema = sampled.context.options, sampled.context.schema
    of_partitions = [np.concatenate(times) for times in sampled.times_ms.values()]
    since = max((int(times.min()) for times in of_partitions if len(times)), default=0)  # all of them are there
    times = np.sort(np.concatenate([np.empty(0, np.int64), *of_partitions]))
    times, buckets = times[times >= since], max(0, Bucketing.of(schema, options).num_buckets)
    rows = sum(part.num_rows for part in sampled.rows)
    found = (
        sampled.context.name,
        sampled.is_there,
        {one.name: str(one.type) for one in schema.fields},
        schema.primary_keys,
        schema.partition_keys,
        tuple(sampled.changes),
        rows,
    )
    span_ms = int(times[-1] - times[0]) if len(times) else 0
    if span_ms <= 0:
        return TableEstimate(*found, None, None, None, None, None, buckets)
    rate = (len(times) - 1) / span_ms
    intervals = span_ms / interval_ms
    busy = len(np.unique((times - times[0]) // interval_ms))
    commits = _HOUR_MS / interval_ms * min(1.0, busy / max(1.0, intervals))
    rows_of_commit = rate * _HOUR_MS / commits
    spread = max(1, buckets)
    touched = spread * (1 - (1 - 1 / spread) ** max(1.0, rows_of_commit))
    file_bytes = _encoded_bytes_a_row(sampled.rows) * rows_of_commit / touched + _OVERHEAD
    flushes = commits * touched / spread
    compacted_files, compacted = _compacted(sampled.context, flushes, file_bytes)
    written = commits * touched * file_bytes
    return TableEstimate(
        *found,
        rate * _HOUR_MS,
        commits,
        commits * touched + spread * compacted_files,
        written,
        (written + spread * compacted) / written,
        buckets,
    )


def _encoded_bytes_a_row(rows: Sequence[pa.RecordBatch]) -> float:
    """As the writer's own format and codec about make them."""
    nbytes = 0.0
    for _, alike in groupby(rows, lambda batch: batch.schema):  # a table's columns may change within the sample
        file = BytesIO()
        pq.write_table(pa.Table.from_batches(alike), file, compression="zstd")
        nbytes += len(file.getbuffer())
    return float(nbytes / max(1, sum(batch.num_rows for batch in rows)))


def _compacted(context: TableContext, flushes: float, file_bytes: float) -> tuple[float, float]:
    """Files and bytes that compaction of one bucket writes in an hour. As if no row replaced another: no more."""
    options = context.options
    if options.write_only or not context.schema.has_primary_key:
        return 0, 0
    count = min(_FLUSHES_MAX, max(1, round(flushes)))
    picker, top = UniversalCompaction(UniversalCompactionOptions.of(options)), options.num_levels - 1
    runs: list[Any] = []
    files = nbytes = 0.0
    for _ in range(count):
        runs.insert(0, SimpleNamespace(level=0, size_bytes=file_bytes, files=(file_bytes,)))
        unit = picker.pick(runs, top, now_ms=0, local_hour=0)
        if unit is None:
            continue
        sizes: Sequence[Any] = unit.files  # a run here is one file, known by its size
        taken, size = len(sizes), float(sum(sizes))
        runs[:taken] = [SimpleNamespace(level=unit.output_level, size_bytes=size, files=(size,))]
        files += max(1.0, size / options.target_file_size_bytes(has_primary_key=True))
        nbytes += size
    return files * flushes / count, nbytes * flushes / count
