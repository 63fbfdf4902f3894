"""Reads partitions and offsets from Kafka, in the driver. Its calls block."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.checkpoint.position_problems import first_few
from tidelake.errors import BadInput
from tidelake.ingest.sources.kafka.kafka_source import KafkaSource
from tidelake.ingest.sources.source import AtGroupOffsets, AtTimestamp, Earliest, Latest
from tidelake.spark.kafka.connector_offsets import EARLIEST, LATEST, Offsets
from tidelake.spark.kafka.kafka_options import Boundary, KafkaReadOptions

T = TypeVar("T")


class Topics:
    """The topics to read. It connects at the first call; `close` it."""

    def __init__(self, options: KafkaReadOptions) -> None:
        self._options = options
        self._runner = asyncio.Runner()
        self._source: KafkaSource | None = None

    def close(self) -> None:
        if self._source is not None:
            self._run(self._source.close())
        self._runner.close()

    def partitions(self) -> frozenset[TopicPartition]:
        """Return the existing partitions to read.

        Raises BadInput for a topic, or an assigned partition, that never existed; PositionRefused for a topic that was
        created again.
        """
        if self._source is None:
            source = KafkaSource(self._options.settings, frozenset())
            try:
                partitions = self._run(source.open())
            except BaseException:
                self._run(source.close())
                raise
            self._source = source
            if missing := (self._options.assigned or frozenset()) - partitions:
                raise BadInput(
                    f"{source}: option assign names partitions that don't exist: {first_few(map(str, sorted(missing)))}"
                )
        else:
            partitions = self._run(self._source.refresh())
        return partitions if self._options.assigned is None else partitions & self._options.assigned

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        """Return the offsets that the brokers hold."""
        return self._run(self._open_source().bounds(partitions))

    def offsets(self, boundary: Boundary, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of a boundary.

        Raises BadInput unless a boundary with offsets or times names these partitions.
        """
        if boundary.group is not None:
            return self._run(self._open_source().offsets(partitions, AtGroupOffsets(boundary.group)))
        if boundary.timestamp_ms is not None:
            return self._not_older(dict.fromkeys(partitions, boundary.timestamp_ms))
        if boundary.timestamps_ms is not None:
            self._check_complete(boundary.timestamps_ms, partitions)
            return self._not_older({p: boundary.timestamps_ms[p] for p in partitions})
        given = boundary.offsets
        if given is None:
            given = dict.fromkeys(partitions, EARLIEST if boundary.everywhere is None else boundary.everywhere)
        self._check_complete(given, partitions)
        earliest = self._run(self._open_source().offsets([p for p in partitions if given[p] == EARLIEST], Earliest()))
        latest = self._run(self._open_source().offsets([p for p in partitions if given[p] == LATEST], Latest()))
        return {p: offset for p, offset in given.items() if offset >= 0} | earliest | latest

    def _not_older(self, timestamps_ms: Offsets) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for timestamp_ms in set(timestamps_ms.values()):
            of_this = [p for p, at_ms in timestamps_ms.items() if at_ms == timestamp_ms]
            found |= self._run(self._open_source().offsets(of_this, AtTimestamp(timestamp_ms)))
        return found

    def check_matches(self, starts: Offsets, bounds: dict[TopicPartition, OffsetRange]) -> None:
        """Check a start by time. Raises BadInput for partitions without a record that new."""
        if missing := [p for p, offset in starts.items() if offset >= bounds[p].end]:
            raise BadInput(
                f"{self._open_source()}: no record of {first_few(map(str, sorted(missing)))} is as new as the starting "
                "timestamp. Set an earlier one, or startingOffsetsByTimestampStrategy=latest to start these "
                "partitions at their end"
            )

    def _check_complete(self, given: Offsets, partitions: Collection[TopicPartition]) -> None:
        missing, unknown = set(partitions) - given.keys(), given.keys() - set(partitions)
        if missing or unknown:
            what = "doesn't name" if missing else "names partitions that don't exist or are not read"
            raise BadInput(
                f"{self._open_source()}: the option with offsets {what}: "
                f"{first_few(map(str, sorted(missing or unknown)))}. Name every partition, with -2 for the "
                "earliest and -1 for the latest offset"
            )

    def _open_source(self) -> KafkaSource:
        if self._source is None:
            self.partitions()
        assert self._source is not None
        return self._source

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def __str__(self) -> str:
        return str(self._source)
