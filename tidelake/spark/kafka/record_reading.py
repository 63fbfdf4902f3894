"""Reads ranges of records as Arrow batches, in a task.

A Python worker of Spark keeps its consumer for later tasks and batches.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import PositionRefused
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka.range_reader import OffsetsUnavailable, RangeReader, header_column
from tidelake.ingest.sources.kafka.record_columns import RecordColumns
from tidelake.spark.kafka.kafka_options import KafkaReadOptions
from tidelake.spark.kafka.ranges import RecordRange
from tidelake.spark.spark_types import arrow_form, in_arrow_form, spark_timestamps
from tidelake.storage.base.logs import get_logger

_log = get_logger(__name__)
T = TypeVar("T")


def record_batches(
    options: KafkaReadOptions, schema: StructType, ranges: Sequence[RecordRange]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of ranges.

    Records that no longer exist raise PositionRefused or are logged, depending on options.
    """
    consumer = KeptConsumer.of(options.settings)
    form = arrow_form(schema)
    for part in ranges:
        position = part.start
        while position < part.end:
            try:
                records, position = consumer.poll(part, position)
            except OffsetsUnavailable as gone:
                lost, position = _lost_range(part, gone)
                report_lost_records(str(options.settings.bootstrap_servers), [lost], fails=options.fails_on_loss)
                continue
            if len(records):
                yield in_arrow_form(_rows(part.partition, records, schema, options.header_names), form)


def report_lost_records(where: str, lost: Sequence[RecordRange], *, fails: bool) -> None:
    """Raise PositionRefused for lost records. If not `fails`, log a warning instead."""
    if lost:
        what = f"it doesn't have these records (any more): {', '.join(map(str, lost))}"
        report_change(
            where, [f"{what}. Retention deleted them before they were read, or the topic was created again"], fails
        )


def report_change(where: str, what: Sequence[str], fails: bool) -> None:
    """Raise PositionRefused, or warn, about changes described in words."""
    if not fails:
        _log.warning("records are lost", where=where, what="; ".join(what), option="failOnDataLoss=false")
        return
    raise PositionRefused(
        f"Kafka at {where}: {'; '.join(what)}",
        [
            "set option failOnDataLoss=false: the query skips them and logs a warning",
            "use a new checkpoint directory, and set startingOffsets to the position where the query must begin",
        ],
    )


def _lost_range(part: RecordRange, error: OffsetsUnavailable) -> tuple[RecordRange, int]:
    """Return the lost part of the range, and the offset to continue from."""
    if error.position < error.held.start:
        end = min(part.end, error.held.start)
        return RecordRange(part.partition, error.position, end), end
    return RecordRange(part.partition, max(error.position, error.held.end), part.end), part.end


class KeptConsumer:
    """A connected consumer with its event loop. The loop runs only while a task waits for records."""

    _kept: tuple[bytes, KeptConsumer] | None = None  # one per process: a worker runs one task at a time

    @classmethod
    def of(cls, settings: KafkaSettings) -> KeptConsumer:
        """Return the consumer of the task before, if it has the same settings, or a new one."""
        key = pickle.dumps(settings)
        if cls._kept is None or cls._kept[0] != key:
            cls.close_kept()
            cls._kept = key, cls(settings)
        return cls._kept[1]

    @classmethod
    def close_kept(cls) -> None:
        if cls._kept is not None:
            (_, consumer), cls._kept = cls._kept, None
            consumer.close()

    def __init__(self, settings: KafkaSettings) -> None:
        self._runner = asyncio.Runner()
        self._reader = RangeReader(settings)
        try:
            self._run(self._reader.open())
        except BaseException:
            self._runner.close()
            raise

    def poll(self, part: RecordRange, position: int) -> tuple[RecordColumns, int]:
        return self._run(self._reader.poll(part.partition, position, part.end))

    def close(self) -> None:
        self._run(self._reader.close())
        self._runner.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine without `Runner.run`.

        `Runner.run` looks up its handler of SIGINT. For this, CPython converts the task with its result to text
        (`signal._int_to_enum`), which took a twelfth of a worker's CPU time for records.
        """
        return self._runner.get_loop().run_until_complete(work)


def _rows(
    partition: TopicPartition, records: RecordColumns, schema: StructType, header_names: Collection[str] | None
) -> pa.RecordBatch:
    """Return the columns of `schema`, in its order."""
    n = len(records)
    columns: dict[str, Callable[[], pa.Array]] = {
        "key": lambda: records.keys,
        "value": lambda: records.values,
        "topic": lambda: pa.repeat(pa.scalar(partition.topic, pa.string()), n),
        "partition": lambda: pa.array(np.full(n, partition.partition, np.int32)),
        "offset": lambda: pa.array(records.offsets),
        "timestamp": lambda: _timestamps(records),
        "timestampType": lambda: pa.array(records.timestamp_types),
        "headers": lambda: _headers(records, header_names),
    }
    return pa.RecordBatch.from_arrays([columns[name]() for name in schema.names], schema.names)


def _headers(records: RecordColumns, names: Collection[str] | None) -> pa.ListArray:
    distinct, of_records = records.distinct_headers()
    if names is not None:
        distinct = [tuple(header for header in headers if header[0] in names) for headers in distinct]
    return header_column(distinct).take(of_records)


def _timestamps(records: RecordColumns) -> pa.TimestampArray:
    """Return the records' times.

    -1, of a record without a time, becomes the last millisecond of 1969, as in Spark's connector.
    """
    return spark_timestamps(records.timestamps_ms)
