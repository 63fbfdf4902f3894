"""Parses record batches to columns, without an object per record.

Only the starts of the records are found one by one. All other steps work on all records at once. For the format of a
record see Kafka's `DefaultRecord`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.errors import CorruptRecordException
from numpy.typing import NDArray

from tidelake.ingest.raw_batch import BinaryColumn, Headers, binary_column
from tidelake.ingest.sources.kafka.fetched_batch import FetchedBatch

_VARINT_BYTES_MAX: Final = 10

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """n records of one partition, in offset order.

    timestamps_ms: (n,) epoch milliseconds; -1 if a record has none.
    timestamp_types: (n,) Kafka's numbers: 0 create time, 1 log append time, -1 none.
    header_bytes: (n,) the encoded headers, which begin with their number. None: no record has headers.
    """

    offsets: Integers
    timestamps_ms: Integers
    timestamp_types: NDArray[np.int32]
    keys: BinaryColumn
    values: BinaryColumn
    header_bytes: pa.BinaryArray | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def below(self, end: int) -> RecordColumns:
        """Return the records below this offset."""
        n = int(np.searchsorted(self.offsets, end))
        if n == len(self):
            return self
        columns = (self.offsets[:n], self.timestamps_ms[:n], self.timestamp_types[:n], self.keys[:n], self.values[:n])
        return RecordColumns(*columns, None if self.header_bytes is None else self.header_bytes[:n])

    def distinct_headers(self) -> tuple[list[Headers], pa.IntegerArray]:
        """Return the distinct headers, and for each record the index of its headers.

        A connector mostly sends the same headers.
        """
        if self.header_bytes is None:
            return [()], pa.array(np.zeros(len(self), np.int32))
        encoded = self.header_bytes.dictionary_encode()
        return [_parsed_headers(octets) for octets in encoded.dictionary.to_pylist()], encoded.indices

    def headers_named(self, names: Collection[str]) -> dict[int, Headers]:
        """Return the rows with any of these headers, and these headers. Headers of other rows are not parsed."""
        if self.header_bytes is None:
            return {}
        has_any = np.zeros(len(self), np.bool_)
        for name in names:
            has_any |= pc.match_substring(self.header_bytes, name.encode()).to_numpy(zero_copy_only=False)
        found = {}
        for row in np.flatnonzero(has_any).tolist():
            headers = _parsed_headers(self.header_bytes[row].as_py())
            if kept := tuple(header for header in headers if header[0] in names):
                found[row] = kept
        return found


def columns_of(fetched: Sequence[Any]) -> RecordColumns:
    """Return the columns of fetched records. Raises CorruptRecordException for data that is no batch.

    fetched: uncompressed `FetchedBatch`es, and aiokafka's record objects for the older message format.
    """
    parts: list[RecordColumns] = []
    begin = 0
    for end in range(1, len(fetched) + 1):
        is_batch = isinstance(fetched[begin], FetchedBatch)
        if end == len(fetched) or isinstance(fetched[end], FetchedBatch) is not is_batch:
            parts.append((_columns_of_batches if is_batch else _columns_of_objects)(fetched[begin:end]))
            begin = end
    return concatenated(parts)


def concatenated(parts: Sequence[RecordColumns]) -> RecordColumns:
    """Concatenate the parts in this order."""
    if len(parts) < 2:
        return parts[0] if parts else _columns_of_objects([])
    header_bytes = None
    if any(part.header_bytes is not None for part in parts):
        of_parts = [pa.nulls(len(p), pa.binary()) if p.header_bytes is None else p.header_bytes for p in parts]
        header_bytes = pc.fill_null(pa.concat_arrays(of_parts), b"\0")
    return RecordColumns(
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.timestamps_ms for part in parts]),
        np.concatenate([part.timestamp_types for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
        header_bytes,
    )


def _columns_of_objects(records: Sequence[Any]) -> RecordColumns:
    """Return the columns of aiokafka's record objects. Their older message format has no headers."""
    return RecordColumns(
        np.array([record.offset for record in records], np.int64),
        np.array([-1 if record.timestamp is None else record.timestamp for record in records], np.int64),
        np.array([-1 if record.timestamp_type is None else record.timestamp_type for record in records], np.int32),
        binary_column([record.key for record in records]),
        binary_column([record.value for record in records]),
    )


def _columns_of_batches(batches: Sequence[FetchedBatch]) -> RecordColumns:
    data = batches[0].block
    if all(batch.block is data for batch in batches):  # they are from one response, so no copy is needed
        starts = [batch.payload_begin for batch in batches]
    else:
        data = b"".join([batch.payload for batch in batches])
        starts = [0, *accumulate(batch.payload_bytes for batch in batches)][:-1]
    octets = np.frombuffer(data, np.uint8)
    try:
        begins = np.array(_record_starts(data, starts, batches), np.int64)
        return _columns_of_records(data, octets, begins, batches)
    except (IndexError, ValueError):  # ValueError: a negative number of records
        raise CorruptRecordException("a record goes on behind the end of its batch") from None


