"""Estimates what a pipeline will write in an hour, from the newest records of its source. For `tidelake ingest plan`.

Nothing is written. Rows are decoded for the tables that a run would have (`sampled_tables`). Their files are encoded in
memory to measure the size. Compactions are simulated with a bucket's picker, flush by flush.
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

from tidelake.checkpoint.offsets import OffsetRange
from tidelake.compaction.merge_tree.universal_compaction import UniversalCompaction, UniversalCompactionOptions
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.pipeline.configured_source import build_source
from tidelake.ingest.pipeline.sampled_tables import Obstacle, SampledTable, SampledTables
from tidelake.ingest.settings import Config
from tidelake.ingest.sources.ranges import read_ranges
from tidelake.storage.model.bucketing import Bucketing
from tidelake.storage.model.table import TableContext

_HOUR_MS: Final = 3_600_000
_FLUSHES_MAX: Final = 7_200  # simulated flushes of a bucket
_OVERHEAD: Final = 1_024  # bytes of a file without its rows; an encoded sample contains them once


@dataclass(frozen=True, slots=True)
class TableEstimate:
    """The estimate of a table for one hour at the sample's rate. Values are None if the records don't show a rate.

    exists: whether the table exists
    changes: column changes that the sample's records need and a run would make
    columns: column types with these changes; for a table that doesn't exist, those that it would get
    rows: number of rows in the sample
    buckets: number of buckets; 0 if the table creates them dynamically
    files: number of new files of all levels
    bytes: bytes of new files before compaction
    write_amplification: bytes written including compaction, divided by `bytes`
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
    """The estimate of a sample.

    obstacles: problems that a run would have
    passed_over: source tables that match no entry
    """

    tables: list[TableEstimate]
    obstacles: list[Obstacle]
    passed_over: list[str]


async def estimate(config: Config, records: int) -> Estimate:
    """Read a sample, and return the estimate.

    records: number of newest records to read, of all partitions together. Of a folder the oldest are read, because it
        doesn't report where it ends.

    Raises the source's errors.
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
    # From this time on, the sample has records of every partition.
    since = max((int(times.min()) for times in of_partitions if len(times)), default=0)
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
    file_bytes = _encoded_bytes_per_row(sampled.rows) * rows_of_commit / touched + _OVERHEAD
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


def _encoded_bytes_per_row(rows: Sequence[pa.RecordBatch]) -> float:
    """Return the bytes per row in Parquet with zstd, as an approximation of the table's own format and codec."""
    nbytes = 0.0
    for _, alike in groupby(rows, lambda batch: batch.schema):  # a table's columns may change within the sample
        file = BytesIO()
        pq.write_table(pa.Table.from_batches(alike), file, compression="zstd")
        nbytes += len(file.getbuffer())
    return float(nbytes / max(1, sum(batch.num_rows for batch in rows)))


def _compacted(context: TableContext, flushes: float, file_bytes: float) -> tuple[float, float]:
    """Return the number of files and bytes that compaction of one bucket writes in an hour.

    This is an upper bound: it assumes that no row replaces another.
    """
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
        sizes: Sequence[Any] = unit.files  # here each run is one file, represented by its size
        taken, size = len(sizes), float(sum(sizes))
        runs[:taken] = [SimpleNamespace(level=unit.output_level, size_bytes=size, files=(size,))]
        files += max(1.0, size / options.target_file_size_bytes(has_primary_key=True))
        nbytes += size
    return files * flushes / count, nbytes * flushes / count
