"""Reads records of offset ranges again, independently of the pipeline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import numpy as np

from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.source import Source


class RangeUnavailable(Exception):
    """The source doesn't have the records any more."""


async def read_ranges(
    source: Source, bounds: Mapping[TopicPartition, OffsetRange], ranges: Mapping[TopicPartition, OffsetRange]
) -> AsyncGenerator[RawBatch, None]:
    """Yield the records of offset ranges, in order within each partition.

    source: an open source.
    bounds: the bounds of all its partitions.

    Raises RangeUnavailable if the source lacks a part of a range, and the source's errors.
    """
    left = {partition: wanted for partition, wanted in ranges.items() if wanted.start < wanted.end}
    if not left:
        return
    for partition, wanted in left.items():
        held = bounds.get(partition)
        if held is not None and (wanted.start < held.start or held.end < wanted.end):
            raise RangeUnavailable(f"the partition has the offsets {held.start} to {held.end}")
    idle = {partition: held.end for partition, held in bounds.items()}
    async with aclosing(source.read({**idle, **{p: wanted.start for p, wanted in left.items()}})) as batches:
        async for raw in batches:
            partition = TopicPartition(raw.topic, raw.partition)
            if partition not in left:
                continue
            end = left[partition].end
            cut = raw.slice(0, int(np.searchsorted(raw.offsets, end)))
            if len(cut):
                yield cut
            if raw.next_offset >= end:
                del left[partition]
            if not left:
                return
    raise RangeUnavailable("the partition ends before them")
