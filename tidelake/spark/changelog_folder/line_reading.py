"""Reads lines of change logs as Arrow batches of Kafka's columns, in a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput
from tidelake.ingest.raw_batch import UNKNOWN_TIMESTAMP_TYPE
from tidelake.ingest.sources.change_log_file import ChangeLogFile
from tidelake.ingest.sources.change_log_record import BadLine, PartitionRecords, parse_records
from tidelake.spark.changelog_folder.folder_files import FilePart, deleted_file_error
from tidelake.spark.spark_types import RECORD_HEADERS, arrow_form, in_arrow_form, spark_timestamps
from tidelake.storage.fileio.access import Access, access


def record_batches(
    folder: Path,
    schema: StructType,
    parts: Sequence[FilePart],
    kept_headers: frozenset[str],
    starts: Mapping[TopicPartition, int],
) -> Iterator[pa.RecordBatch]:
    """Read the records of file parts as batches.

    kept_headers: names of the headers in the column `headers`
    starts: partition to the offset of its first record; earlier records are left out

    Raises BadInput for a line that is not a record, and for a file that was deleted, truncated or replaced after
    planning.
    """
    form = arrow_form(schema)
    for part in parts:
        path = folder / part.name
        first = 0  # bytes of earlier blocks
        for block in _blocks(folder, part):
            try:
                found = parse_records(block, kept_headers)
            except BadLine as bad:
                at = f"byte {part.start + first + bad.offset}" + (", uncompressed" if part.is_compressed else "")
                raise BadInput(bad.sentence(f"{path}, {at}")) from None
            first += len(block)
            for records in found:
                rows = _rows(records, schema)
                if start := starts.get(records.partition, 0):
                    rows = rows.filter(pa.array(records.offsets >= start))
                if rows.num_rows:
                    yield in_arrow_form(rows, form)


def _blocks(folder: Path, part: FilePart) -> Iterator[bytes | memoryview]:
    path = folder / part.name
    try:
        with access(Access.READ, str(path)):
            size = path.stat().st_size
            if size < part.end or (part.is_compressed and size != part.end):
                raise BadInput(f"{path} has {size} bytes, but had {part.end} when its batch was planned")
        if part.is_compressed:
            yield from _uncompressed(path)
            return
        with path.open("rb") as file:
            file.seek(part.start)
            yield file.read(part.end - part.start)
    except FileNotFoundError:
        raise deleted_file_error(folder, part.name) from None


def _uncompressed(path: Path) -> Iterator[bytes | memoryview]:
    file = ChangeLogFile(path)
    yield from file.blocks()
    if file.is_cut:
        raise BadInput(f"{path} ends within its compressed data. Write the complete file, or remove it")
    if file.tail.strip():
        yield file.tail


def _rows(records: PartitionRecords, schema: StructType) -> pa.RecordBatch:
    """Return the columns of `schema`, in its order."""
    count = len(records.offsets)
    columns: dict[str, Callable[[], pa.Array]] = {
        "key": lambda: records.keys,
        "value": lambda: records.values,
        "topic": lambda: pa.repeat(pa.scalar(records.partition.topic, pa.string()), count),
        "partition": lambda: pa.array(np.full(count, records.partition.partition, np.int32)),
        "offset": lambda: pa.array(records.offsets),
        "timestamp": lambda: _timestamps(records),
        "timestampType": lambda: _timestamp_types(records),
        "headers": lambda: _headers(records),
    }
    return pa.RecordBatch.from_arrays([columns[name]() for name in schema.names], schema.names)


def _timestamps(records: PartitionRecords) -> pa.TimestampArray:
    """Return the records' times; null for a record without a time."""
    return spark_timestamps(records.timestamps_ms, records.timestamps_ms == -1)


def _timestamp_types(records: PartitionRecords) -> pa.Int32Array:
    """Return the records' timestamp types; null for a record without one."""
    types = records.timestamp_types
    if types is None:
        return pa.nulls(len(records.offsets), pa.int32())
    return pa.array(types.astype(np.int32), mask=types == UNKNOWN_TIMESTAMP_TYPE)


def _headers(records: PartitionRecords) -> pa.Array:
    pairs = [records.headers.get(row) for row in range(len(records.offsets))]
    return pa.array([None if of is None else [{"key": k, "value": v} for k, v in of] for of in pairs], RECORD_HEADERS)
