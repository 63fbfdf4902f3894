"""`format("tidelake-kafka")`: the driver plans ranges of offsets, tasks read them.

Spark does not record the start of a query before its first batch is done. So the first batch is empty: its end, which
Spark logs, is the start of the read. A new partition's first batch ends where the partition begins. From then on each
range is between two logged offsets, and a batch that is planned again has the same records.

Source: PySpark `sql/streaming/python_streaming_source_runner.py`; Spark `KafkaMicroBatchStream.scala`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.ingest.spark.task_start import log_as_configured
from tidelake.spark.kafka.connector_offsets import EARLIEST, LATEST, Offsets, from_members, to_members
from tidelake.spark.kafka.kafka_options import FORMAT, Boundary, KafkaReadOptions
from tidelake.spark.kafka.ranges import RecordRange, held_parts, limited, missing_ranges, ranges_between, tasks
from tidelake.spark.kafka.record_reading import record_batches, report_change, report_lost_records
from tidelake.spark.kafka.topics import Topics
from tidelake.spark.read_limits import (
    HAS_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from tidelake.spark.spark_types import check_columns, record_schema
from tidelake.storage.base import env

_INITIAL_OFFSET: Final[dict[str, Any]] = {}  # the offset of a query before its first batch


class RangesPartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[RecordRange]) -> None:
        super().__init__(None)
        self.ranges = ranges


class _RecordReader:
    """The common base of both readers. Spark pickles it for each task; each process opens its own connection."""

    def __init__(self, options: KafkaReadOptions, schema: StructType) -> None:
        check_columns(schema, record_schema(has_headers=options.has_headers), FORMAT)
        self._options = options
        self._schema = schema
        self._topics: Topics | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_topics": None}

    def _connected(self) -> Topics:
        if self._topics is None:
            self._topics = Topics(self._options)
        return self._topics

    def stop(self) -> None:
        if self._topics is not None:
            self._topics.close()
            self._topics = None

    def _starts(self, boundary: Boundary, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        topics = self._connected()
        starts = topics.offsets(boundary, partitions)
        if (boundary.timestamp_ms is not None or boundary.timestamps_ms is not None) and self._options.needs_match:
            topics.check_matches(starts, topics.bounds(partitions))
        return starts

    def _partitions_of(self, starts: Offsets, ends: Offsets) -> list[InputPartition]:
        """Plan the tasks.

        Records that no longer exist raise PositionRefused, or are left out with a warning, as options define.
        """
        topics = self._connected()
        wanted = ranges_between(starts, ends)
        partitions = topics.partitions()
        held = topics.bounds([part.partition for part in wanted if part.partition in partitions])
        self._report(missing_ranges(wanted, held))
        found = tasks(held_parts(wanted, held), self._options.min_partitions, self._options.max_records)
        return [RangesPartition(ranges) for ranges in found]

    def _report(self, lost: Sequence[RecordRange]) -> None:
        report_lost_records(str(self._options.settings.bootstrap_servers), lost, fails=self._options.fails_on_loss)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition. Without partitions Spark passes its own one, which has no records."""
        if isinstance(partition, RangesPartition):
            log_as_configured()
            yield from record_batches(self._options, self._schema, partition.ranges)


