"""Merges chunks whose rows are already in their source's order, as map tasks write them. It reads slice by slice.

Per row, only the times of the current slices are in memory. Each topic partition is a stream of slices, which are
ranges of rows of a chunk. The streams are merged by time, like the rows in `row_order`: rows that are earlier than the
last read time of every stream can be returned, because no earlier row will follow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.spark.batch_rows import KEY_CHANGE_COLUMN, ORDER_PREFIX, TIME_COLUMN, order_columns

_TOPIC, _PARTITION, _OFFSET = (f"{ORDER_PREFIX}{number}" for number in range(3))
_RECORD_COLUMNS: Final = (_TOPIC, _PARTITION, _OFFSET, TIME_COLUMN)


@dataclass(frozen=True, slots=True)
class ChunkSlice:
    """A range of rows of one chunk: the chunk's number, and rows [start, stop)."""

    chunk: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class MergedSlice:
    """Consecutive rows of the result.

    order: the order of the slices' rows, counted through all slices; None if they are in order already.
    """

    slices: Sequence[ChunkSlice]
    order: NDArray[np.intp] | None = None


def merged_slices(chunks: Sequence[pa.RecordBatch], slice_rows_max: int) -> Iterator[MergedSlice] | None:
    """Return all rows, oldest first, in the same order as `row_order.source_order`.

    slice_rows_max: maximum number of rows of a slice. A merged slice has one or more slices of each stream.

    Returns None if the chunks are not in this order: rows are no records, or changed their keys, partitions alternate
    in a chunk, offsets decrease, or chunks overlap.
    """
    if not all({*_RECORD_COLUMNS} <= {*chunk.schema.names} for chunk in chunks):
        return None
    if any(KEY_CHANGE_COLUMN in chunk.schema.names or len(order_columns(chunk.schema.names)) != 3 for chunk in chunks):
        return None
    streams = _streams(chunks, slice_rows_max)
    return None if streams is None else _interleave(streams)


def slices_of(chunks: Sequence[pa.RecordBatch], rows_max: int) -> Iterator[ChunkSlice]:
    """Return slices of all rows, in their existing order."""
    return (part for number, chunk in enumerate(chunks) for part in _cut_range(number, 0, chunk.num_rows, rows_max))


def _cut_range(chunk: int, start: int, stop: int, rows_max: int) -> Iterator[ChunkSlice]:
    return (ChunkSlice(chunk, at, min(stop, at + rows_max)) for at in range(start, stop, rows_max))


def _streams(chunks: Sequence[pa.RecordBatch], rows_max: int) -> list[_Stream] | None:
    found: dict[tuple[str, int], list[tuple[int, int, ChunkSlice]]] = {}
    for number, chunk in enumerate(chunks):
        topics = chunk.column(_TOPIC).dictionary_encode().indices.to_numpy().astype(np.int64)
        partitions = chunk.column(_PARTITION).to_numpy()
        offsets = chunk.column(_OFFSET).to_numpy()
        is_next = np.diff(topics << 32 | partitions, prepend=-1) != 0
        goes_back = np.diff(offsets, prepend=offsets[:1]) < 0
        if (goes_back & ~is_next).any():
            return None
        edges = [*np.flatnonzero(is_next).tolist(), chunk.num_rows]
        seen = set()
        for start, stop in pairwise(edges):
            key = chunk.column(_TOPIC)[start].as_py(), int(partitions[start])
            if key in seen:
                return None
            seen.add(key)
            found.setdefault(key, []).append(
                (int(offsets[start]), int(offsets[stop - 1]), ChunkSlice(number, start, stop))
            )
    streams = []
    for _, slices in sorted(found.items()):
        slices.sort(key=lambda part: part[:2])
        if any(last >= first for (_, last, _), (first, _, _) in pairwise(slices)):
            return None
        cut = (part for *_, whole in slices for part in _cut_range(whole.chunk, whole.start, whole.stop, rows_max))
        streams.append(_Stream(chunks, deque(cut)))
    return streams


@dataclass(slots=True)
class _Stream:
    """The rows of a topic partition. Their times never decrease: a decreasing time is replaced by the previous one.

    unread: slices whose times were not read yet.
    read: slices that can be taken.
    times: (n,) the times of the rows of `read`.
    """

    chunks: Sequence[pa.RecordBatch]
    unread: deque[ChunkSlice]
    read: deque[ChunkSlice] = field(default_factory=deque)
    times: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    newest: int = np.iinfo(np.int64).min

    def read_next_batch(self) -> None:
        part = self.unread.popleft()
        rows = self.chunks[part.chunk].slice(part.start, part.stop - part.start)
        times = np.maximum(np.maximum.accumulate(rows.column(TIME_COLUMN).to_numpy()), self.newest)
        self.newest = int(times[-1])
        self.times = np.concatenate([self.times, times])
        self.read.append(part)

    def take(self, count: int) -> list[ChunkSlice]:
        """Take the first `count` rows of the read slices."""
        self.times = self.times[count:]
        taken = []
        while count:
            part = self.read.popleft()
            stop = min(part.stop, part.start + count)
            taken.append(ChunkSlice(part.chunk, part.start, stop))
            if stop < part.stop:
                self.read.appendleft(ChunkSlice(part.chunk, stop, part.stop))
            count -= stop - part.start
        return taken


def _interleave(streams: Sequence[_Stream]) -> Iterator[MergedSlice]:
    if len(streams) == 1:
        yield from (MergedSlice([part]) for part in streams[0].unread)
        return
    for stream in streams:
        stream.read_next_batch()
    while remaining := [stream for stream in streams if stream.unread]:
        behind = min(remaining, key=lambda stream: stream.newest)
        limit = behind.newest
        yield from _take_rows(streams, [int(np.searchsorted(stream.times, limit)) for stream in streams])
        behind.read_next_batch()
    yield from _take_rows(streams, [len(stream.times) for stream in streams])


def _take_rows(streams: Sequence[_Stream], counts: Sequence[int]) -> Iterator[MergedSlice]:
    """Merge the given number of rows of each stream. At the same time, rows of the first stream come first."""
    if sum(counts):
        times = np.concatenate([stream.times[:count] for stream, count in zip(streams, counts, strict=True)])
        slices = [part for stream, count in zip(streams, counts, strict=True) for part in stream.take(count)]
        yield MergedSlice(slices, np.argsort(times, kind="stable"))