def _columns_of_records(
    data: bytes, octets: NDArray[np.uint8], begins: Integers, batches: Sequence[FetchedBatch]
) -> RecordColumns:
    """Return the columns of records.

    begins: (n,) the start of each record.
    """
    size, at = _varints(octets, begins)
    ends = at + size
    timestamp_delta, at = _varints(octets, at + 1)  # after the attributes, which are unused
    offset_delta, at = _varints(octets, at)
    key_size, key_begins = _varints(octets, at)
    value_size, value_begins = _varints(octets, _checked(key_begins + np.maximum(key_size, 0), ends))
    header_count, at = _varints(octets, header_begins := _checked(value_begins + np.maximum(value_size, 0), ends))
    if np.any(header_count < 0) or np.any(at > ends) or np.any((at < ends) & (header_count == 0)):
        raise CorruptRecordException("a record has another size than it says")

    def of_each(values: Sequence[int]) -> Integers:
        return np.repeat(np.array(values, np.int64), [batch.record_count for batch in batches])

    offsets = of_each([batch.base_offset for batch in batches]) + offset_delta
    is_appended = of_each([batch.has_log_append_time for batch in batches]) != 0
    first_ms, max_ms = ([getattr(batch, name) for batch in batches] for name in _TIMES)
    timestamps_ms = np.where(is_appended, of_each(max_ms), of_each(first_ms) + timestamp_delta)
    wanted = offsets >= of_each([batch.start for batch in batches])
    rows: Any = slice(None) if wanted.all() else wanted
    has_headers = bool(header_count[rows].any())
    return RecordColumns(
        offsets[rows],
        timestamps_ms[rows],
        is_appended[rows].astype(np.int32),
        _gather(data, key_begins[rows], key_size[rows]),
        _gather(data, value_begins[rows], value_size[rows]),
        _gather(data, header_begins[rows], (ends - header_begins)[rows]) if has_headers else None,
    )


_TIMES: Final = ("first_timestamp_ms", "max_timestamp_ms")


def _record_starts(data: bytes, starts: Sequence[int], batches: Sequence[FetchedBatch]) -> list[int]:
    """Return the start of each record. A record begins with its size, which leads to the next record.

    starts: the start of each batch's first record.
    """
    found: list[int] = []
    for start, batch in zip(starts, batches, strict=True):
        at, end = start, start + batch.payload_bytes
        for _ in range(batch.record_count):
            found.append(at)
            octet = data[at]
            if octet >= 0x80 and (second := data[at + 1]) < 0x80:  # most sizes have two bytes, 14 bits
                at += 2 + (octet - 0x80 + (second << 7) >> 1)  # zigzag; no size is negative
                continue
            size = octet & 0x7F
            shift = 7
            while octet >= 0x80:
                at += 1
                octet = data[at]
                size |= (octet & 0x7F) << shift
                shift += 7
            at += 1 + (size >> 1)
        if at != end:
            raise CorruptRecordException(f"the records of the batch at offset {batch.base_offset} don't fill it")
    return found


def _varints(octets: NDArray[np.uint8], at: Integers) -> tuple[Integers, Integers]:
    """Return the numbers at these places, and the places after them. They are Protocol Buffers' zigzag varints."""
    octet = octets[at]
    bits = (octet & 0x7F).astype(np.uint64)
    at = at + 1
    more = np.flatnonzero(octet >= 0x80)
    shift = 7
    while len(more):
        if shift >= 7 * _VARINT_BYTES_MAX:
            raise CorruptRecordException("a number of more than ten bytes")
        octet = octets[at[more]]
        bits[more] |= (octet & 0x7F).astype(np.uint64) << np.uint64(shift)
        at[more] += 1
        more = more[octet >= 0x80]
        shift += 7
    sign = np.uint64(0) - (bits & np.uint64(1))
    return ((bits >> np.uint64(1)) ^ sign).view(np.int64), at


def _checked(at: Integers, ends: Integers) -> Integers:
    if np.any(at > ends) or np.any(at < 0):
        raise CorruptRecordException("a record holds more than its size")
    return at


def _gather(data: bytes, begins: Integers, sizes: Integers) -> BinaryColumn:
    """Return a column of these byte ranges. A negative size is a null."""
    n = len(begins)
    if not n:
        return pa.array([], pa.binary())
    positions = np.empty(2 * n, np.int32)
    positions[0::2] = begins
    positions[1::2] = begins + np.maximum(sizes, 0)
    # The wanted values and the bytes in between alternate.
    by_turns = pa.BinaryArray.from_buffers(pa.binary(), 2 * n - 1, [None, pa.py_buffer(positions), pa.py_buffer(data)])
    is_null = sizes < 0
    return by_turns.take(pa.array(np.arange(0, 2 * n, 2), mask=is_null if is_null.any() else None))


def _parsed_headers(octets: bytes) -> Headers:
    """Return the headers. Raises CorruptRecordException for data that is no list of headers."""
    try:
        count, at = _varint(octets, 0)
        found = []
        for _ in range(count):
            name, at = _sized(octets, at)
            value, at = _sized(octets, at)
            if name is None:
                raise CorruptRecordException("a header without a name")
            found.append((name.decode(), value))
    except (IndexError, UnicodeDecodeError):
        raise CorruptRecordException("headers that can't be read") from None
    if at != len(octets):
        raise CorruptRecordException("headers of another size than their record has for them")
    return tuple(found)


def _sized(octets: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(octets, at)
    if size < 0:
        return None, at
    if at + size > len(octets):
        raise IndexError
    return octets[at : at + size], at + size


def _varint(octets: bytes, at: int) -> tuple[int, int]:
    bits = shift = 0
    while True:
        octet = octets[at]
        at += 1
        bits |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            return (bits >> 1) ^ -(bits & 1), at