class KafkaBatchReader(_RecordReader, DataSourceReader):
    """Reads from the earliest to the latest offsets, unless the options name others."""

    def __init__(self, options: KafkaReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.has_limits:
            raise BadInput("options maxOffsetsPerTrigger and minOffsetsPerTrigger are only for streams; leave them out")

    def partitions(self) -> Sequence[InputPartition]:
        try:
            partitions = self._connected().partitions()
            ends = self._connected().offsets(self._options.end or Boundary(everywhere=LATEST), partitions)
            starts = self._starts(self._options.start or Boundary(everywhere=EARLIEST), partitions)
            self._check_in_range(starts, ends)
            return self._partitions_of(starts, ends)
        finally:
            self.stop()

    def _check_in_range(self, starts: Offsets, ends: Offsets) -> None:
        """Check starting offsets that the options name. Raises BadInput for a start after its end.

        A start past the end of a partition means lost records: PositionRefused, or a warning, as in a stream.
        """
        named = self._options.start.offsets if self._options.start is not None else None
        after = {p: at for p, at in (named or {}).items() if at >= 0 and at > ends.get(p, at)}
        if not after:
            return
        held = self._connected().bounds(after)
        past = {p: at for p, at in after.items() if at > held[p].end}
        if past:
            texts = [f"{p} ends at {held[p].end}, but startingOffsets is {at}" for p, at in sorted(past.items())]
            report_change(str(self._options.settings.bootstrap_servers), texts, self._options.fails_on_loss)
        if self._options.end is not None and (wrong := sorted(after.keys() - past.keys())):
            first = wrong[0]
            raise BadInput(
                f"{first}: startingOffsets is {after[first]}, after the end of the read at {ends[first]}. Lower "
                "startingOffsets, or raise endingOffsets"
            )


class KafkaStreamReader(_RecordReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads from the latest offsets, unless the options name others, and new partitions from their first record.

    Spark keeps one reader in a process of the driver.
    """

    def __init__(
        self,
        options: KafkaReadOptions,
        schema: StructType,
        now_ms: Callable[[], float] = lambda: env.monotonic_s() * 1000,
    ) -> None:
        super().__init__(options, schema)
        if options.end is not None:
            raise BadInput(
                "options endingOffsets, endingTimestamp and endingOffsetsByTimestamp are only for batch reads"
            )
        self._now_ms = now_ms
        self._target: dict[TopicPartition, int] | None = None  # for trigger availableNow
        self._is_bounded = False
        self._last_batch_ms = now_ms()
        if not HAS_LIMITS and options.has_limits:
            raise UnsupportedFeature(
                "maxOffsetsPerTrigger",
                "PySpark 4.1 passes neither the start of a batch nor its limit to a data source",
                "Leave it out, or use PySpark 4.2",
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_now_ms": None}

    # ---------------------------------------------------------------- Spark's calls

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._is_bounded = True

    if HAS_LIMITS:

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
            return dict(_INITIAL_OFFSET)

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
            """Return any limit: its value has no effect, but it makes `latestOffset` apply the options."""
            return ReadMaxRows(self._options.max_offsets or 2**62) if self._options.has_limits else ReadAllAvailable()

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
            partitions = self._connected().partitions()
            if self._is_bounded and self._target is None:
                self._target = self._ends(partitions)
            if not start:
                return to_members(self._first(partitions))
            end = self._next(from_members(start), partitions, is_limited=not isinstance(limit, ReadAllAvailable))
            return start if end == from_members(start) else to_members(end)

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
            return to_members(self._ends(self._connected().partitions()))

    else:

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
            return to_members(self._first(self._connected().partitions()))

        def latestOffset(self) -> dict[str, Any]:  # type: ignore[misc]  # noqa: N802 - Spark's name
            return to_members(self._ends(self._connected().partitions()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        starts, ends = from_members(start), from_members(end)
        if not HAS_LIMITS:
            starts = self._earliest_offsets_of_new(ends.keys() - starts.keys()) | starts
        return self._partitions_of(starts, ends)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: all state is in Spark's log."""

    # ---------------------------------------------------------------- ends of batches

    def _first(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        starts = self._starts(self._options.start or Boundary(everywhere=LATEST), partitions) | self._continued(
            partitions
        )
        if self._target is not None:
            self._target = {p: max(end, starts[p]) for p, end in self._target.items() if p in starts}
        return starts

    def _continued(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the starts of partitions of which records were read before this query.

        Other partitions of their topics are new, and begin at their oldest record.
        """
        continued = self._options.continued
        topics = {partition.topic for partition in continued}
        new = [p for p in partitions if p.topic in topics and p not in continued]
        oldest = self._connected().offsets(Boundary(everywhere=EARLIEST), new) if new else {}
        return {p: at for p, at in continued.items() if p in partitions} | oldest

    def _next(
        self, begin: Offsets, partitions: frozenset[TopicPartition], *, is_limited: bool
    ) -> dict[TopicPartition, int]:
        available = self._ends(partitions)
        self._check_not_truncated(begin, available, partitions)
        reached = {p: end for p, end in available.items() if p in begin}
        most = self._options.max_offsets if is_limited else None
        end = reached if most is None else limited(begin, reached, most)
        new = self._earliest_offsets_of_new(available.keys() - begin.keys())
        if is_limited and not self._is_bounded and not new and self._is_too_early(begin, end):
            return dict(begin)
        if end != begin:
            self._last_batch_ms = self._now_ms()
        return {**end, **new}

    def _ends(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        if self._target is not None:
            return {p: end for p, end in self._target.items() if p in partitions}
        return self._connected().offsets(Boundary(everywhere=LATEST), partitions)

    def _check_not_truncated(self, begin: Offsets, available: Offsets, partitions: frozenset[TopicPartition]) -> None:
        """Raise PositionRefused, or warn, if a partition is gone or ends before the offset that was read."""
        missing = [f"{p} was deleted; it was read up to {at}" for p, at in sorted(begin.items()) if p not in partitions]
        shorter = [
            f"{p} ends at {available[p]}, but was read up to {at}"
            for p, at in sorted(begin.items())
            if available.get(p, at) < at
        ]
        if missing or shorter:
            report_change(
                str(self._options.settings.bootstrap_servers), [*missing, *shorter], self._options.fails_on_loss
            )

    def _earliest_offsets_of_new(self, new: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offsets of new partitions.

        Raises PositionRefused, or warns, if the first records of one were deleted before they were read.
        """
        found = self._connected().offsets(Boundary(everywhere=EARLIEST), new) if new else {}
        self._report([RecordRange(p, 0, at) for p, at in sorted(found.items()) if at > 0])
        return found

    def _is_too_early(self, begin: Offsets, end: Offsets) -> bool:
        if self._options.min_offsets is None:
            return False
        is_late = self._now_ms() - self._last_batch_ms >= self._options.max_delay_ms
        return not is_late and sum(at - begin[p] for p, at in end.items()) < self._options.min_offsets


class KafkaDataSource(DataSource):
    """The data source.

    Its options are in `tidelake.spark.kafka.kafka_options`. Spark keeps it pickled between its calls.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return record_schema(has_headers=KafkaReadOptions.of(self.options).has_headers)

    def reader(self, schema: StructType) -> KafkaBatchReader:
        return KafkaBatchReader(KafkaReadOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> KafkaStreamReader:  # noqa: N802 - Spark's name
        return KafkaStreamReader(KafkaReadOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        raise UnsupportedFeature(
            f'write.format("{FORMAT}")',
            "this data source can only read topics",
            "Write with Spark's Kafka connector",
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        return self.writer(schema, overwrite)
