"""Estimates what a pipeline will write in an hour, from the newest records of its source. For `tidelake ingest plan`.

Nothing is written. Rows are decoded for the tables that a run would have (`sampled_tables`). Their files are encoded in
memory to measure the size. Compactions are simulated with a bucket's picker, flush by flush.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import groupby
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.compaction.merge_tree.universal_compaction import UniversalCompaction, UniversalCompactionOptions
from tidelake.ingest.pipeline.configured_source import newest_records
from tidelake.ingest.pipeline.progress_tracker import INTERVAL_MS
from tidelake.ingest.pipeline.sampled_tables import Obstacle, SampledTable, SampledTables
from tidelake.ingest.settings import Config
from tidelake.storage.fileio.location import REMOTE_SCHEMES, scheme_of
from tidelake.storage.fileio.object_output import PART_BYTES
from tidelake.storage.model.bucketing import Bucketing
from tidelake.storage.model.table import TableContext

_HOUR_MS: Final = 3_600_000
_FLUSHES_MAX: Final = 7_200  # simulated flushes of a bucket
# Requests of a commit: manifest, two lists, snapshot and hint are put; the snapshot before it is read twice, and
# a newer schema is looked for. A compaction adds a second snapshot, without a hint.
_PUTS_OF_COMMIT: Final = 5
_GETS_OF_COMMIT: Final = 3
_PUTS_OF_COMPACTION: Final = 4
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
    puts: number of requests to the object store that are charged as a PUT; None on other file systems
    gets: the same, charged as a GET
    price: price of these requests
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
    puts: float | None = None
    gets: float | None = None
    price: float | None = None


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

    records: see `newest_records`

    Raises the source's errors.
    """
    tables = await asyncio.to_thread(SampledTables, config)
    async with aclosing(newest_records(config, records)) as sample:
        async for raw in sample:
            await asyncio.to_thread(tables.take, raw)
    return Estimate(
        [_of_table(tables.known[name], config) for name in sorted(tables.known)],
        [tables.obstacles[key] for key in sorted(tables.obstacles)],
        sorted(tables.passed_over),
    )


def _of_table(sampled: SampledTable, config: Config) -> TableEstimate:
    interval_ms = config.first_interval_ms
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
    compacted = _compacted(sampled.context, flushes, file_bytes)
    written = commits * touched * file_bytes
    of_table = TableEstimate(
        *found,
        rate * _HOUR_MS,
        commits,
        commits * touched + spread * compacted.files,
        written,
        (written + spread * compacted.nbytes) / written,
        buckets,
    )
    if scheme_of(sampled.context.location) not in REMOTE_SCHEMES:
        return of_table
    puts, gets = _requests(commits, commits * touched * _puts_of_file(file_bytes), compacted, spread)
    prices = config.request_prices
    price = (puts * prices.put_per_million + gets * prices.get_per_million) / 1_000_000
    return replace(of_table, puts=puts, gets=gets, price=price)


def _requests(commits: float, puts_of_rows: float, compacted: _Compacted, buckets: int) -> tuple[float, float]:
    """Return the number of requests of an hour that are charged as a PUT, and as a GET.

    `docs/decisions/0016-commit-without-asking-first.md` says what a commit asks for. Compactions of several buckets
    that are done by then share the second snapshot of a commit. Deletions are free, and what expiry reads is small.
    """
    with_compaction = min(commits, buckets * compacted.count)
    registrations = min(commits, _HOUR_MS / INTERVAL_MS)  # as a consumer, with a look whether the table is the same
    puts = puts_of_rows + commits * _PUTS_OF_COMMIT + with_compaction * _PUTS_OF_COMPACTION + registrations
    puts += buckets * compacted.files * _puts_of_file(compacted.nbytes / max(1.0, compacted.files))
    gets = commits * _GETS_OF_COMMIT + with_compaction + buckets * compacted.read_files + registrations
    return puts, gets


def _puts_of_file(nbytes: float) -> float:
    """Return the number of requests that write a file: one, or one for each part and two for the whole."""
    return 1.0 if nbytes < PART_BYTES else 2 + math.ceil(nbytes / PART_BYTES)


def _encoded_bytes_per_row(rows: Sequence[pa.RecordBatch]) -> float:
    """Return the bytes per row in Parquet with zstd, as an approximation of the table's own format and codec."""
    nbytes = 0.0
    for _, alike in groupby(rows, lambda batch: batch.schema):  # a table's columns may change within the sample
        file = BytesIO()
        pq.write_table(pa.Table.from_batches(alike), file, compression="zstd")
        nbytes += len(file.getbuffer())
    return float(nbytes / max(1, sum(batch.num_rows for batch in rows)))


@dataclass(frozen=True, slots=True)
class _Compacted:
    """The compactions of one bucket in an hour.

    files, nbytes: what they write.
    read_files: number of files that they read.
    """

    count: float = 0.0
    files: float = 0.0
    nbytes: float = 0.0
    read_files: float = 0.0


def _compacted(context: TableContext, flushes: float, file_bytes: float) -> _Compacted:
    """Return the compactions of one bucket in an hour.

    This is an upper bound: it assumes that no row replaces another.
    """
    options = context.options
    if options.write_only or not context.schema.has_primary_key:
        return _Compacted()
    count = min(_FLUSHES_MAX, max(1, round(flushes)))
    picker, top = UniversalCompaction(UniversalCompactionOptions.of(options)), options.num_levels - 1
    runs: list[Any] = []
    compactions = read_files = 0
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
        compactions += 1
        read_files += taken
    scale = flushes / count
    return _Compacted(compactions * scale, files * scale, nbytes * scale, read_files * scale)
