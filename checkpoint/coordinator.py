"""Decides when a checkpoint is due, which identifier it has, and what each table publishes in it. It does no I/O.

The caller reports each event (`record_write`, `prepared`, `committed` …) and the current time. `states` defines the
order of the events.

Invariants

1. Identifiers rise. They start above every identifier that this commit user ever published in any of the tables.
2. A table's next position starts where its last published position ended, even if checkpoints in between had no rows
   for the table.
3. A position covers a record only after the record was handed to the table's writer, or was set aside durably.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelake.checkpoint.committable import TableCommittable
from tidelake.checkpoint.epoch import Epoch
from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, SourcePosition, TopicPartition
from tidelake.checkpoint.recovery import resume_offsets
from tidelake.checkpoint.states import CheckpointEvent, CheckpointState, next_state
from tidelake.errors import BadInput
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER


@dataclass(slots=True)
class CheckpointPolicy:
    """Upper bounds for the records that are read again after a crash, counted from the first uncommitted record.

    Interval and bytes may change while the pipeline runs.

    interval_ms: the time from the start of one checkpoint to the start of the next, while records arrive without a
        break. So the duration of a checkpoint does not add to the staleness that readers see. If a checkpoint takes
        long, at least half of the interval remains for writing records before the next one.
    bytes_max: bytes of source records, before they are decoded.
    tables_at_once: number of tables that flush, or publish, at the same time.
    """

    interval_ms: int
    bytes_max: int
    tables_at_once: int = 8


class CheckpointCoordinator:
    """The checkpoints of one pipeline.

    positions: for each table, the position of its last own snapshot, or the position where reading begins.
    last_identifier: the largest identifier of the pipeline's commit user in any of the tables; 0 if none exists.
    policy: when a checkpoint is due.
    epoch: the epoch of this process.
    extra_properties: returns the properties of a table's snapshot other than position and epoch.
    starts: the offsets where reading of the source begins. An offset may be past the position of a table whose records
        are kept elsewhere. None: reading begins at the positions.
    """

    def __init__(
        self,
        positions: Mapping[str, SourcePosition],
        last_identifier: int,
        policy: CheckpointPolicy,
        epoch: Epoch,
        extra_properties: Callable[[str], Mapping[str, str]] = lambda _: {},
        starts: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        if last_identifier >= BATCH_COMMIT_IDENTIFIER - 1:
            raise BadInput(
                f"commit identifier {last_identifier}: no larger identifier exists, because a batch commit used this "
                "pipeline's name. Give the pipeline another name"
            )
        self._state = CheckpointState.WRITING
        self._policy = policy
        self._epoch = epoch
        self._extra_properties = extra_properties
        self._identifier = last_identifier
        self._published = dict(positions)
        self._reached: dict[TopicPartition, int] = {**resume_offsets(positions.values()), **(starts or {})}
        self._detached: dict[str, dict[TopicPartition, int]] = {}  # tables that are read separately from the others
        self._complete: dict[TopicPartition, int] = {}  # `reached` at the last complete checkpoint
        self._complete_before: dict[str, Mapping[TopicPartition, int]] = {}  # the same, before a table was held back
        self._pending: dict[str, TableCommittable] = {}
        self._bytes = 0
        self._oldest_ms: int | None = None  # when the first record since the last checkpoint was written
        self._begun_ms: int | None = None  # when the last checkpoint began

    @property
    def state(self) -> CheckpointState:
        return self._state

    @property
    def identifier(self) -> int:
        """The newest identifier of a checkpoint."""
        return self._identifier

    @property
    def epoch(self) -> Epoch:
        return self._epoch

    @property
    def positions(self) -> Mapping[str, SourcePosition]:
        """The position of each table's newest snapshot. For new partitions: the offset where reading begins."""
        return self._published

    @property
    def reached(self) -> Mapping[TopicPartition, int]:
        """How far the source was read. Records below are in the writers or in the tables, or were set aside."""
        return self._reached

    def add_partition(self, tables: Iterable[str], partition: TopicPartition, offset: int) -> None:
        """Add a partition of the source to the tables that don't know it; its reading begins at `offset`."""
        self._reached.setdefault(partition, offset)
        for table in self._published.keys() & set(tables):
            if table in self._detached:
                self._detached[table].setdefault(partition, offset)
            self._published[table] = self._published[table].with_partitions({partition: offset})

    def partitions_of(self, table: str) -> frozenset[TopicPartition]:
        """Return the known partitions that may hold records for the table."""
        return frozenset(self._published[table].ranges)

    def add_table(self, table: str, starts: Mapping[TopicPartition, int]) -> None:
        """Add a table that no earlier record named: no record below `starts` belongs to it."""
        ranges = {p: OffsetRange(at, at) for p, at in starts.items()}
        self._published.setdefault(table, SourcePosition(ranges=ranges))

    def first_committables(self, tables: Collection[str], identity: SourceIdentity) -> list[TableCommittable]:
        """Return empty snapshots with the positions of added tables, under a new identifier.

        The caller publishes them before the next checkpoint, because that checkpoint's position covers the records that
        named the tables.
        """
        self._identifier += 1
        for table in tables:
            self._published[table] = self._published[table].with_identity(identity)
        return [
            TableCommittable(
                table, self._identifier, (), self._published[table], self._epoch, self._extra_properties(table)
            )
            for table in tables
        ]

    def record_write(self, partition: TopicPartition, next_offset: int, *, nbytes: int, now_ms: int) -> None:
        """Record that all records of `partition` below `next_offset` are in the writers, or were set aside.

        nbytes: bytes of those records. With 0 no checkpoint becomes due, because nothing is to be published.

        Raises KeyError for a partition that was not added: the offset where its reading began is unknown.
        """
        self._reached[partition] = max(next_offset, self._reached[partition])
        self._count(nbytes, now_ms)

    def _count(self, nbytes: int, now_ms: int) -> None:
        if nbytes:
            self._bytes += nbytes
            self._oldest_ms = now_ms if self._oldest_ms is None else self._oldest_ms

    # ------------------------------------------------------------ tables that are written separately

    def complete_up_to(self, table: str) -> dict[TopicPartition, int]:
        """Return the offset of each partition below which all records of the table are in the table.

        The offsets are those of the table's last commit, or of the last checkpoint without records for the table.
        """
        ends = self._published[table].ends if table in self._published else {}
        complete = self._complete_before.get(table, self._complete)
        return {p: max(end, complete.get(p, end)) for p, end in ends.items()}

    def complete_ends(self, tables: Collection[str]) -> dict[TopicPartition, int]:
        """Return the offset of each partition below which all records of these tables are in the tables.

        A table whose records ended long ago does not hold back the others.
        """
        apart = [table for table in tables if table in self._complete_before or table in self._detached]
        common = resume_offsets(self._published[table] for table in tables if table not in apart)
        ends = {p: max(end, self._complete.get(p, end)) for p, end in common.items()}
        for table in apart:
            own = self._published[table].ends if table in self._detached else self.complete_up_to(table)
            for partition, end in own.items():
                ends[partition] = min(end, ends.get(partition, end))
        return ends

    def leave_out(self, table: str) -> None:
        """Remove a failed table: its rows since its last commit are dropped, and no more rows are written to it."""
        self._pending.pop(table, None)
        self._detached.pop(table, None)
        self._complete_before.pop(table, None)

    def detach(self, table: str, position: SourcePosition, starts: Mapping[TopicPartition, int]) -> None:
        """Start to write the table again, separately from the others until `join`.

        position: the position of its newest snapshot; the next snapshot starts where that one ended.
        starts: the offsets from which the table is written. They are at or past the ends of `position`; no record
            between the two belongs to the table.
        """
        self._published[table] = position.with_partitions(starts)
        self._detached[table] = {**position.ends, **starts}

    def record_detached_write(
        self, table: str, partition: TopicPartition, next_offset: int, *, nbytes: int, now_ms: int
    ) -> None:
        """Like `record_write`, for a table that is written separately."""
        detached = self._detached[table]
        detached[partition] = max(next_offset, detached[partition])
        self._count(nbytes, now_ms)

    def read_position_of(self, table: str) -> Mapping[TopicPartition, int]:
        """Return how far the source was read for the table."""
        return self._detached.get(table, self._reached)

    def written_position_of(self, table: str) -> Mapping[TopicPartition, int]:
        """Return the offset of each of the table's partitions below which no record is left to write for it.

        Each record below is in the table, in its writer, or does not belong to the table.
        """
        reached = self.read_position_of(table)
        return {p: max(end, reached.get(p, end)) for p, end in self._published[table].ends.items()}

    def is_detached(self, table: str) -> bool:
        return table in self._detached

    def join(self, table: str) -> None:
        """Write the table together with the others again: it was read as far as they were."""
        del self._detached[table]

    def skip_identifiers(self, used: int) -> None:
        """Skip identifiers up to `used`: the pipeline used it in a table that was not known before."""
        self._identifier = max(self._identifier, used)

    # ------------------------------------------------------------ checkpoints

    @property
    def oldest_written_ms(self) -> int | None:
        """When the first record since the last checkpoint was written; None if none was."""
        return self._oldest_ms

    def due_in_ms(self, now_ms: int) -> int | None:
        """Return the time until a checkpoint is due.

        0: a checkpoint is due now. None: nothing was written since the last checkpoint.
        """
        if self._oldest_ms is None:
            return None
        if self._bytes >= self._policy.bytes_max:
            return 0
        interval_ms = self._policy.interval_ms
        due_ms = self._oldest_ms + interval_ms
        if self._begun_ms is not None and self._oldest_ms <= self._begun_ms + interval_ms:
            due_ms = max(self._begun_ms + interval_ms, self._oldest_ms + interval_ms // 2)
        return max(0, due_ms - now_ms)

    def begin(self, now_ms: int) -> int:
        """Begin a checkpoint, and return its identifier. No row may be written until `prepared`."""
        self._state = next_state(self._state, CheckpointEvent.BEGUN)
        self._begun_ms = now_ms
        self._identifier += 1
        return self._identifier

    def prepared(
        self,
        messages: Mapping[str, Sequence[CommitMessage]],
        identity: SourceIdentity,
        always_publish: Collection[str] = (),
    ) -> list[TableCommittable]:
        """Return the committables to publish: one for each table with files, and for each table of `always_publish`.

        messages: the commit messages of every table that is not held back. A table without files gets no snapshot; its
            next snapshot starts where its last one ended.
        """
        self._state = next_state(self._state, CheckpointEvent.PREPARED)
        positions = _NextPositions(identity)
        self._pending = {
            table: TableCommittable(
                table,
                self._identifier,
                files,
                positions.after(self._published[table], self.read_position_of(table)),
                self._epoch,
                self._extra_properties(table),
            )
            for table, files in messages.items()
            if files or table in always_publish
        }
        return list(self._pending.values())

    def committed(self, table: str) -> None:
        """Record that the table's snapshot exists."""
        self._state = next_state(self._state, CheckpointEvent.TABLE_COMMITTED)
        self._published[table] = self._pending.pop(table).position

    def completed(self, held_back: Collection[str] = (), *, is_due_again: bool = False) -> None:
        """Record that every committable of this checkpoint was published as a snapshot.

        held_back: tables whose writers still have the rows written since their last snapshot.
        is_due_again: whether the next checkpoint becomes due without new rows, too.
        """
        state = next_state(self._state, CheckpointEvent.COMPLETED)
        assert not self._pending, f"not committed: {sorted(self._pending)}"
        self._state = state
        self._bytes, self._oldest_ms = 0, self._begun_ms if is_due_again else None
        self._complete_before = {table: self._complete_before.get(table, self._complete) for table in held_back}
        self._complete = dict(self._reached)

    def closed(self) -> None:
        self._state = next_state(self._state, CheckpointEvent.CLOSED)

    def failed(self) -> None:
        self._state = next_state(self._state, CheckpointEvent.FAILED)


class _NextPositions:
    """The positions of a checkpoint's snapshots. Tables with the same position share the object: mostly all tables have
    the same one, and each has an entry for every partition.
    """

    def __init__(self, identity: SourceIdentity) -> None:
        self._identity = identity
        self._following: dict[tuple[int, int], SourcePosition] = {}  # by ids of objects that the coordinator keeps
        self._distinct: dict[int, SourcePosition] = {}

    def after(self, published: SourcePosition, reached: Mapping[TopicPartition, int]) -> SourcePosition:
        """Return the position that follows the published one."""
        key = id(published), id(reached)
        if (position := self._following.get(key)) is None:
            position = published.with_identity(self._identity).advanced_to(reached)
            same = self._distinct.setdefault(hash(frozenset(position.ranges.items())), position)
            position = self._following[key] = same if same == position else position
        return position
