"""The part of a batch for one table, in the driver: whether it is new, where it continues, and its commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.checkpoint.record_times import RecordTimes
from tidelake.checkpoint.routing import takes_topic
from tidelake.errors import BadInput, BatchOutdated, CommitConflict
from tidelake.ingest.formats.document_ids import DocumentIds
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.spark.assigning.fixed_bucket_job import written_in_fixed_buckets
from tidelake.ingest.spark.batch_commits import BatchCommits, query_user
from tidelake.ingest.spark.batch_position import BatchPosition, Ranges
from tidelake.ingest.spark.batch_rows import BatchInput, RawReader, RawRecords, TypedColumns
from tidelake.ingest.spark.batch_statistics import BatchStatistics, BatchTableStatistics
from tidelake.ingest.spark.batch_target import BatchTarget
from tidelake.ingest.spark.batch_truncates import (
    TruncatedTable,
    TruncateSource,
    Truncation,
    lineage_after,
    plan_truncation,
)
from tidelake.ingest.spark.batch_write import BatchChunks, TaskOutput
from tidelake.ingest.spark.maintenance import maintenance
from tidelake.ingest.spark.query_runs import WRITTEN_BATCHES, Target
from tidelake.ingest.tables.table_lineage import SourceLineage
from tidelake.storage.base.logs import get_logger
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.model.metadata_cache import MetadataCache
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners.cross_partition.assigner import check_replaceable

_log = get_logger(__name__)

_METADATA_BYTES: Final = 128 << 20  # per table: enough for ten thousand buckets with several files each


class TableBatch:
    """The part of a batch for one table.

    Its steps: `is_committed` tells a replay. `plan_truncation` and `check` decide before anything is written. Tasks
    write files, which `in_buckets` may move. `commit` publishes them, or `abort` deletes them.
    """

    def __init__(self, target: BatchTarget, context: TableContext, user: str, batch_id: int, query: str | None) -> None:
        self.context = context
        self.target = target
        self._user = user
        self._batch_id = batch_id
        reread = target.reread if isinstance(target.input, RawRecords) else None
        self._commits = BatchCommits(
            context,
            user,
            query,
            reread,
            target.accept_gap,
            target.guard,
            target.reached,
            target.shared_with,
            self._own_ends(target.read),
            target.properties,
        )
        self._position: BatchPosition | None = None
        self._document_ids = DocumentIds()
        self._truncation: Truncation | None = None
        self._planned_for: SourceLineage | None = None
        self._lineage: SourceLineage | None = None
        self.published: int | None = None

    @classmethod
    def open(cls, target: BatchTarget, batch_id: int, query: str | None) -> TableBatch:
        """Open the table in its newest state."""
        context = open_catalog(target.warehouse, target.options).load(target.table)
        context = context.with_cache(_metadata_cache(context.location))
        if target.overwrite is not None:
            check_replaceable(context, target.overwrite.partition, is_dynamic=target.overwrite.is_dynamic)
        return cls(target, context, target.commit_user or _user_of(query, context), batch_id, query)

    @property
    def input(self) -> BatchInput:
        """How the batch is read, with what the table's snapshots say about it."""
        rows = self.target.input
        if not isinstance(rows, RawRecords):
            return rows
        lineage = self._commits.lineage
        return replace(rows, document_ids=lineage.ids, truncation=self._truncation, marker=lineage.truncate)

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot of the sink's commit user before the batch."""
        return self._commits.newest

    def is_committed(self, offsets: Callable[[], Ranges], run: str | None) -> bool:
        """See `BatchCommits.is_committed`. Raises PositionRefused also for a second part of a batch of typed rows."""
        is_committed = self._commits.is_committed(self._batch_id, lambda: self._own(offsets()))
        if is_committed and run is not None:
            WRITTEN_BATCHES.check_absent(self._target, run, self._batch_id)
        if is_committed:
            _log.info("batch replayed", table=self.context.name, batch_id=self._batch_id)
        return is_committed

    def note_written(self, run: str) -> None:
        if isinstance(self.target.input, TypedColumns):
            WRITTEN_BATCHES.add(self._target, run, self._batch_id)

    @property
    def _target(self) -> Target:
        return Target(self.context.name, self.context.location, self.context.branch, self._user)

    def plan_truncation(self, ranges: Ranges, statistics: BatchTableStatistics, source: TruncateSource) -> bool:
        """Plan the truncate of the decoded batch. Returns whether the batch must be decoded again for it.

        ranges: the offsets of the whole batch.

        Raises RecordRefused for a truncate that can't be applied, and PositionRefused as `check` does.
        """
        rows = self.input
        if self._truncation is not None or not isinstance(rows, RawRecords):
            return False
        self._commits.next_position(self._own(ranges))
        table = TruncatedTable(
            self.context.name,
            self._commits.lineage,
            self._commits.position.position.ends,
            self.target.shared_with,
            self._commits.holds_rows,
            rows.format.CAPABILITIES.order_of,
            RawReader([(self.context, rows)], BatchStatistics()).decode,
        )
        self._planned_for = table.lineage
        self._truncation = plan_truncation(table, statistics, self._own(ranges).keys(), source)
        return self._truncation is not None

    def check(self, ranges: Ranges, statistics: BatchTableStatistics) -> None:
        """Check the batch before anything is written.

        ranges: the offsets of the whole batch.

        Raises BadInput for several source tables, and for document ids of several types that could be one row;
        PositionRefused for offsets that don't continue the table's position.
        """
        is_any = isinstance(self.target.input, RawRecords) and self.target.input.match is None
        if is_any and len(statistics.sources) > 1:
            raise BadInput(
                f"{self.context.name}: the stream has records of {' and '.join(sorted(statistics.sources))}; pass "
                "match=… to choose the ones for this table"
            )
        try:
            for ids in statistics.document_ids:
                self._document_ids.include(self.context.name, ids)
        except BadValue as error:
            raise BadInput(str(error)) from None
        self._position = self._commits.next_position(self._own(ranges))
        if isinstance(self.target.input, RawRecords):
            if self._truncation is not None and self._commits.lineage != self._planned_for:
                raise BatchOutdated(
                    f"{self.context.name}: while a truncate was planned, another stream wrote rows to the table. "
                    "Nothing of the batch was published. Stop one of them; when the batch is repeated, the truncate is "
                    "planned again"
                )
            lineage = lineage_after(self._commits.lineage, statistics, self._truncation)
            self._lineage = replace(lineage, ids=self._document_ids.to_members() or lineage.ids)

    def in_buckets(self, rows: BatchChunks, written: TaskOutput) -> TaskOutput:
        """Move the rows that tasks staged into buckets, if `rescale` is set. Returns the output to commit."""
        if self.target.rescale is None:
            return written
        messages = written_in_fixed_buckets(
            rows.session,
            self.context,
            written.messages,
            commit_user=self._user,
            rescale=self.target.rescale,
            replaces=self.target.overwrite is not None,
            cores=rows.cores,
        )
        return replace(written, messages=messages)

    def commit(
        self, statistics: BatchStatistics, of_table: BatchTableStatistics, written: TaskOutput, *, is_last: bool
    ) -> bool:
        """Commit the output. Returns False if another writer's commit was first: the files are deleted, and the rows
        must be written again.

        is_last: raise CommitConflict instead.
        """
        self.target.keep_dead_letters(self._user, self._batch_id, [*of_table.dead_letters, *written.dead_letters])
        try:
            published = self._publish(written, of_table.times)
        except CommitConflict as conflict:
            self.abort(written)  # no snapshot was published
            if is_last or isinstance(conflict, BatchOutdated):
                raise
            _log.warning("batch is written again", table=self.context.name, batch_id=self._batch_id, why=str(conflict))
            self.check(statistics.ranges, of_table)
            return False
        self.published = published
        if published is not None and self.target.guard is None:
            maintenance.committed(self.context, self._user, published)
        return True

    def abort(self, written: TaskOutput) -> None:
        """Delete the files of a batch that is not committed."""
        TableCommit(self.context, self._user).abort(written.messages)

    def _publish(self, written: TaskOutput, times: RecordTimes | None) -> int | None:
        if self.target.overwrite is None:
            truncation = self._truncation
            published = self._commits.publish(
                self._batch_id,
                written.messages,
                self._position,
                self._lineage,
                times,
                replaces=truncation is not None,
            )
            if truncation is not None and published is not None:
                _log.warning(
                    "table emptied", table=self.context.name, reason=truncation.reason, offset=truncation.offset
                )
            return published
        commit = TableCommit(self.context, self._user, guard=self.target.guard)
        replaced = self.target.overwrite
        committable = Committable(self._batch_id, written.messages, properties=dict(replaced.properties))
        try:
            return commit.overwrite(committable, replaced.partition, dynamic=replaced.is_dynamic)
        except BadInput:
            commit.abort(written.messages)  # the rows are outside of the replaced partition
            raise

    def _own_ends(self, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return {partition: end for partition, end in ends.items() if takes_topic(self.target.topics, partition.topic)}

    def _own(self, ranges: Ranges) -> Ranges:
        return {partition: r for partition, r in ranges.items() if takes_topic(self.target.topics, partition.topic)}


def _user_of(query: str | None, context: TableContext) -> str:
    if query is None:
        raise BadInput(
            f"{context.name}: the id of the streaming query is unknown: sink() was called outside of a query, or on "
            "Spark Connect, which doesn't report it. Pass commit_user=… to sink()"
        )
    return query_user(query, context)


@cache
def _metadata_cache(location: str) -> MetadataCache:
    """Return the table's cache of manifests and live files, which is kept between batches."""
    return MetadataCache(_METADATA_BYTES)
