"""Blobs whose rows are in their source's order already, as map tasks make them: read in that order, a slice at a time.

Nothing is held a row but the times of the slices that are read now. Each topic partition is a stream of slices, ranges
of rows of a blob. Streams are woven into one another by time, as `row_order` weaves rows: what is earlier than every
stream's last time that was read can go on, for nothing earlier will come.
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

from ingest.spark.batch_rows import KEY_CHANGE_COLUMN, ORDER_PREFIX, TIME_COLUMN, order_columns

_TOPIC, _PARTITION, _OFFSET = (f"{ORDER_PREFIX}{number}" for number in range(3))
_RECORD_COLUMNS: Final = (_TOPIC, _PARTITION, _OFFSET, TIME_COLUMN)


@dataclass(frozen=True, slots=True)
class BlobSlice:
    """Rows of one blob: its number, and which rows."""

    blob: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class MergedSlice:
    """Rows that follow one another in the result.

    order: of the slices' rows, one slice after the other; None where they are as they shall come.
    """

    slices: Sequence[BlobSlice]
    order: NDArray[np.intp] | None = None


def merged_slices(blobs: Sequence[pa.RecordBatch], slice_rows_max: int) -> Iterator[MergedSlice] | None:
    """All rows, oldest first; the same order as `row_order.source_order` gives.

    slice_rows_max: of a slice; a merged slice has one or more slices of each stream.
    None where the blobs are not in this order: rows that are no records or changed their keys, partitions that
    alternate in a blob, offsets that go back, or blobs that overlap.
    """
    if not all({*_RECORD_COLUMNS} <= {*blob.schema.names} for blob in blobs):
        return None
    if any(KEY_CHANGE_COLUMN in blob.schema.names or len(order_columns(blob.schema.names)) != 3 for blob in blobs):
        return None
    streams = _streams(blobs, slice_rows_max)
    return None if streams is None else _woven(streams)


def slices_of(blobs: Sequence[pa.RecordBatch], rows_max: int) -> Iterator[BlobSlice]:
    """All rows, as they are."""
    return (part for number, blob in enumerate(blobs) for part in _cut(number, 0, blob.num_rows, rows_max))


def _cut(blob: int, start: int, stop: int, rows_max: int) -> Iterator[BlobSlice]:
    return (BlobSlice(blob, at, min(stop, at + rows_max)) for at in range(start, stop, rows_max))


def _streams(blobs: Sequence[pa.RecordBatch], rows_max: int) -> list[_Stream] | None:
    found: dict[tuple[str, int], list[tuple[int, int, BlobSlice]]] = {}
    for number, blob in enumerate(blobs):
        topics = blob.column(_TOPIC).dictionary_encode().indices.to_numpy().astype(np.int64)
        partitions = blob.column(_PARTITION).to_numpy()
        offsets = blob.column(_OFFSET).to_numpy()
        is_next = np.diff(topics << 32 | partitions, prepend=-1) != 0
        goes_back = np.diff(offsets, prepend=offsets[:1]) < 0
        if (goes_back & ~is_next).any():
            return None
        edges = [*np.flatnonzero(is_next).tolist(), blob.num_rows]
        seen = set()
        for start, stop in pairwise(edges):
            key = blob.column(_TOPIC)[start].as_py(), int(partitions[start])
            if key in seen:
                return None
            seen.add(key)
            found.setdefault(key, []).append(
                (int(offsets[start]), int(offsets[stop - 1]), BlobSlice(number, start, stop))
            )
    streams = []
    for _, slices in sorted(found.items()):
        slices.sort(key=lambda part: part[:2])
        if any(last >= first for (_, last, _), (first, _, _) in pairwise(slices)):
            return None
        cut = (part for *_, whole in slices for part in _cut(whole.blob, whole.start, whole.stop, rows_max))
        streams.append(_Stream(blobs, deque(cut)))
    return streams


@dataclass(slots=True)
class _Stream:
    """Rows of a topic partition. Their times never go back: a clock that did counts as one that stood still.

    unread: slices whose times are not known yet.
    read, times: those that can be taken, and (n,) the times of their rows.
    """

    blobs: Sequence[pa.RecordBatch]
    unread: deque[BlobSlice]
    read: deque[BlobSlice] = field(default_factory=deque)
    times: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    newest: int = np.iinfo(np.int64).min

    def read_on(self) -> None:
        part = self.unread.popleft()
        rows = self.blobs[part.blob].slice(part.start, part.stop - part.start)
        times = np.maximum(np.maximum.accumulate(rows.column(TIME_COLUMN).to_numpy()), self.newest)
        self.newest = int(times[-1])
        self.times = np.concatenate([self.times, times])
        self.read.append(part)

    def take(self, count: int) -> list[BlobSlice]:
        """The first `count` rows of what is read."""
        self.times = self.times[count:]
        taken = []
        while count:
            part = self.read.popleft()
            stop = min(part.stop, part.start + count)
            taken.append(BlobSlice(part.blob, part.start, stop))
            if stop < part.stop:
                self.read.appendleft(BlobSlice(part.blob, stop, part.stop))
            count -= stop - part.start
        return taken


def _woven(streams: Sequence[_Stream]) -> Iterator[MergedSlice]:
    if len(streams) == 1:
        yield from (MergedSlice([part]) for part in streams[0].unread)
        return
    for stream in streams:
        stream.read_on()
    while going_on := [stream for stream in streams if stream.unread]:
        behind = min(going_on, key=lambda stream: stream.newest)
        limit = behind.newest
        yield from _taken(streams, [int(np.searchsorted(stream.times, limit)) for stream in streams])
        behind.read_on()
    yield from _taken(streams, [len(stream.times) for stream in streams])


def _taken(streams: Sequence[_Stream], counts: Sequence[int]) -> Iterator[MergedSlice]:
    """As many rows of each stream. Of one time, those of the first stream come first."""
    if sum(counts):
        times = np.concatenate([stream.times[:count] for stream, count in zip(streams, counts, strict=True)])
        slices = [part for stream, count in zip(streams, counts, strict=True) for part in stream.take(count)]
        yield MergedSlice(slices, np.argsort(times, kind="stable"))
