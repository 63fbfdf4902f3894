"""Encodes raw records as the bytes of one file, batch by batch, in the order of arrival.

The file is a compressed Arrow IPC stream. Each batch of the stream is a `RawBatch`, with topic, partition and next
offset as its metadata. The metadata of the schema contain the head of the segment (`SegmentHead`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.checkpoint.offsets import SourcePosition, position_from_text, position_to_text
from tidelake.errors import CorruptFile, TidelakeError, UnsupportedFeature
from tidelake.ingest.raw_batch import UNKNOWN_TIMESTAMP_TYPE, RawBatch, TimestampTypes

VERSION: Final = 1
_HEAD: Final = b"tidelake.quarantine"
_HEADER: Final = pa.struct([("name", pa.string()), ("value", pa.binary())])
_TIMESTAMP_TYPE: Final = "timestamp_type"  # segments of the first releases lack it, and these releases ignore it
_SCHEMA: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("headers", pa.list_(_HEADER)),
        (_TIMESTAMP_TYPE, pa.int8()),
    ]
)


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """The head of a segment.

    table: the table of the records.
    position: [start, end) of each partition. The segment has every record of the table in these ranges.
    base_id: id of the pipeline's newest snapshot in the table when the first segment began; None if it had none, or if
        it was unknown.
    base_manifest_list: manifest list of that snapshot.
    records: number of records.
    """

    table: str
    position: SourcePosition
    base_id: int | None
    base_manifest_list: str | None
    records: int


def encode_segment(head: SegmentHead, batches: Iterable[RawBatch]) -> bytes:
    """Return the bytes of the file."""
    text = {
        "version": VERSION,
        "table": head.table,
        "position": position_to_text(head.position),
        "base": [head.base_id, head.base_manifest_list],
        "records": head.records,
    }
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, _SCHEMA.with_metadata({_HEAD: json.dumps(text)}), options=options) as writer:
        for batch in batches:
            where = {"topic": batch.topic, "partition": batch.partition, "next": batch.next_offset}
            writer.write_batch(_columns(batch), custom_metadata={b"batch": json.dumps(where)})
    return bytes(sink.getvalue())


def decode_head(data: bytes, path: str) -> SegmentHead:
    """Return the head of a segment.

    Raises CorruptFile for data that is no segment, UnsupportedFeature for a version that this release doesn't know.
    """
    try:
        return _head(pa.ipc.open_stream(pa.py_buffer(data)).schema, path)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptFile(path, "records of a quarantined table", str(error)) from error


def decode_batches(data: bytes, path: str) -> Iterator[RawBatch]:
    """Yield the batches of a segment. Raises the errors of `decode_head`."""
    try:
        reader = pa.ipc.open_stream(pa.py_buffer(data))
        _head(reader.schema, path)
        while True:
            try:
                columns, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            yield _batch(columns, json.loads(metadata[b"batch"]))
    except (pa.ArrowInvalid, OSError, KeyError, ValueError, TypeError) as error:
        raise CorruptFile(path, "records of a quarantined table", str(error)) from error


def _head(schema: pa.Schema, path: str) -> SegmentHead:
    try:
        members = json.loads((schema.metadata or {})[_HEAD])
        if members["version"] != VERSION:
            raise UnsupportedFeature(
                f"version {members['version']} of {path}",
                f"this release reads version {VERSION} of records of quarantined tables",
                "Use the release that wrote it, or a newer one.",
            )
        base_id, base_manifest_list = members["base"]
        position = position_from_text(members["position"], path)
        return SegmentHead(members["table"], position, base_id, base_manifest_list, int(members["records"]))
    except TidelakeError:
        raise
    except (KeyError, ValueError, TypeError) as error:
        raise CorruptFile(path, "records of a quarantined table", f"no readable head ({error})") from error


def _columns(batch: RawBatch) -> pa.RecordBatch:
    headers: list[list[dict[str, Any]] | None] = [None] * len(batch)
    for row, found in batch.headers.items():
        headers[row] = [{"name": name, "value": value} for name, value in found]
    columns = [
        pa.array(batch.offsets, pa.int64()),
        pa.array(batch.timestamps_ms, pa.int64()),
        batch.keys.cast(pa.large_binary()),
        batch.values.cast(pa.large_binary()),
        pa.array(headers, _SCHEMA.field("headers").type),
        pa.nulls(len(batch), pa.int8()) if batch.timestamp_types is None else pa.array(batch.timestamp_types),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _batch(columns: pa.RecordBatch, where: dict[str, Any]) -> RawBatch:
    headers = {
        row: tuple((one["name"], one["value"]) for one in found)
        for row, found in enumerate(
            columns["headers"].to_pylist() if columns["headers"].null_count < len(columns) else ()
        )
        if found is not None
    }
    return RawBatch(
        where["topic"],
        where["partition"],
        np.asarray(columns["offset"]),
        np.asarray(columns["timestamp_ms"]),
        columns["key"].cast(pa.binary()),
        columns["value"].cast(pa.binary()),
        where["next"],
        headers,
        _timestamp_types(columns),
    )


def _timestamp_types(columns: pa.RecordBatch) -> TimestampTypes | None:
    if _TIMESTAMP_TYPE not in columns.schema.names or columns[_TIMESTAMP_TYPE].null_count == len(columns):
        return None
    return np.asarray(columns[_TIMESTAMP_TYPE].fill_null(UNKNOWN_TIMESTAMP_TYPE))
