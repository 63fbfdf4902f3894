"""Parses lines of a change log to columns. Each line is a JSON object that represents a Kafka record.

    {"topic", "partition", "offset", "timestamp_ms", "key", "value", "headers": [[name, text], …]}

`key` and `value` are text or null. `key_base64` and `value_base64` contain bytes that are no text. `timestamp_type` may
be CreateTime, LogAppendTime or NoTimestampType, as in Kafka. Other members are ignored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.raw_batch import BinaryColumn, Headers, RawBatch, TimestampTypes, joined_types, timestamp_types_of

_Partition = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=0, lt=2**63 - 1)]
_Timestamp = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Line(msgspec.Struct, gc=False):  # without gc: tracking the objects of a block costs more than decoding them
    topic: str
    partition: _Partition
    offset: _Offset
    timestamp_ms: _Timestamp = -1
    key: str | None = None
    value: str | None = None
    key_base64: bytes | None = None
    value_base64: bytes | None = None
    timestamp_type: Any = None  # any type: other values come from other tools, and are ignored
    headers: msgspec.Raw = msgspec.Raw(b"[]")  # the same text in almost all lines, so it is decoded once


_LINE_END: Final = re.compile(rb"\n")
_SHOWN_BYTES: Final = 120
PIECE_BYTES: Final = 1 << 20  # the objects of this many bytes stay in the CPU cache; those of a block don't

_line_decoder: Final = msgspec.json.Decoder(_Line)
_headers_decoder: Final = msgspec.json.Decoder(list[tuple[str, str | None]] | None)


class BadLine(Exception):
    """A line that is no record.

    offset: its start, in bytes from the first given line.
    text: the beginning of the line, as much as an error shows.
    reason: the reason why it is no record.
    """

    def __init__(self, offset: int, text: bytes, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.text = text
        self.reason = reason

    def sentence(self, where: str) -> str:
        """Return the error message.

        where: the place of the line.
        """
        return (
            f"{where}: not a change record: {self.reason}: {self.text!r}. Each line must be an object with topic, "
            "partition, offset, key, value, timestamp_ms and headers"
        )


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """Records of one partition in one block, in the order of their lines."""

    partition: TopicPartition
    offsets: NDArray[np.int64]
    timestamps_ms: NDArray[np.int64]
    keys: BinaryColumn
    values: BinaryColumn
    headers: dict[int, Headers]
    timestamp_types: TimestampTypes | None = None

    def batch(self, first: int) -> RawBatch:
        """Return the records from row `first` on. Their offsets must rise."""
        whole = RawBatch(
            self.partition.topic,
            self.partition.partition,
            self.offsets,
            self.timestamps_ms,
            self.keys,
            self.values,
            int(self.offsets[-1]) + 1,
            self.headers,
            self.timestamp_types,
        )
        return whole.slice(first, len(whole)) if first else whole


def parse_records(block: bytes | memoryview, kept_headers: Collection[str]) -> list[PartitionRecords]:
    """Parse a block of lines. Returns the records by partition, in the order of the partitions' first lines.

    Blank lines are ignored.

    kept_headers: names of the headers to keep.

    Raises BadLine for the first line that is no record.
    """
    return _parsed(_chunk_lines(block), kept_headers)


def parse_lines(lines: pa.StringArray, kept_headers: Collection[str]) -> list[PartitionRecords]:
    """Parse lines like `parse_records`.

    lines: without line ends and nulls.
    """
    return _parsed(_pieces_of_lines(lines), kept_headers)


def _parsed(pieces: Iterable[memoryview], kept_headers: Collection[str]) -> list[PartitionRecords]:
    parts: dict[TopicPartition, list[PartitionRecords]] = {}
    begin = 0
    for piece in pieces:
        try:
            for records in _records_of_piece(piece, kept_headers):
                parts.setdefault(records.partition, []).append(records)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise _first_bad_line(bytes(piece), begin) from None
        begin += len(piece)
    return [_joined(of_one) for of_one in parts.values()]


def _chunk_lines(block: bytes | memoryview) -> Iterator[memoryview]:
    view, start = memoryview(block), 0
    while start < len(view):
        line_end = _LINE_END.search(view, start + PIECE_BYTES)
        end = len(view) if line_end is None else line_end.end()
        yield view[start:end]
        start = end


def _pieces_of_lines(lines: pa.StringArray) -> Iterator[memoryview]:
    """Yield pieces of the lines, without creating a Python object per line."""
    rows = 1 + len(lines) * PIECE_BYTES // max(1, lines.nbytes)
    for start in range(0, len(lines), rows):
        ended = pc.binary_join_element_wise(lines.slice(start, rows), "", "\n")
        _, positions, text = ended.buffers()
        yield memoryview(text)[: np.frombuffer(positions, np.int32)[len(ended)]]


def _records_of_piece(piece: memoryview, kept_headers: Collection[str]) -> list[PartitionRecords]:
    lines: Sequence[_Line] = _line_decoder.decode_lines(piece)
    groups: dict[tuple[str, int], list[_Line]] = defaultdict(list)
    for line in lines:
        groups[line.topic, line.partition].append(line)
    return [_records(TopicPartition(*partition), group, kept_headers) for partition, group in groups.items()]


def _records(partition: TopicPartition, lines: list[_Line], kept_headers: Collection[str]) -> PartitionRecords:
    return PartitionRecords(
        partition,
        np.array([line.offset for line in lines], np.int64),
        np.array([line.timestamp_ms for line in lines], np.int64),
        _column([line.key for line in lines], [line.key_base64 for line in lines]),
        _column([line.value for line in lines], [line.value_base64 for line in lines]),
        _headers([line.headers for line in lines], kept_headers),
        _timestamp_types([line.timestamp_type for line in lines]),
    )


def _joined(parts: list[PartitionRecords]) -> PartitionRecords:
    """Join parts of one partition."""
    if len(parts) == 1:
        return parts[0]
    starts = accumulate((len(part.offsets) for part in parts), initial=0)
    return PartitionRecords(
        parts[0].partition,
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.timestamps_ms for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
        {start + row: found for start, part in zip(starts, parts, strict=False) for row, found in part.headers.items()},
        joined_types([(part.timestamp_types, len(part.offsets)) for part in parts]),
    )


def _timestamp_types(names: list[Any]) -> TimestampTypes | None:
    if names.count(None) == len(names):
        return None
    return timestamp_types_of([name if isinstance(name, str) else None for name in names])


def _column(texts: list[str | None], encoded: list[bytes | None]) -> BinaryColumn:
    """Return a column of bytes. Base64 values take precedence over texts."""
    if encoded.count(None) == len(encoded):
        return pa.array(texts, pa.binary())
    return pa.array([text if data is None else data for text, data in zip(texts, encoded, strict=True)], pa.binary())


def _headers(texts: list[msgspec.Raw], kept: Collection[str]) -> dict[int, Headers]:
    """Return row number to its headers with these names. Most rows have the same headers as the first."""
    first = texts[0]
    usual = _decoded_headers(first, kept)
    if texts.count(first) == len(texts):
        return dict.fromkeys(range(len(texts)), usual) if usual else {}
    found = [usual if text == first else _decoded_headers(text, kept) for text in texts]
    return {row: headers for row, headers in enumerate(found) if headers}


def _decoded_headers(text: msgspec.Raw, kept: Collection[str]) -> Headers:
    pairs = _headers_decoder.decode(text) or []
    return tuple((name, None if value is None else value.encode()) for name, value in pairs if name in kept)


def _first_bad_line(piece: bytes, begin: int) -> BadLine:
    """Find the first bad line of a piece that failed, line by line. The piece begins at offset `begin`."""
    offset = begin
    for text in piece.split(b"\n"):
        try:
            if text.strip():
                _headers_decoder.decode(_line_decoder.decode(text).headers)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return BadLine(offset, text[:_SHOWN_BYTES], str(error))
        offset += len(text) + 1
    raise AssertionError("lines that are records one by one, but not together")


def encode_records(batch: RawBatch) -> bytes:
    """Return a line for each record, as `parse_records` reads them.

    A header whose value is no text is dropped: a change log can't hold it.
    """
    keys, values = batch.keys.to_pylist(), batch.values.to_pylist()
    return b"".join(
        msgspec.json.encode(
            {
                "topic": batch.topic,
                "partition": batch.partition,
                "offset": int(offset),
                "timestamp_ms": int(batch.timestamps_ms[row]),
                "timestamp_type": batch.timestamp_type(row),
                **_text_or_base64("key", keys[row]),
                **_text_or_base64("value", values[row]),
                "headers": [
                    (name, _text(value))
                    for name, value in batch.headers.get(row, ())
                    if value is None or _text(value) is not None
                ],
            }
        )
        + b"\n"
        for row, offset in enumerate(batch.offsets)
    )


def _text_or_base64(name: str, value: bytes | None) -> dict[str, str | bytes | None]:
    if value is None or (text := _text(value)) is not None:
        return {name: None if value is None else text}
    return {f"{name}_base64": value}  # encoded as Base64


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def is_complete(line: bytes) -> bool:
    """Return whether a text without a line end is a complete JSON object. A truncated object never is."""
    try:
        msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


def first_decrease(offsets: NDArray[np.int64], expected: int) -> tuple[int, int] | None:
    """Return the first offset that isn't above its predecessor, and that predecessor. None: all rise from `expected`
    on.
    """
    steps = np.diff(offsets, prepend=expected - 1)
    falls = np.flatnonzero(steps <= 0)
    return (int(offsets[falls[0]]), int(offsets[falls[0]] - steps[falls[0]])) if len(falls) else None
