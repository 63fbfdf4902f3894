"""How batches pass between processes: their columns as Arrow IPC or plain buffers, the few other things pickled.

No Python object is made for a row. A target is passed by its number (`TargetNumbers`), because both processes have it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from tidelake.ingest.formats.base import DecodedBatch, Target
from tidelake.ingest.raw_batch import Headers, RawBatch

_SCHEMA_BYTES: Final = 8_192  # more than the IPC stream needs beside the record batch
_ALIGNMENT: Final = 64  # as Arrow recommends

RawHead: TypeAlias = tuple[str, int, int, dict[int, Headers], int]
"""Topic, partition, next offset, headers, and the number of bytes in the slot."""


def raw_size(batch: RawBatch) -> int:
    """Return how many bytes the columns of a raw batch need, at most."""
    return int(pa.ipc.get_record_batch_size(_raw_columns(batch))) + _SCHEMA_BYTES


def write_raw(batch: RawBatch, into: memoryview) -> RawHead:
    """Write the columns of a raw batch, and return the rest of it.

    into: at least `raw_size` bytes.
    """
    columns = _raw_columns(batch)
    sink = pa.FixedSizeBufferWriter(pa.py_buffer(into))
    with pa.ipc.new_stream(sink, columns.schema) as stream:
        stream.write_batch(columns)
    return batch.topic, batch.partition, batch.next_offset, dict(batch.headers), sink.tell()


def read_raw(head: RawHead, octets: pa.Buffer) -> RawBatch:
    """Return the raw batch. Its columns refer to `octets`."""
    topic, partition, next_offset, headers, _ = head
    columns = _read_record_batch(octets)
    offsets, timestamps_ms = (columns[name].to_numpy(zero_copy_only=True) for name in ("offsets", "timestamps_ms"))
    types = columns["types"].to_numpy(zero_copy_only=True) if "types" in columns.schema.names else None
    return RawBatch(
        topic,
        partition,
        offsets,
        timestamps_ms,
        columns["keys"],
        columns["values"],
        next_offset,
        headers,
        types,
    )


def _raw_columns(batch: RawBatch) -> pa.RecordBatch:
    columns = {
        "offsets": pa.array(batch.offsets),
        "timestamps_ms": pa.array(batch.timestamps_ms),
        "keys": batch.keys,
        "values": batch.values,
    }
    if batch.timestamp_types is not None:
        columns["types"] = pa.array(batch.timestamp_types)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@dataclass(frozen=True, slots=True)
class DecodedParts:
    """A decoded batch in parts.

    head: what is not in a buffer, pickled.
    buffers: columns, and arrays of numbers.
    """

    head: bytes
    buffers: Sequence[memoryview]

    @property
    def nbytes(self) -> int:
        """How many bytes `write` needs."""
        return size_of(self.sizes)

    @property
    def sizes(self) -> list[int]:
        return [buffer.nbytes for buffer in self.buffers]

    def write(self, into: memoryview) -> None:
        at = 0
        for buffer in self.buffers:
            into[at : at + buffer.nbytes] = buffer
            at += _aligned(buffer.nbytes)


def parts_of(batch: DecodedBatch, number_of: Callable[[Target], int | None]) -> DecodedParts:
    """Return the parts of a decoded batch.

    number_of: returns the number of a target that the other process has; None for others.
    """
    buffers: list[memoryview] = []
    head = io.BytesIO()
    _Pickler(head, number_of, lambda buffer: buffers.append(buffer.raw())).dump(batch)
    return DecodedParts(head.getvalue(), buffers)


def joined(head: bytes, sizes: Sequence[int], octets: pa.Buffer, target: Callable[[int], Target]) -> DecodedBatch:
    """Return the decoded batch, whose columns refer to `octets`.

    octets: what `DecodedParts.write` wrote.
    target: returns the target with a number.
    """
    found: DecodedBatch = _Unpickler(io.BytesIO(head), target, list(_slices(octets, sizes))).load()
    return found


def size_of(sizes: Sequence[int]) -> int:
    """Return the number of bytes that `DecodedParts.write` writes for buffers of these sizes."""
    return sum(map(_aligned, sizes))


def _slices(octets: pa.Buffer, sizes: Sequence[int]) -> Iterator[pa.Buffer]:
    at = 0
    for size in sizes:
        yield octets.slice(at, size)
        at += _aligned(size)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class _Pickler(pickle.Pickler):
    def __init__(
        self, file: io.BytesIO, number_of: Callable[[Target], int | None], took: Callable[[pickle.PickleBuffer], None]
    ) -> None:
        super().__init__(file, 5, buffer_callback=took)
        self._number_of = number_of

    def persistent_id(self, obj: Any) -> int | None:
        return self._number_of(obj) if type(obj) is Target else None

    def reducer_override(self, obj: Any) -> Any:
        """Pickle a record batch as Arrow IPC: unlike Arrow's own pickling it leaves out what a slice doesn't show."""
        if type(obj) is not pa.RecordBatch:
            return NotImplemented
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, obj.schema) as stream:
            stream.write_batch(obj)
        return _read_record_batch, (pickle.PickleBuffer(sink.getvalue()),)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, target: Callable[[int], Target], buffers: Sequence[pa.Buffer]) -> None:
        super().__init__(file, buffers=buffers)
        self._target = target

    def persistent_load(self, pid: int) -> Target:
        return self._target(pid)


def _read_record_batch(octets: Any) -> pa.RecordBatch:
    return pa.ipc.open_stream(pa.py_buffer(octets)).read_next_batch()
