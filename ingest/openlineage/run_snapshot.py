"""What a pipeline has read and written at one moment of its run, for an event. Events are made from it in a thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.derived.derived_columns import DerivedColumns
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.shaping.shaped_columns import ShapedColumns
from tidelake.ingest.tables.table_lineage import TableLineage
from tidelake.ingest.tables.table_router import TableRouter
from tidelake.storage.model.table import TableContext

PARTITIONS_MAX: Final = 2_000  # in one event: with more, only their number is sent


@dataclass(frozen=True, slots=True)
class TableOrigins:
    """Where the rows and columns of the tables come from. The mappings grow with the tables.

    shapes: which columns each table takes, their names, masks, the filter.
    derived: the columns that are computed.
    """

    router: TableRouter
    lineage: TableLineage
    shapes: Mapping[str, ShapedColumns]
    derived: Mapping[str, DerivedColumns]

    def topics_of(self, table: str, read: Collection[str]) -> frozenset[str]:
        """Return the topics that the table has rows from. If it has too many, those that its entry takes.

        read: the topics that the pipeline reads.
        """
        known = self.lineage.topics_of(table)
        if known is not None:
            return known
        return frozenset(topic for topic in read if table in self.router.tables_of(topic))


@dataclass(frozen=True, slots=True)
class TableState:
    """One table.

    rows: rows written by this run. snapshot_id: its newest snapshot of this run.
    topics: the topics of its rows.
    """

    context: TableContext
    rows: int
    snapshot_id: int | None
    topics: frozenset[str]
    shape: ShapedColumns
    derived: DerivedColumns


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Positions of one partition. end: the end of its log; None if it is unknown."""

    committed: int
    end: int | None


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """The state of a run.

    topics: records and bytes that this run has read, by topic.
    """

    tables: Mapping[str, TableState] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    topics: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    checkpoints: int = 0

    @classmethod
    def of(
        cls, contexts: Mapping[str, TableContext], observed: RunObservations, origins: TableOrigins | None
    ) -> RunSnapshot:
        """Return the current state. Call it in the event loop; it does not block.

        contexts: the tables that exist.
        """
        read = {partition.topic for partition in observed.partitions} | observed.topics.keys()
        tables = {}
        for name, context in sorted(contexts.items()):
            seen = observed.tables.get(name)
            tables[name] = TableState(
                context,
                0 if seen is None else seen.rows,
                None if seen is None else seen.snapshot_id,
                frozenset() if origins is None else origins.topics_of(name, read),
                ShapedColumns() if origins is None else origins.shapes.get(name, ShapedColumns()),
                DerivedColumns() if origins is None else origins.derived.get(name, DerivedColumns()),
            )
        counts = {topic: (count.records, count.nbytes) for topic, count in observed.topics.items()}
        return cls(
            tables,
            {p: PartitionState(at.committed, at.end) for p, at in sorted(observed.partitions.items())},
            {topic: counts.get(topic, (0, 0)) for topic in sorted(read)},
            observed.checkpoints,
        )
