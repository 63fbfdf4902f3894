"""The batches of one Spark query in one table: finds committed batches, and commits new ones.

It doesn't use Spark: all decisions depend on the table's snapshots and a batch's offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidelake.checkpoint.epoch import EPOCH_PROPERTY
from tidelake.checkpoint.offsets import POSITION_PROPERTY, TopicPartition
from tidelake.checkpoint.record_times import RECORD_TIMES_PROPERTY, RecordTimes
from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.errors import BatchOutdated, PositionRefused
from tidelake.ingest.spark.batch_position import (
    BatchPosition,
    Ranges,
    TablePosition,
    advanced_ranges,
    is_from_batch,
    ranges_text,
)
from tidelake.ingest.tables.table_lineage import LINEAGE_PROPERTY, UNKNOWN, SourceLineage
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.publisher import Guard
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.table_writer import TableWriter

QUERY_PROPERTY: Final = "tidelake.spark-query"  # of a snapshot: the query's id, absent if Spark doesn't report it

_log = get_logger(__name__)


def query_user(query: str, context: TableContext) -> str:
    """Return the commit user of a query whose options don't set one."""
    return f"spark-{query}-{context.name}"


class BatchCommits:
    """The commits of one batch. Call `is_committed`; if it is not, `next_position` and `publish`.

    query: the query's id; None if Spark doesn't report it
    reread: see `sink`; None for typed rows, which have no offsets
    accept_gap: see `sink`
    guard: guard of a batch without offsets; see `Publisher`
    reached: see `SparkSink`
    shared_with: see `SparkSink`
    read: see `SparkSink`
    properties: see `SparkSink`
    """

    def __init__(
        self,
        context: TableContext,
        commit_user: str,
        query: str | None,
        reread: bool | None,
        accept_gap: bool,
        guard: Guard | None = None,
        reached: Mapping[TopicPartition, int] | None = None,
        shared_with: Collection[str] = (),
        read: Mapping[TopicPartition, int] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._context = context
        self._user = commit_user
        self._query = query
        self._reread = reread
        self._accept_gap = accept_gap
        self._guard = guard
        self._reached = reached or {}
        self._shared_with = shared_with
        self._read = read or {}
        self._properties = properties or {}
        self._newest = TableCommit(context, commit_user).latest_of_user()
        self._snapshots = context.snapshots
        self._based_on = 0
        self._lineage = SourceLineage()
        if reread is not None:
            self._read_lineage()

    def is_committed(self, batch_id: int, offsets: Callable[[], Ranges]) -> bool:
        """Return whether the batch is in the table.

        offsets: returns the offsets of the batch; called only if they are needed.

        Raises PositionRefused if the batch's number or a greater one was committed, but the batch can't be its replay.
        """
        if self._newest is None or self._newest.commit_identifier < batch_id:
            return False
        self._check_replay(self._newest, batch_id, offsets)
        return True

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot of the commit user before the batch."""
        return self._newest

    def next_position(self, found: Ranges) -> BatchPosition | None:
        """Return the position for the batch's snapshot; None without offsets.

        Raises PositionRefused for offsets that don't continue the table's position.
        """
        self._based_on = self._snapshots.latest_id() or 0
        if self._reread is not None and self._based_on != self._lineage_of:
            self._read_lineage()
        if not found:
            return None
        table_position_now = self.position
        reached = table_position_now.next_position(found, reread=bool(self._reread), accept_gap=self._accept_gap)
        if reached.position.accepted is not None:
            _log.warning(
                "a gap was accepted",
                table=self._context.name,
                position=ranges_text(table_position_now.position.ranges),
                batch=ranges_text(found),
            )
        return reached

    @property
    def lineage(self) -> SourceLineage:
        """The lineage that the newest snapshot with one records.

        Sources are unknown if a newer snapshot has a position without a lineage: an earlier release wrote it.
        """
        return self._lineage

    def _read_lineage(self) -> None:
        latest = self._snapshots.latest()
        self._lineage_of = 0 if latest is None else latest.id
        is_complete = True
        for snapshot in self._snapshots.backwards_from(latest) if latest is not None else ():
            if snapshot.commit_user in self._shared_with:
                continue
            if LINEAGE_PROPERTY in snapshot.properties:
                found = SourceLineage.of(snapshot.properties)
                self._lineage = found if is_complete else replace(found, tables=None, topics=None)
                return
            is_complete = is_complete and POSITION_PROPERTY not in snapshot.properties
        self._lineage = SourceLineage() if is_complete else UNKNOWN

    def holds_rows(self) -> bool:
        """Return whether the newest snapshot has rows, of any writer."""
        latest = self._snapshots.latest()
        return latest is not None and latest.total_record_count > 0

    @property
    def position(self) -> TablePosition:
        """The position of the table before the batch."""
        own = self._newest if self._newest is not None and self._is_same_query(self._newest) else None
        return TablePosition.of(self._context.name, self._snapshots, own, self._reached, self._shared_with, self._read)

    def publish(
        self,
        batch_id: int,
        messages: Sequence[CommitMessage],
        reached: BatchPosition | None,
        lineage: SourceLineage | None = None,
        times: RecordTimes | None = None,
        *,
        replaces: bool = False,
    ) -> int | None:
        """Commit the batch, and return the snapshot's id.

        lineage: what the snapshot records of the lineage; None if nothing.
        times: times of the records of the batch; None if they have none.
        replaces: the rows replace all rows of the table. Then there is a snapshot even without rows.

        None: the batch has no changes and no new partitions, or another driver has committed it meanwhile. In the
        second case its files are deleted.
        """
        if not messages and not replaces and (reached is None or not reached.reads_new_partitions):
            return None
        # The tasks' compactions may conflict with a compaction job. Their rows are committed anyway.
        left = TableWriter(self._context, compactor_factory=compact_manager_factory())
        guard = self._position_guard if reached is not None else self._guard
        commit = TableCommit(self._context, self._user, guard=guard, on_lost_compaction=left.restart_compaction)
        properties = {**self._properties, **({} if reached is None else reached.properties)}
        if self._query is not None:
            properties[QUERY_PROPERTY] = self._query
        if lineage is not None:
            properties[LINEAGE_PROPERTY] = lineage.to_text()
        if times is not None:
            properties[RECORD_TIMES_PROPERTY] = times.to_text()
        committable = Committable(batch_id, list(messages), properties=properties)
        published = commit.overwrite(committable, dynamic=False) if replaces else commit.commit(committable)
        if published is None:
            commit.discard_already_committed(committable)
            # If the driver died in between, the rows were committed, but not their compaction.
            left.restart_compaction(messages)
        commit.compact_level_0(committable, left.compact_level_0)
        left.abort()
        _log.info("batch committed", table=self._context.name, batch_id=batch_id, snapshot=published)
        return published

    def _is_same_query(self, snapshot: Snapshot) -> bool:
        """Return whether the snapshot may be from the same query. A missing query id matches every query.

        A pipeline's commit is not a batch, even under this commit user.
        """
        if EPOCH_PROPERTY in snapshot.properties:
            return False
        return self._query is None or snapshot.properties.get(QUERY_PROPERTY) in (self._query, None)

    def _check_replay(self, newest: Snapshot, batch_id: int, offsets: Callable[[], Ranges]) -> None:
        number = newest.commit_identifier
        has_own_name = self._query is not None and self._user == query_user(self._query, self._context)
        new_start = "a new checkpoint directory" + ("" if has_own_name else " and a new name for commit_user=…")
        if EPOCH_PROPERTY in newest.properties:
            because = (
                "That commit is not a Spark batch: it is from the pipeline of this name, which `tidelake ingest run` "
                "runs"
            )
        elif not self._is_same_query(newest):
            other = newest.properties[QUERY_PROPERTY]
            because = (
                f"That commit is from query {other}, but this is query {self._query}, which has another checkpoint "
                "directory"
            )
        elif number > batch_id:
            because = (
                "Spark repeats only its last batch. So the checkpoint directory is not the one of that batch, or it "
                "was reset, or another driver used it"
            )
        elif self._reread is None:
            return
        else:
            found = offsets()
            if is_from_batch(newest, found, reread=self._reread):
                return
            because = (
                f"That batch has the records {ranges_text(advanced_ranges(newest))}, but this one reads "
                f"{ranges_text(found)}. So the checkpoint directory is not the one of that batch, or it was reset, or "
                "a batch is passed to this table in parts"
            )
        remedies = [
            f"continue with the checkpoint directory that wrote batch {number}, in its state of that time",
            f"{new_start}: its batches count as new. Rows that it reads again are duplicated, which is harmless if a "
            "primary key deduplicates",
            "leave this query stopped, if another driver runs it",
        ]
        if number == batch_id:
            remedies.append("call the sink once per batch, with all its rows")
        raise PositionRefused(
            f"{self._context.name}: this is batch {batch_id}, but {newest.commit_user!r} has already committed batch "
            f"{number}, in snapshot {newest.id}. {because}. Nothing was written",
            remedies,
        )

    def _position_guard(self, snapshots: Sequence[Snapshot]) -> None:
        """Raise BatchOutdated if others have moved the table's position after it was compared with the batch."""
        for snapshot in snapshots:
            is_other = snapshot.commit_user != self._user or EPOCH_PROPERTY in snapshot.properties
            is_other = is_other and snapshot.commit_user not in self._shared_with
            if snapshot.id > self._based_on and is_other and POSITION_PROPERTY in snapshot.properties:
                raise BatchOutdated(
                    f"{self._context.name}: while this batch was written, {snapshot.commit_user!r} moved the table's "
                    f"position in snapshot {snapshot.id}: two streams write to the table. Nothing of the batch was "
                    "published. Stop one of them; when the batch is repeated, it is compared with the new position"
                )
