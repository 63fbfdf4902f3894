"""When a checkpoint is due, which identifier it bears and what each table publishes in it: decisions only, no I/O.

The caller reports what happened (`record_write`, `prepared`, `committed` …) and what time it is; `states` says in which
order.

Invariants

1. Identifiers rise, and start above every identifier that this commit user ever published in any of the tables.
2. A table's next position starts where its last published one ended, however many checkpoints had no row for it.
3. A position covers a record only after the record was handed to the table's writer, or set aside durably.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from checkpoint.committable import TableCommittable
from checkpoint.epoch import Epoch
from checkpoint.offsets import OffsetRange, SourceIdentity, SourcePosition, TopicPartition
from checkpoint.recovery import resume_offsets
from checkpoint.states import CheckpointEvent, CheckpointState, next_state
from storage.commit.commit_message import CommitMessage
from storage.errors import BadInput
from storage.format import BATCH_COMMIT_IDENTIFIER


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """Upper bounds for what a crash makes us read again, counted from the first uncommitted record.

    interval_ms: from the begin of one checkpoint to the begin of the next while records come without a break, so that
        the time a checkpoint takes isn't added to how stale readers see the table. At least half of it is left for
        records where a checkpoint takes long.
    bytes_max: of source records, undecoded.
    tables_at_once: that flush, or publish, at the same time.
    """

    interval_ms: int
    bytes_max: int
    tables_at_once: int = 8


class CheckpointCoordinator:
    """The checkpoints of one pipeline.

    positions: of each table: its last own snapshot's, or where reading begins.
    last_identifier: the largest that the pipeline's commit user has in any of the tables; 0 for none.
    epoch: of this process.
    extra_properties: what each snapshot of a table says besides position and epoch.
    starts: where the source is read from, which may be past the position of a table whose records are kept elsewhere.
        None: from the positions.
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
                f"commit identifier {last_identifier}: the identifier space is exhausted, as a batch commit used this "
                "pipeline's name. Give the pipeline another name"
            )
        self._state = CheckpointState.WRITING
        self._policy = policy
        self._epoch = epoch
        self._extra_properties = extra_properties
        self._identifier = last_identifier
        self._published = dict(positions)
        self._reached: dict[TopicPartition, int] = {**resume_offsets(positions.values()), **(starts or {})}
        self._detached: dict[str, dict[TopicPartition, int]] = {}  # of tables that are read for apart from the others
        self._complete: dict[TopicPartition, int] = {}  # what was reached when the last checkpoint was complete
        self._pending: dict[str, TableCommittable] = {}
        self._bytes = 0
        self._oldest_ms: int | None = None  # when the first record since the last checkpoint was written
        self._begun_ms: int | None = None  # when the last checkpoint began

    @property
    def state(self) -> CheckpointState:
        return self._state

    @property
    def identifier(self) -> int:
        """The newest one given out."""
        return self._identifier

    @property
    def epoch(self) -> Epoch:
        return self._epoch

    @property
    def positions(self) -> Mapping[str, SourcePosition]:
        """The position of each table's newest snapshot, with new partitions at the start of reading."""
        return self._published

    @property
    def reached(self) -> Mapping[TopicPartition, int]:
        """How far the source was read: what is below is with the writers, set aside, or in the tables."""
        return self._reached

    def add_partition(self, tables: Iterable[str], partition: TopicPartition, offset: int) -> None:
        """The source has a partition that these tables may not know; reading begins at `offset`. Known ones stay."""
        self._reached.setdefault(partition, offset)
        for table in self._published.keys() & set(tables):
            if table in self._detached:
                self._detached[table].setdefault(partition, offset)
            self._published[table] = self._published[table].with_partitions({partition: offset})

    def partitions_of(self, table: str) -> frozenset[TopicPartition]:
        """Known partitions that may hold records for the table."""
        return frozenset(self._published[table].ranges)

    def add_table(self, table: str, starts: Mapping[TopicPartition, int]) -> None:
        """A table that no record named until now: nothing below `starts` was its own."""
        ranges = {p: OffsetRange(at, at) for p, at in starts.items()}
        self._published.setdefault(table, SourcePosition(ranges=ranges))

    def first_committables(self, tables: Collection[str], identity: SourceIdentity) -> list[TableCommittable]:
        """Empty snapshots with the positions of tables that were added, under an identifier of their own. The caller
        publishes them before the next checkpoint: it passes the records that named the tables.
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
        """All records of `partition` below `next_offset` are with the writers, or set aside.

        nbytes: of those records; without any nothing becomes due: there is nothing to publish.
        Raises KeyError for a partition that was not added: where its reading began would be a guess.
        """
        self._reached[partition] = max(next_offset, self._reached[partition])
        self._count(nbytes, now_ms)

    def _count(self, nbytes: int, now_ms: int) -> None:
        if nbytes:
            self._bytes += nbytes
            self._oldest_ms = now_ms if self._oldest_ms is None else self._oldest_ms

    # ------------------------------------------------------------ tables apart

    def complete_up_to(self, table: str) -> dict[TopicPartition, int]:
        """Every record below that is for the table is in it: as of its last commit, or of the last checkpoint that had
        none for it.
        """
        ends = self._published[table].ends if table in self._published else {}
        return {p: max(end, self._complete.get(p, end)) for p, end in ends.items()}

    def leave_out(self, table: str) -> None:
        """The table failed: what was written for it since its last commit is dropped, and nothing more comes."""
        self._pending.pop(table, None)
        self._detached.pop(table, None)

    def detach(self, table: str, position: SourcePosition, starts: Mapping[TopicPartition, int]) -> None:
        """The table is written again, apart from the others until `join`.

        position: what its newest snapshot says; the next one starts where that ended.
        starts: where it is written from, at or past that: between the two is no record of the table.
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
        """How far the source was read for the table."""
        return self._detached.get(table, self._reached)

    def written_position_of(self, table: str) -> Mapping[TopicPartition, int]:
        """Of each of its partitions: what is below is in the table, with its writer, or was none of its rows."""
        reached = self.read_position_of(table)
        return {p: max(end, reached.get(p, end)) for p, end in self._published[table].ends.items()}

    def join(self, table: str) -> None:
        """The table has got as far as the others."""
        del self._detached[table]

    def skip_identifiers(self, used: int) -> None:
        """The pipeline used this one in a table that was not known until now."""
        self._identifier = max(self._identifier, used)

    # ------------------------------------------------------------ checkpoints

    def due_in_ms(self, now_ms: int) -> int | None:
        """How long until a checkpoint is due; 0 when it is, None when nothing was written since the last one."""
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
        """A checkpoint starts: no row may be written until `prepared`. Returns its identifier."""
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
        """The committables to publish now: one for each table with files, and for those of `always_publish`.

        messages: of every table. A table without files is left alone: its next snapshot starts where its last one
        ended.
        """
        self._state = next_state(self._state, CheckpointEvent.PREPARED)
        self._pending = {
            table: TableCommittable(
                table,
                self._identifier,
                files,
                self._published[table].with_identity(identity).advanced_to(self.read_position_of(table)),
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

    def completed(self) -> None:
        """Every committable of this checkpoint is a snapshot."""
        state = next_state(self._state, CheckpointEvent.COMPLETED)
        assert not self._pending, f"not committed: {sorted(self._pending)}"
        self._state = state
        self._bytes, self._oldest_ms = 0, None
        self._complete = dict(self._reached)

    def closed(self) -> None:
        self._state = next_state(self._state, CheckpointEvent.CLOSED)

    def failed(self) -> None:
        self._state = next_state(self._state, CheckpointEvent.FAILED)
