"""What a pipeline will write in an hour, judged by the newest records of its source: for `tidelake ingest plan`.

Nothing is written. Rows are decoded into the tables as they are, or as they would be made; their files are encoded in
memory to learn their size; compactions are those that the picker of a bucket chooses, one flush after the other.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from io import BytesIO
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint.offsets import OffsetRange, TopicPartition
from compaction.merge_tree.universal_compaction import UniversalCompaction, UniversalCompactionOptions
from ingest.formats.base import Target
from ingest.formats.registry import open_format
from ingest.formats.source_table import SourceTable
from ingest.pipeline.building.configured_tables import ConfiguredTables
from ingest.pipeline.building.letter_case import format_of
from ingest.pipeline.building.sources import build_source
from ingest.raw_batch import RawBatch
from ingest.settings import Config, TableSettings
from ingest.sources.ranges import read_ranges
from ingest.tables.table_router import router_of
from ingest.tables.table_templates import ExpandedTable
from storage.bucketing import Bucketing
from storage.catalog.opening import open_catalog
from storage.errors import BadInput
from storage.table import TableContext

_HOUR_MS: Final = 3_600_000
_FLUSHES_MAX: Final = 7_200  # of a bucket, that are gone through
_OVERHEAD: Final = 1_024  # bytes of a file around its rows, which `encoded` has once


@dataclass(frozen=True, slots=True)
class TableEstimate:
    """Of an hour at the sample's rate; None where its records don't tell a rate.

    rows: in the sample. buckets: 0 where the table makes them as it goes. files: new ones of all levels. bytes: of
    new files before compaction. write_amplification: bytes written with compaction, for each of those.
    """

    name: str
    rows: int
    rows_an_hour: float | None
    commits: float | None
    files: float | None
    bytes: float | None
    write_amplification: float | None
    buckets: int


@dataclass(slots=True)
class _Sampled:
    """times_ms: of the records of its rows, by partition."""

    context: TableContext
    target: Target
    rows: list[pa.RecordBatch] = field(default_factory=list)
    times_ms: defaultdict[TopicPartition, list[Any]] = field(default_factory=lambda: defaultdict(list))


class _Tables:
    """Tables as they are, or as they would be made; none is made."""

    def __init__(self, config: Config) -> None:
        self._catalog = open_catalog(config.warehouse, config.warehouse_options)
        self._router = router_of(config.tables)
        self._settings = {table.name: table for table in config.named_tables}
        self._format = format_of(config)
        self.known: dict[str, _Sampled] = {}
        self._configured = ConfiguredTables.of(config)
        self._decoder = self._configured.decoder(self._format, self._target_of)
        for table in self._settings:
            if self._catalog.table_exists(table):
                self._add(self._catalog.load(table), self._settings[table])

    def _add(self, context: TableContext, settings: TableSettings) -> None:
        self.known[context.name] = _Sampled(context, Target.of(context, settings.source_types))

    def _target_of(self, source: SourceTable) -> Target | None:
        found = self.known.get(self._router.table_of(source) or "")
        return None if found is None else found.target

    def take(self, raw: RawBatch) -> None:
        decoded = self._decoder.decode(raw)
        foreseen = [source for source, row in decoded.unrouted.items() if self._foresee(raw, source, row)]
        if foreseen:
            decoded = self._decoder.decode(raw)
        for part in decoded.tables:
            sampled = self.known[part.target.name]
            sampled.rows.append(part.rows)
            times_ms = raw.timestamps_ms[np.searchsorted(raw.offsets, part.offsets)]
            sampled.times_ms[TopicPartition(raw.topic, raw.partition)].append(times_ms[times_ms >= 0])

    def _foresee(self, raw: RawBatch, source: SourceTable, row: int) -> bool:
        name = self._router.table_of(source)
        if name is None or name in self.known:
            return False
        settings = self._settings.get(name) or self._router.templates.table_for(source)
        assert settings is not None
        try:
            inferred = self._format.infer_table(raw, row)
            if isinstance(settings, ExpandedTable):
                self._configured.add(settings)
                derived = self._configured.derived[name]
                names = [one.name for one in inferred.fields]
                settings = settings.fitted([*names, *derived.computed, *derived.metadata])
            types = self._configured.column_types[name]
            inferred = types.apply(inferred, settings.primary_key or inferred.primary_key)
            preview = self._catalog.preview_table(
                name,
                inferred.fields,
                primary_key=settings.primary_key or inferred.primary_key,
                partition_by=settings.partition_by,
                options=settings.option_texts,
            )
        except BadInput:  # `run` will say it
            return False
        self._add(preview, settings)
        return True


async def estimate(config: Config, records: int) -> list[TableEstimate]:
    """records: how many of the newest are read, of all partitions together; the oldest of a folder, which doesn't tell
    where it ends.

    Raises what the source raises.
    """
    tables = _Tables(config)
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
    return [_of_table(sampled, config.checkpoint.interval_ms) for _, sampled in sorted(tables.known.items())]


def _of_table(sampled: _Sampled, interval_ms: int) -> TableEstimate:
    options = sampled.context.options
    of_partitions = [np.concatenate(times) for times in sampled.times_ms.values()]
    since = max((int(times.min()) for times in of_partitions if len(times)), default=0)  # all of them are there
    times = np.sort(np.concatenate([np.empty(0, np.int64), *of_partitions]))
    times, buckets = times[times >= since], max(0, Bucketing.of(sampled.context.schema, options).num_buckets)
    rows = sum(part.num_rows for part in sampled.rows)
    span_ms = int(times[-1] - times[0]) if len(times) else 0
    if span_ms <= 0:
        return TableEstimate(sampled.context.name, rows, None, None, None, None, None, buckets)
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
        sampled.context.name,
        rows,
        rate * _HOUR_MS,
        commits,
        commits * touched + spread * compacted_files,
        written,
        (written + spread * compacted) / written,
        buckets,
    )


def _encoded_bytes_a_row(rows: Sequence[pa.RecordBatch]) -> float:
    """As the writer's own format and codec about make them."""
    table, file = pa.Table.from_batches(rows), BytesIO()
    pq.write_table(table, file, compression="zstd")
    return float(len(file.getbuffer()) / max(1, table.num_rows))


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
