"""The public table: write, scan, changes, follow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from tidelake.compaction import table_compaction
from tidelake.compaction.append.clustering import ClusteringStrategy
from tidelake.compaction.cancellation import CancellationToken
from tidelake.compaction.jobs.file_index_rewrite import FileIndexRewrite, rewrite_file_indexes
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.report import CompactionReport
from tidelake.row_level.row_changes import RowChanges
from tidelake.scan import IncrementalScan, Scan, projection, snapshot_projection
from tidelake.storage.base.arguments import INT64_MAX, check_whole_number, checked, checked_except
from tidelake.storage.base.errors import BadInput
from tidelake.storage.commit.expire.expire_now import ExpiryResult, expire_now
from tidelake.storage.commit.expire.retention import retention_of
from tidelake.storage.kinds.system_tables.system_table import SystemTableRead
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import Operation
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.changes.change_reader import ChangeBatch, ChangeReader
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.fallback_branch import fallback_branch, refuse_fallback_branch
from tidelake.storage.read.follow import Bound, CancelEvent, Follower, follow
from tidelake.storage.read.incremental_read import (
    NO_INCREMENT,
    Increment,
    NoIncrement,
    increment_between,
    increment_of,
    increment_to_auto_tag,
    is_incremental,
    parse_scan_mode,
    read_increment,
)
from tidelake.storage.read.predicate import Predicate, as_predicate
from tidelake.storage.read.stream.consumer_progress import ConsumerProgress
from tidelake.storage.read.stream.start import Start, StartAt
from tidelake.storage.read.time_travel import TimeTravel, named_state
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.writer import Writer


class Table(RowChanges):
    """One table. Cheap to create; keeps no files open. To see schema changes, open it again (`catalog.table(name)`)."""

    _sequence_numbers = False  # whether changes come with `_SEQUENCE_NUMBER`
    _shown: Callable[[ChangeBatch], ChangeBatch] | None = None  # converts changes to rows of a system table

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._identity = context.identity

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    @property
    def context(self) -> TableContext:
        """The internal table. Not part of the public API: it may change at any time."""
        return self._context

    @property
    def name(self) -> str:
        return self._context.name

    @property
    def location(self) -> str:
        return self._context.location

    @property
    def schema(self) -> pa.Schema:
        """The columns that scans return."""
        return self._context.schema.arrow

    @property
    def primary_key(self) -> tuple[str, ...]:
        return self._context.schema.primary_keys

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self._context.schema.partition_keys

    @property
    def options(self) -> Mapping[str, str]:
        return self._context.options

    @checked_except("overwrite")
    def writer(
        self,
        *,
        commit_user: str | None = None,
        memory: MemoryBudget | None = None,
        overwrite: bool | Mapping[str, Any] | None = None,
    ) -> Writer:
        """Open a writer.

        commit_user: permanent name of this stream of commits. Keep it over restarts, so that replays are recognised.
            Default: a new random name, for one-off writes that are never replayed
        memory: memory budget shared with other writers; default: option `write-buffer-size` limits this writer
        overwrite: each commit replaces rows instead of adding some, and makes no changelog. None, False: no. True: all
            rows, or in a partitioned table those of the written partitions (option `dynamic-partition-overwrite`).
            Values of partition columns, {"day": "2026-05-01"}: the partitions with these values; all written rows must
            be in them

        Raises BadInput for overwrite={}, which could mean everything or nothing.
        """
        return Writer(self._context, self._user(commit_user), memory, overwrite)

    @checked
    def scan(
        self,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        as_of: datetime | int | None = None,
        between: tuple[int | str | datetime, ...] | None = None,
        between_mode: str | None = None,
        auto_tag: str | None = None,
        columns: Sequence[str] | None = None,
        filter: Predicate | Any = None,
    ) -> Scan:
        """Read the rows at one snapshot.

        It is the one given by id, tag or time; otherwise the one of the table's options (`scan.mode`,
        `scan.snapshot-id`, …); otherwise the latest. A given snapshot is read with its own schema, the latest with the
        table's newest.

        snapshot: id of the snapshot
        tag: name of a tag
        as_of: the last snapshot at this time; a datetime (naive ones are local time) or epoch milliseconds
        between: only added rows, as in `changes`; deleted rows are left out
        between_mode: as in `changes`
        auto_tag: as in `changes`
        columns: names, in the order of the result (also `_ROW_ID`)
        filter: made with `tidelake.col` or `pyarrow.compute`
        """
        if sum(selector is not None for selector in (snapshot, tag, as_of, between, auto_tag)) > 1:
            raise BadInput("scan() takes at most one of snapshot, tag, as_of, between and auto_tag")
        if isinstance(columns, str):
            raise BadInput(f"scan(columns={columns!r}): columns is a list of names")
        if (increment := self._increment(snapshot, tag, as_of, between, between_mode, auto_tag)) is not NO_INCREMENT:
            refuse_fallback_branch(self._context, "a read of the changes in a range")
            return self._scan_at(SystemTableRead(self._context, None, increment=increment), columns, filter)
        return self._scan_at(self._time_travel(snapshot, tag, as_of), columns, filter)

    def _scan_at(self, at: SystemTableRead, columns: Sequence[str] | None, condition: Any) -> Scan:
        if not isinstance(at.increment, NoIncrement):
            names, predicate = projection(at.context.schema.arrow, columns, condition)
            return IncrementalScan(at.context, at.increment, names, predicate)
        names, predicate = snapshot_projection(at.context, columns, condition)
        return Scan(at.context, at.snapshot, names, predicate, at.files_since_ms, at.other)

    def _increment(
        self,
        snapshot: int | None,
        tag: str | None,
        as_of: datetime | int | None,
        between: tuple[int | str | datetime, ...] | None,
        between_mode: str | None,
        auto_tag: str | None,
    ) -> Increment | NoIncrement:
        """Return the increment that arguments or options name; NO_INCREMENT for the rows at a snapshot."""
        if between is not None:
            mode = None if between_mode is None else parse_scan_mode(between_mode)
            return increment_between(self._context, between, mode)
        if between_mode is not None:
            raise BadInput(f"between_mode={between_mode!r} needs between=, the range to read")
        if auto_tag is not None:
            return increment_to_auto_tag(self._context, auto_tag)
        if (snapshot, tag, as_of) == (None, None, None) and is_incremental(self._context):
            check_supported(self._context, Operation.READ)
            return increment_of(self._context)
        return NO_INCREMENT

    @checked
    def changes(
        self,
        *,
        start: int | None = None,
        end: int | None = None,
        between: tuple[int | str | datetime, ...] | None = None,
        between_mode: str | None = None,
        auto_tag: str | None = None,
    ) -> Iterator[ChangeBatch]:
        """Read the changes of the snapshots start to end, both included.

        Without arguments, the options (`incremental-between`, …) decide.

        start: may be the snapshot after the latest: no changes yet
        end: None is the latest now
        between: (a, b) instead: the changes after a, up to and including b; two snapshot ids, tags or datetimes
        between_mode: `changelog` or `delta`: the changes of the snapshots in between; `diff`: only the difference of
            the two states. None: the changes that the table's producer makes; for two tags, the difference
        auto_tag: the difference from the last automatic tag before this one

        Raises SnapshotExpired if a snapshot of the range has expired, at once or while reading; BadInput if it does not
        exist yet.
        """
        if start is None and end is None:
            increment = self._increment(None, None, None, between, between_mode, auto_tag)
            if increment is NO_INCREMENT:
                raise BadInput("changes() needs start=, the first snapshot whose changes to read, or between=")
            return read_increment(self._context, increment)
        if (between, between_mode, auto_tag) != (None, None, None) or is_incremental(self._context):
            raise BadInput(
                f"changes(start={start}, end={end}), but between, auto_tag or an option such as incremental-between "
                "names the range, too; leave start and end out, or unset the option"
            )
        if start is None:
            raise BadInput("changes() needs start=, the first snapshot whose changes to read")
        for name, number in (("start", start), ("end", start if end is None else end)):
            check_whole_number(f"changes({name}=…)", number, at_least=-INT64_MAX)
        if start < 1 or (end is not None and end < start):
            raise BadInput(
                f"changes(start={start}, end={end}): snapshot ids start at 1, and end must not be before start"
            )
        reader = ChangeReader(self._context, Subtask.of(self._context.options), sequence_numbers=self._sequence_numbers)
        latest = reader.history.latest_id() or 0
        if start > latest + 1:
            reader.get(start)  # raises
        if end is not None and end > latest:
            reader.get(end)
        return reader.read_range(start, latest if end is None else end)

    @checked
    def follow(
        self,
        *,
        start: StartAt | None = None,
        consumer: str | None = None,
        end: int | None = None,
        share: tuple[int, int] | None = None,
        stop: CancelEvent | None = None,
    ) -> Generator[ChangeBatch]:
        """Yield the changes of every new snapshot, until `stop` is set, or after the snapshot `end`.

        start: "latest" (only new changes), "earliest", a snapshot id, a datetime (from the first snapshot since), or a
            position (`ChangeBatch.position`, or its text): exactly after that batch. "latest-full", "compacted-full",
            "from-snapshot-full:7" and "from-file-creation-time:2026-05-01T12:00:00Z" start with the existing rows, all
            +I, and continue with changes. None: the table's options (`scan.mode`, `scan.snapshot-id`, …), otherwise
            "latest"
        consumer: keep the position in the table under this name: a later follow continues there, unless `start` is a
            position, and expiry keeps the snapshots that are not read yet. A batch counts as processed when the next
            one is requested; option `consumer.mode` defines how exactly the position is kept
        share: (index, count): this is one of `count` readers, each with its own buckets and position
        """
        follower = self.follower(start=start, consumer=consumer, end=end, share=share)
        return follow(follower, stop or threading.Event())

    @checked
    def follower(
        self,
        *,
        start: StartAt | None = None,
        consumer: str | None = None,
        end: int | None = None,
        share: tuple[int, int] | None = None,
    ) -> Follower:
        """Return a follower, for callers that wait by themselves.

        Call `step()` until `is_done`, wait `wait_ms`, and call it again. At the end call `close()`. Arguments are those
        of `follow`.
        """
        context, options = self._context, self._context.options
        one_of = Subtask.of(options, share)
        name = consumer if consumer is not None else options.consumer_id
        progress = ConsumerProgress(context, name, one_of) if name is not None else None
        return Follower(
            context,
            self._follow_start(progress) if start is None else start,
            progress,
            ignores_progress=options.ignores_consumer_progress,
            bound=Bound(end, options.scan_bounded_watermark_ms),
            share=one_of,
            sequence_numbers=self._sequence_numbers,
            shown=self._shown,
        )

    def _follow_start(self, progress: ConsumerProgress | None) -> StartAt:
        """Return the start. As in Java, a consumer with a position continues there; options have no effect."""
        options = self._context.options
        if progress is not None and not options.ignores_consumer_progress and progress.read() is not None:
            return "latest"
        return Start.of_options(options) or "latest"

    @checked
    def compact(
        self,
        *,
        full: bool = False,
        where: Predicate | Any = None,
        order_by: Sequence[str] = (),
        strategy: str | None = None,
        cancellation: CancellationToken | None = None,
    ) -> CompactionReport:
        """Rewrite files into fewer; rows do not change. Returns a report, empty if nothing is due.

        full: compact each bucket into one sorted run, or join all small files; otherwise only what is due
        where: only partitions that match; on partition columns
        order_by: sort the rows of an append table by these columns, so that filters on them read fewer files
        strategy: `order`, `zorder`, `hilbert`, or None to choose by the number of columns

        Writers can continue, and their new files are left for the next call. On tables with a primary key they should
        be write-only, or both may compact the same files. Then old snapshots expire by the table's options.

        Raises CommitConflict if others repeatedly committed first; CorruptFile for files that can't be read, after the
        other buckets are done.
        """
        request = CompactionRequest(
            full=full,
            where=as_predicate(where, self.schema) if where is not None else None,
            order_by=tuple(order_by),
            strategy=ClusteringStrategy.parse(strategy) if strategy is not None else None,
        )
        return table_compaction.compact(self._context, request, cancellation=cancellation)

    @checked
    def rewrite_file_index(self, *, where: Predicate | Any = None, dry_run: bool = False) -> FileIndexRewrite:
        """Build the indexes that the options `file-index.*` name, for existing files. Data files are not rewritten.

        Makes one snapshot, or none if all files have their indexes.

        where: only partitions that match; on partition columns
        dry_run: only find out which files would change

        Raises CommitConflict if others repeatedly changed the same files.
        """
        condition = as_predicate(where, self.schema) if where is not None else None
        return rewrite_file_indexes(self._context, where=condition, dry_run=dry_run)

    @checked
    def expire(
        self, *, retain_min: int | None = None, retain_max: int | None = None, retain_ms: int | None = None
    ) -> ExpiryResult:
        """Expire old snapshots, and delete the files that only they reference. Writers can continue.

        Keeps tags, and snapshots that consumers have not read yet. Unless the table is write-only, writers expire a few
        snapshots after each commit by themselves.

        retain_min: instead of option `snapshot.num-retained.min`
        retain_max: instead of option `snapshot.num-retained.max`
        retain_ms: instead of option `snapshot.time-retained`
        """
        return expire_now(
            self._context, retention=retention_of(self._context.options, retain_min, retain_max, retain_ms)
        )

    def _time_travel(self, snapshot_id: int | None, tag: str | None, as_of: datetime | int | None) -> SystemTableRead:
        """Return the snapshot, and the table with the schema to read it with."""
        files_since_ms = None
        if snapshot_id is None and tag is None and as_of is None:
            position = TimeTravel.of(self._context)
            snapshot_id, tag, as_of = position.snapshot_id, position.tag, position.as_of_ms
            files_since_ms = position.files_since_ms
        found = named_state(self._context, snapshot_id, tag, as_of)
        self._identity.check_before_read()  # after the read, so that the result is certainly of this table
        context = self._context
        if found is not None and (snapshot_id, tag, as_of) != (None, None, None):
            context = context.with_schema(context.schemas.get(found.schema_id))
        other = fallback_branch(
            context, found, snapshot_id=snapshot_id, tag=tag, as_of=as_of, files_since_ms=files_since_ms
        )
        return SystemTableRead(context, found, other, files_since_ms=files_since_ms)
