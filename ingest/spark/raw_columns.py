"""Converts Spark's columns to raw batches: Kafka's columns, or the lines of change-log files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.ingest.raw_batch import UNKNOWN_TIMESTAMP_TYPE, Headers, RawBatch, TimestampTypes
from tidelake.ingest.sources.change_log_record import BadLine, PartitionRecords, parse_lines

_TIMESTAMP_TYPE: Final = "timestampType"


def raw_batches(batch: pa.RecordBatch, kept_headers: frozenset[str]) -> Iterator[RawBatch]:
    """Yield the raw batches of an Arrow batch.

    kept_headers: see `Format`.

    Raises BadInput for other columns, and for a line that is no record.
    """
    names = set(batch.schema.names)
    if {"topic", "partition", "offset", "value"} <= names:
        yield from _from_kafka_columns(batch, kept_headers)
    elif names == {"value"} and pa.types.is_string(batch.schema.field("value").type):
        yield from _from_lines(batch.column("value"), kept_headers)
    else:
        raise BadInput(
            "raw records need Kafka's columns (topic, partition, offset, key, value), or a text column `value` with "
            f"the lines of a change log; the stream has {', '.join(batch.schema.names)}. If the stream has the "
            "table's columns, leave out `format`"
        )


def _from_lines(lines: pa.StringArray, kept_headers: frozenset[str]) -> Iterator[RawBatch]:
    try:
        for records in parse_lines(lines.drop_null(), kept_headers):
            yield _in_offset_order(records).batch(0)
    except BadLine as bad:
        raise BadInput(f"not a record of a change log: {bad.text!r} ({bad.reason})") from None


def _in_offset_order(records: PartitionRecords) -> PartitionRecords:
    """Sort records by offset, because Spark assigns files to a task by size, not by age."""
    order = np.argsort(records.offsets, kind="stable")
    if np.all(order[:-1] < order[1:]):
        return records
    new_place = np.argsort(order)
    return PartitionRecords(
        records.partition,
        records.offsets[order],
        records.timestamps_ms[order],
        records.keys.take(pa.array(order)),
        records.values.take(pa.array(order)),
        {int(new_place[row]): headers for row, headers in records.headers.items()},
        None if records.timestamp_types is None else records.timestamp_types[order],
    )


def _from_kafka_columns(batch: pa.RecordBatch, kept_headers: frozenset[str]) -> Iterator[RawBatch]:
    """Yield one batch per topic partition, in offset order."""
    topics = batch.column("topic").dictionary_encode()
    codes = topics.indices.to_numpy().astype(np.int64) << 32 | batch.column("partition").to_numpy()
    order = np.lexsort((batch.column("offset").to_numpy(), codes))
    if np.any(order[:-1] > order[1:]):  # a source usually delivers one partition after the other
        codes, batch = codes[order], batch.take(pa.array(order))
    edges = np.flatnonzero(np.diff(codes, prepend=-1, append=-1))  # the start of each partition, then n; no code is -1
    for start, stop in pairwise(edges.tolist()):
        rows = batch.slice(start, stop - start)
        offsets = rows.column("offset").to_numpy()
        yield RawBatch(
            topics.dictionary[int(codes[start]) >> 32].as_py(),
            rows.column("partition")[0].as_py(),
            offsets,
            _milliseconds(rows),
            _binary(rows, "key"),
            _binary(rows, "value"),
            int(offsets[-1]) + 1,
            _headers(rows, kept_headers),
            _timestamp_types(rows),
        )


def _milliseconds(rows: pa.RecordBatch) -> NDArray[np.int64]:
    if "timestamp" not in rows.schema.names:
        return np.full(rows.num_rows, -1, np.int64)
    times = rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False)
    milliseconds: NDArray[np.int64] = times.cast(pa.int64()).fill_null(-1).to_numpy()
    return milliseconds


def _timestamp_types(rows: pa.RecordBatch) -> TimestampTypes | None:
    """Return the timestamp types. Spark's connector uses Kafka's numbers. A stream may lack the column."""
    if _TIMESTAMP_TYPE not in rows.schema.names or rows.column(_TIMESTAMP_TYPE).null_count == rows.num_rows:
        return None
    types: TimestampTypes = rows.column(_TIMESTAMP_TYPE).fill_null(UNKNOWN_TIMESTAMP_TYPE).to_numpy().astype(np.int8)
    return types


def _binary(rows: pa.RecordBatch, name: str) -> pa.BinaryArray:
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.binary())
    return rows.column(name).cast(pa.binary())


def _headers(rows: pa.RecordBatch, names: frozenset[str]) -> dict[int, Headers]:
    """Return the headers by row. A stream has headers only if it was read with the option for them."""
    if not names or "headers" not in rows.schema.names:
        return {}
    column = rows.column("headers")
    flat = column.flatten()  # without headers of null rows
    is_kept = pc.is_in(flat.field("key"), pa.array(sorted(names))).to_numpy(zero_copy_only=False)
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    of_kept = np.repeat(np.arange(rows.num_rows), counts)[is_kept].tolist()
    found: dict[int, Headers] = {}
    for row, header in zip(of_kept, flat.filter(pa.array(is_kept)).to_pylist(), strict=True):
        found[row] = (*found.get(row, ()), (header["key"], header["value"]))
    return found
