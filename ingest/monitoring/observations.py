"""Observations of a running pipeline's parts, for metrics, probes, the status page and the log.

The parts report events. The observations make no decisions, and never block. All methods are called in the pipeline's
event loop; numbers may be read from any thread.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.checkpoint.record_times import RecordTimes
from tidelake.ingest.clock import Clock
from tidelake.ingest.monitoring.partition_progress import PartitionProgress
from tidelake.ingest.monitoring.table_levels import RowCount, TableLevels
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.whole_transactions import TransactionCounts
from tidelake.storage.base import env
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.duration_histogram import DurationHistogram
from tidelake.storage.commit.commit_increment import CompactResult

CHECKPOINTS_KEPT: Final = 60
_LOGGED_OFFSETS_MAX: Final = 32  # partitions
LINEAGE_SENT: Final = "sent"
LINEAGE_FAILED: Final = "failed"
LINEAGE_DROPPED: Final = "dropped"
LINEAGE_OUTCOMES: Final = (LINEAGE_SENT, LINEAGE_FAILED, LINEAGE_DROPPED)
FRESHNESS_CHANGES_KEPT: Final = 20
BINDINGS: Final = ("nothing", "source", "cpu", "store", "compaction", "cost")  # see `freshness_control.Binding`


@dataclass(slots=True)
class TableObservation:
    """Observations of one table since the process started.

    rows: number of rows that its writer accepted.
    newest_written_ms: the newest record time (epoch) of these rows.
    newest_committed_ms: the newest record time (epoch) of committed rows.
    uncommitted_times: the record times of the rows since the last commit.
    oldest_age_ms: the age of the oldest record of the last commit when its row became visible.
    commit_attempts: attempts of all its commits.
    commit_ms: duration of its last commit.
    committed_at_ms: time of its last commit (epoch).
    committing_since_ms: start of the running commit (monotonic); None if no commit is running.
    levels: its files at the last look.
    row_count: its rows at the last look.
    bootstrap_rows: rows of the source's initial snapshot that wait, sorted, for their commit; None: no bootstrap runs.
    """

    rows: int = 0
    newest_written_ms: int | None = None
    newest_committed_ms: int | None = None
    uncommitted_times: RecordTimes | None = None
    oldest_age_ms: int | None = None
    snapshot_id: int | None = None
    commits: int = 0
    commit_attempts: int = 0
    commit_ms: int | None = None
    committed_at_ms: int | None = None
    committing_since_ms: int | None = None
    compactions: int = 0
    compacted_bytes: int = 0
    levels: TableLevels | None = None
    row_count: RowCount | None = None
    bootstrap_rows: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointObservation:
    """One complete checkpoint.

    ended_at_ms: its end (epoch).
    rows: number of rows written since the previous checkpoint.
    records: number of records that it covers and the previous one did not.
    nbytes: bytes of these records.
    """

    identifier: int
    ended_at_ms: int
    took_ms: int
    tables: int
    rows: int
    records: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class HourOfWrites:
    """What an hour costs at the pace of the last minutes.

    puts: requests that are charged as a PUT.
    gets: requests that are charged as a GET.
    nbytes: bytes of the files that commits published.
    price: of the requests.
    """

    puts: float
    gets: float
    nbytes: float
    price: float


@dataclass(frozen=True, slots=True)
class FreshnessChange:
    """What was changed to keep the freshness, and why."""

    at_ms: int
    changed: str
    reason: str


@dataclass(slots=True)
class FreshnessObservation:
    """How the freshness of the tables is kept.

    target_ms: the target that rules.
    table: the entry that has it.
    target_of: target of a table in ms; None if it has none.
    currency: of the price.
    reached_ms: age of the oldest record of the last checkpoint; for a table with a larger target in proportion to it.
    binds: what keeps the target from being reached, or the interval from being shorter.
    pace: of compaction.
    buffer_bytes: bytes of records after which a checkpoint is due earlier.
    changes: the newest changes.
    """

    target_ms: int
    table: str
    target_of: Callable[[str], int | None]
    currency: str
    buffer_bytes: int
    reached_ms: int | None = None
    binds: str = "nothing"
    pace: str = "full"
    reason: str = "no checkpoint yet"
    hour: HourOfWrites | None = None
    changes: deque[FreshnessChange] = field(default_factory=lambda: deque(maxlen=FRESHNESS_CHANGES_KEPT))


@dataclass(slots=True)
class TopicCounts:
    records: int = 0
    nbytes: int = 0


@dataclass(slots=True)
class DecodingCounts:
    """Counts of the processes that decode for the pipeline (`source.decode_processes`).

    processes: number of processes; 0: the pipeline's process decodes.
    restarts: number of processes that ended and were replaced.
    batches: number of batches that processes decoded.
    outdated: number of batches that they decoded for tables that had changed since, so that they were decoded again.
    bytes_in_flight: bytes of the records that were passed to processes, and not taken back yet.
    """

    processes: int = 0
    restarts: int = 0
    batches: int = 0
    outdated: int = 0
    bytes_in_flight: int = 0


@dataclass(slots=True)
class RunObservations:
    """Observations of one run of a pipeline.

    interval_ms: the interval of checkpoints.
    state: the state of the run, as named by `pipeline.RunState`.
    stall_tolerance_ms: how long a checkpoint may take before it counts as stalled, if that is longer than some
        intervals.
    records: number of records that were passed on to be written, skipped or set aside. `topics` counts the read ones.
    record_bytes: bytes of these records.
    transactions: counts of the source's transactions, if checkpoints don't split them.
    decoding: counts of the processes that decode.
    waiting_since_ms: monotonic time since which records have waited for a commit; None if none wait.
    problems: returns the reason of each table that is held back
    refusal: why the pipeline ended and waits for somebody's decision; None if it doesn't
    lineage_events: OpenLineage events by outcome (LINEAGE_OUTCOMES)
    """

    interval_ms: int
    clock: Clock
    state: str = "CREATED"
    stall_tolerance_ms: int = 0
    started_at_ms: int = field(default_factory=epoch_ms)
    records: int = 0
    record_bytes: int = 0
    topics: dict[str, TopicCounts] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionProgress] = field(default_factory=dict)
    tables: dict[str, TableObservation] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)
    checkpoints: int = 0
    recent_checkpoints: deque[CheckpointObservation] = field(default_factory=lambda: deque(maxlen=CHECKPOINTS_KEPT))
    checkpoint_durations: DurationHistogram = field(default_factory=DurationHistogram)
    commit_durations: DurationHistogram = field(default_factory=DurationHistogram)
    compaction_durations: DurationHistogram = field(default_factory=DurationHistogram)
    transactions: TransactionCounts = field(default_factory=TransactionCounts)
    decoding: DecodingCounts = field(default_factory=DecodingCounts)
    waiting_since_ms: int | None = None
    last_checkpoint_ms: int | None = None
    problems: Callable[[], Mapping[str, str]] = dict
    refusal: str | None = None
    lineage_events: Counter[str] = field(default_factory=Counter)
    freshness: FreshnessObservation | None = None
    source_problem: str | None = None
    source_problem_since_ms: int | None = None
    _activities: dict[str, int] = field(default_factory=dict)
    _ended_activities: Counter[str] = field(default_factory=Counter)
    _rows_uncommitted: int = 0
    _lock: env.Lock = field(default_factory=lambda: env.Lock())

    # ------------------------------------------------------------ records

    def reading_started(self, starts: Mapping[TopicPartition, int]) -> None:
        now_ms = self.clock.now_ms()
        for partition, offset in starts.items():
            self.partitions.setdefault(partition, PartitionProgress(offset, offset, now_ms))

    def reading_changed(self, starts: Mapping[TopicPartition, int], tables: Collection[str]) -> None:
        """Record that other tables are read from now on, and forget what is not read any more. All is committed.

        starts: the next offset of each partition. A table that was added may begin below the others.
        tables: the tables of the pipeline.
        """
        for partition, progress in list(self.partitions.items()):
            if starts.get(partition, -1) < progress.committed:
                del self.partitions[partition]
        for table in self.tables.keys() - set(tables):
            del self.tables[table]
        self.waiting_since_ms = None
        self.reading_started(starts)

    def was_read(self, batch: RawBatch) -> None:
        partition, now_ms = TopicPartition(batch.topic, batch.partition), self.clock.now_ms()
        if partition not in self.partitions:
            start = int(batch.offsets[0]) if len(batch) else batch.next_offset
            self.partitions[partition] = PartitionProgress(start, start, now_ms)
        self.partitions[partition].was_read(batch, now_ms, epoch_ms())
        counts = self.topics.setdefault(batch.topic, TopicCounts())
        counts.records += len(batch)
        counts.nbytes += batch.nbytes
        if len(batch) and self.waiting_since_ms is None:
            self.waiting_since_ms = now_ms

    def offsets_read(self, partition: TopicPartition, start: int, end: int, nbytes: int = 0) -> None:
        """Count records like `was_read`, if other processes read them. Each offset counts as one record.

        nbytes: bytes of the records. Those of records that count already are not added again.
        """
        now_ms = self.clock.now_ms()
        progress = self.partitions.setdefault(partition, PartitionProgress(start, start, now_ms))
        counts = self.topics.setdefault(partition.topic, TopicCounts())
        new = end - max(start, min(end, progress.read))
        new_bytes = nbytes * new // (end - start) if new else 0
        counts.records += new
        counts.nbytes += new_bytes
        progress.offsets_read(end, new_bytes)
        if self.waiting_since_ms is None:
            self.waiting_since_ms = now_ms

    def batch_decoded(self, batch: RawBatch, skipped: Mapping[str, int]) -> None:
        """Count a batch that is about to be written.

        skipped: number of records of each kind that belong to no table.
        """
        self.records += len(batch)
        self.record_bytes += batch.nbytes
        self.skipped.update(skipped)

    def was_written(self, table: str, rows: int, times: RecordTimes | None) -> None:
        """Count rows that were written to a table.

        times: the times of their records.
        """
        found = self.table(table)
        found.rows += rows
        self._rows_uncommitted += rows
        if times is not None:
            found.newest_written_ms = max(times.newest_ms, found.newest_written_ms or 0)
            found.uncommitted_times = times.joined(found.uncommitted_times)

    def set_end_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        """Set the current ends of the logs."""
        now_ms = self.clock.now_ms()
        for partition, end in ends.items():
            if partition in self.partitions:
                self.partitions[partition].set_end_offset(end, now_ms)
        lag = self._known_lag()
        if self.waiting_since_ms is None and lag > 0:
            self.waiting_since_ms = now_ms
        elif lag == 0:
            self.waiting_since_ms = None

    def source_answered(self) -> None:
        """Record that the source answers, and clear an earlier problem."""
        self.source_problem = self.source_problem_since_ms = None

    def source_failed(self, problem: str) -> None:
        """Record that the source did not answer a request for the ends of its logs."""
        self.source_problem = problem
        if self.source_problem_since_ms is None:
            self.source_problem_since_ms = self.clock.now_ms()

    @property
    def is_lag_known(self) -> bool:
        """Whether the ends of the logs are known. While the source does not answer, they may have grown."""
        return self.source_problem is None

    @property
    def lag(self) -> int | None:
        """The lag of all partitions together, in offsets; None while the source does not answer."""
        return self._known_lag() if self.is_lag_known else None

    def _known_lag(self) -> int:
        return sum(progress.lag for progress in list(self.partitions.values()))

    def lag_ms(self) -> int | None:
        """Return the time lag of the partition that is furthest behind; None while the source does not answer."""
        if not self.is_lag_known:
            return None
        now_ms, now_epoch_ms = self.clock.now_ms(), epoch_ms()
        return max((p.lag_ms(now_ms, now_epoch_ms) for p in list(self.partitions.values())), default=0)

    # ------------------------------------------------------------ commits

    def table(self, name: str) -> TableObservation:
        return self.tables.setdefault(name, TableObservation())

    def commit_began(self, table: str) -> None:
        self.table(table).committing_since_ms = self.clock.now_ms()

    def commit_ended(self, table: str) -> None:
        """Record that the table's commit ended, successful or not."""
        self.table(table).committing_since_ms = None

    def committed(self, table: str, snapshot_id: int | None, took_ms: int, attempts: int) -> None:
        """Record a successful commit of the table.

        attempts: number of attempts to create the snapshot.
        """
        found = self.table(table)
        found.newest_committed_ms = found.newest_written_ms
        if found.uncommitted_times is not None:
            found.oldest_age_ms = max(0, epoch_ms() - found.uncommitted_times.oldest_ms)
        found.uncommitted_times = None
        found.snapshot_id = snapshot_id if snapshot_id is not None else found.snapshot_id
        found.commits += 1
        found.commit_attempts += attempts
        found.commit_ms, found.committed_at_ms = took_ms, epoch_ms()
        self.commit_durations.observe(took_ms / 1000)

    def checkpoint_completed(
        self, identifier: int, tables: int, took_ms: int, reached: Mapping[TopicPartition, int]
    ) -> CheckpointObservation:
        """Record a complete checkpoint, and return it.

        reached: the next offset of each partition that the checkpoint covers.
        """
        now_ms = self.clock.now_ms()
        records = nbytes = 0
        for partition, offset in reached.items():
            if partition in self.partitions:
                done_records, done_bytes = self.partitions[partition].was_committed(offset, now_ms)
                records, nbytes = records + done_records, nbytes + done_bytes
        done = CheckpointObservation(
            identifier,
            epoch_ms(),
            took_ms,
            tables,
            self._rows_uncommitted,
            records,
            nbytes,
        )
        self._rows_uncommitted = 0
        self.checkpoints += 1
        self.recent_checkpoints.append(done)
        self.checkpoint_durations.observe(took_ms / 1000)
        self.last_checkpoint_ms = now_ms
        is_behind = any(progress.has_uncommitted for progress in self.partitions.values())
        self.waiting_since_ms = now_ms if is_behind else None
        return done

    def table_compacted(self, table: str, result: CompactResult, took_s: float) -> None:
        """Count a compaction whose result was accepted. It may be called from any thread."""
        kept = {file.file_name for file in result.before}
        nbytes = sum(file.file_size for file in result.after if file.file_name not in kept)
        with self._lock:
            found = self.table(table)
            found.compactions += 1
            found.compacted_bytes += nbytes
            self.compaction_durations.observe(took_s)

    # ------------------------------------------------------------ activities

    @contextmanager
    def activity(self, name: str) -> Iterator[None]:
        """Record an activity of a part for the duration of the block. It is named in the reason of a stall.

        name: a description in words.
        """
        self._activities[name] = self.clock.now_ms()
        try:
            yield
        finally:
            if (since := self._activities.pop(name, None)) is not None:
                self._ended_activities[name] += self.clock.now_ms() - since

    def time_in(self, name: str) -> int:
        """Return how long an activity took so far, all times together, in milliseconds."""
        since = self._activities.get(name)
        return self._ended_activities[name] + (0 if since is None else self.clock.now_ms() - since)

    def activities(self) -> list[tuple[str, int]]:
        """Return the current activities with their durations in milliseconds, the longest first."""
        now_ms = self.clock.now_ms()
        return sorted(((name, now_ms - since) for name, since in list(self._activities.items())), key=lambda a: -a[1])

    def log_fields(self) -> dict[str, Any]:
        """Return the log fields of the last checkpoint. Of many partitions, only the number is logged."""
        last = self.recent_checkpoints[-1]
        fields: dict[str, Any] = {"rows": last.rows, "records": last.records, "bytes": last.nbytes}
        if len(self.partitions) <= _LOGGED_OFFSETS_MAX:
            fields["offsets"] = {str(p): progress.committed for p, progress in sorted(self.partitions.items())}
        else:
            fields["partitions"] = len(self.partitions)
        return {**fields, "lag": self.lag, "lag_ms": self.lag_ms()}
