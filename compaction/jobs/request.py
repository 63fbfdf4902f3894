"""Decides which partitions a compaction job takes and how it sorts their rows, and refuses what can't be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelake.compaction.append.clustering import ClusteringStrategy
from tidelake.compaction.append.sort_rewriter import Clustering
from tidelake.errors import BadInput
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import Operation
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.predicate import Predicate

_JOB_OPTIONS: Final = {
    "write-only": "false",  # write-only tables leave compaction to this job
    "lookup-compact": "radical",  # `gentle` counts calls; here the user decides about each call
}


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """What a compaction job should do.

    full: compact everything, not only what is due
    where: a condition on partition columns; None takes all partitions
    order_by: cluster all rows by these columns
    strategy: how to cluster; None chooses by their number
    """

    full: bool = False
    where: Predicate | None = None
    order_by: tuple[str, ...] = ()
    strategy: ClusteringStrategy | None = None

    def __post_init__(self) -> None:
        if self.strategy is not None and not self.order_by:
            raise BadInput(f"strategy {self.strategy} says how to sort; name the columns to sort by")

    def prepare(self, context: TableContext) -> TableContext:
        """Return the table's context for the job. Raises BadInput or UnsupportedFeature for an impossible request."""
        compacting = context.with_options(_JOB_OPTIONS)
        check_supported(compacting, Operation.COMPACT)
        if self.where is not None:
            _check_where(self.where.columns, context.schema.partition_keys, context.name)
            self.where.expression(context.schema.arrow)
        if self.order_by:
            self.clustering(context)
        return compacting

    def clustering(self, context: TableContext) -> Clustering:
        if bucket_mode(context.schema, context.options) is not BucketMode.UNAWARE:
            why = "their key orders them" if context.schema.has_primary_key else "they keep their order in buckets"
            raise BadInput(
                f"{context.name}: rows can't be sorted, {why}. Only append tables with bucket = -1 can be sorted; "
                "compact this table without sorting"
            )
        return Clustering.of(context, self.order_by, self.strategy)


def _check_where(columns: frozenset[str], partition_keys: Sequence[str], table_name: str) -> None:
    others = sorted(columns - set(partition_keys))
    if others:
        by = f"is partitioned by {', '.join(partition_keys)}" if partition_keys else "is not partitioned"
        raise BadInput(f"{table_name} {by}; a condition on {others[0]!r} can't select the partitions to compact")
