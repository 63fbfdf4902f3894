"""What becomes of a truncate of a source table: it empties the table, where that is exact, and else stops it.

Rows that came before it are gone, those that come after stay. That is the order of one partition; among several there
is none: nothing says which of their records came before a record of another. And all rows must be those of the source
table that was emptied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from checkpoint.offsets import TopicPartition
from ingest.formats.base import DecodeFailure
from ingest.tables.table_origins import TableOrigins
from ingest.tables.table_sink import TableSink
from storage.logs import get_logger

_log = get_logger(__name__)


class KnownPartitions(Protocol):
    """`checkpoint.coordinator.CheckpointCoordinator`."""

    def partitions_of(self, table: str) -> frozenset[TopicPartition]: ...


class Truncates:
    """sinks: the tables that take part, by name; it may change.
    are_applied: the configuration's word.
    """

    def __init__(self, sinks: Mapping[str, TableSink], origins: TableOrigins, *, are_applied: bool) -> None:
        self._sinks = sinks
        self._origins = origins
        self._are_applied = are_applied

    def reason_against(self, failure: DecodeFailure, topic: str, known: KnownPartitions) -> str | None:
        """Why it can't be carried out; "" where there is nothing to say; None: it can."""
        if not self._are_applied or failure.target is None or failure.source is None:
            return ""
        table = failure.target.name
        origins = self._origins.of(table)
        partitions = sum(partition.topic == topic for partition in known.partitions_of(table))
        if partitions != 1:
            return f"topic {topic} has {partitions} partitions, and a truncate has no order among them"
        if origins.tables is None or origins.topics is None:
            return (
                f"nobody knows whether all rows of {table} are those of {failure.source}: an earlier release wrote to "
                "it, or many source tables feed it"
            )
        if others := sorted(origins.tables - {str(failure.source)}):
            return f"{table} also has rows of {', '.join(others)}, which would go, too"
        if others := sorted(origins.topics - {topic}):
            return f"rows of {table} also came from topic {', '.join(others)}, and there is no order among topics"
        return None

    def empty(self, failure: DecodeFailure) -> None:
        """The table's next snapshot holds nothing of what came until now. Blocks."""
        assert failure.target is not None
        self._sinks[failure.target.name].truncate()
        _log.warning(
            "table emptied", table=failure.target.name, reason=f"{failure.source} was truncated", offset=failure.offset
        )
