"""The driver's part of a sink: it checks whether a batch is new, lets tasks write it, and commits it once.

1. The newest committed batch is skipped: after a crash Spark repeats only its last batch. An older batch comes from
   another checkpoint directory, or from one that was reset, and is refused. So is a batch with the same number and
   other offsets. Typed rows have no offsets, so only the query's id is compared; a run of a query repeats no batch.
   If the query has state, the rows of a skipped batch are computed nevertheless (`operator_state`).
2. Executors decode and route records, send rows as chunks, and write files (`batch_write`). *Crash: orphan files.*
3. One commit per table publishes the files, with the batch id as identifier. *Crash: step 1 of the replay finds it.*

Raw records also have a position: a snapshot records the offsets from which it was made. A batch that reads offsets a
second time, under any commit user, is refused. So is a query that begins past the table's offsets (`batch_position`).

No epochs are needed, because the batch id is the fence. If a suspended driver resumes after another one took over, its
batch or a later one is committed, and step 1 or 3 detects this. It can't begin another batch: Spark's checkpoint
directory gives each batch id to one driver.

Source: Spark `MicroBatchExecution.populateStartOffsets`: it begins with the last batch of its offset log if the commit
log lacks it, or else with the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, Literal, Protocol

from pyspark.sql import DataFrame

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput, RecordRefused
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.spark.batch_position import Ranges
from tidelake.ingest.spark.batch_rows import BatchInput, PipelineRecords, RawRecords, TypedColumns
from tidelake.ingest.spark.batch_statistics import BatchStatistics, SchemaNeed
from tidelake.ingest.spark.batch_target import BatchTarget
from tidelake.ingest.spark.batch_truncates import (
    TruncateSource,
)
from tidelake.ingest.spark.batch_write import BatchChunks, TaskOutput, decoded, offsets_of, run_in_parallel
from tidelake.ingest.spark.dead_letter_budget import DeadLetterBudget
from tidelake.ingest.spark.operator_state import keep_state
from tidelake.ingest.spark.query_monitor import MONITORS, WrittenFiles
from tidelake.ingest.spark.query_runs import query_id, run_id
from tidelake.ingest.spark.release import check_session
from tidelake.ingest.spark.table_batch import TableBatch
from tidelake.ingest.spark.task_errors import explained_task_errors
from tidelake.storage.base import env
from tidelake.storage.base.arguments import checked
from tidelake.storage.base.logs import get_logger
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)

_ATTEMPTS: Final = 5  # attempts to write and commit a table's rows of a batch, if others commit first
_TABLES_AT_ONCE: Final = 64  # tables that the driver opens, checks or commits at once; all of it waits for the store


@checked
def sink(  # noqa: PLR0913 - one parameter per setting
    table: str,
    warehouse: str,
    *,
    format: str | None = None,
    match: str | Sequence[str] | None = None,
    order_by: Sequence[str] = (),
    commit_user: str | None = None,
    reread: bool = False,
    accept_gap: bool = False,
    dead_letters: str | None = None,
    source_types: Mapping[str, str] | None = None,
    rounded_columns: Sequence[str] = (),
    connector: Mapping[str, Any] | None = None,
    truncates: Literal["fail", "skip"] = "fail",
    topics: Sequence[str] = ("*",),
    key_from_records: bool = True,
    key_columns: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> SparkSink:
    """Return a function for `df.writeStream.foreachBatch(...)` that writes each batch to a table exactly once.

    Call the returned function once for each batch, with the whole batch. It raises PositionRefused for a batch that is
    older than the newest of the commit user, or has its number and other offsets; for offsets that the table has
    already; and for a query that begins past the table's offsets.

    table: the table, which must exist.
    warehouse: the warehouse of the table.
    options: options of the store, as for `tidelake.open_catalog`.
    format: None for columns of the table (and optionally `_VALUE_KIND`). For raw change records the `format` of a
        configuration; they are Kafka's columns, or one text column `value` with the lines of a change-log folder.
    match: for raw records: patterns of the source tables to write (`public.orders`). Default: any, but only one.
    order_by: for typed columns: columns that decide which of two rows of a key is newer. Needed if a batch may have a
        key twice and the table has no `sequence.field`.
    commit_user: permanent name of this stream of commits. It belongs to one checkpoint directory. Default: made from
        the query's id, which stays the same as long as the directory. Spark Connect doesn't report the id: set it
        there.

    Only for raw records:
    topics: patterns of topics whose records are written. The table's position includes these topics.
    key_from_records: whether the keys of records identify the table's rows. If not, a key with columns outside of the
        table's key is not refused.
    key_columns: columns of the table that only the keys of records have.
    reread: accept offsets that are in the table already, instead of refusing them.
    accept_gap: let a query begin past the table's offsets. The snapshot records this decision.
    dead_letters: a location for records that can't be decoded. Default: the first of them stops the query.
    source_types: column to its type at the source, if records don't say ("bigint unsigned", "bits").
    rounded_columns: columns whose values may lose digits that the column's type can't hold.
    connector: the `format_options` of a configuration: settings of the connector that its records don't contain
        (`binary_handling_mode`, …), and `inexact_values` (all columns may lose digits).
    truncates: what a truncate of the source table does, "fail" or "skip". Only `tidelake spark run` applies truncates.
        It is the same as the format option of that name.
    """
    if format is None:
        rows: BatchInput = TypedColumns(tuple(order_by))
    else:
        if order_by:
            raise BadInput("raw records are ordered by their offsets; leave out order_by")
        given = {} if truncates == "fail" else {"truncates": truncates}
        rows = RawRecords(
            open_format(format, {**given, **(connector or {})}),
            (match,) if isinstance(match, str) else None if match is None else tuple(match),
            dead_letters is not None,
            dict(source_types or {}),
            tuple(rounded_columns),
            tuple(topics),
            key_from_records=key_from_records,
            key_columns=tuple(key_columns),
        )
    return SparkSink(table, warehouse, rows, commit_user, reread, accept_gap, dead_letters, dict(options or {}))


@dataclass(frozen=True)
class SparkSink(BatchTarget):
    """A target that Spark calls with (DataFrame, batch id). See `sink`."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        observer = MONITORS.of(query_id(batch), self.warehouse)
        if observer is not None:
            observer.began(batch_id)
        write_batch([self], batch, batch_id, observer=observer)


class BatchObserver(Protocol):
    """Gets the events of a batch, on any thread."""

    def was_read(self, ranges: Ranges, record_bytes: Mapping[TopicPartition, int]) -> None: ...

    def commit_began(self, context: TableContext) -> None: ...

    def commit_ended(self, context: TableContext, took_ms: int, written: WrittenFiles, snapshot_id: int | None) -> None:
        """Record the end of a commit, successful or not.

        snapshot_id: None if no snapshot was created.
        """
        ...

    def dead_lettered(self, lines: Sequence[str]) -> None: ...


class QueryTables(Protocol):
    """The tables of a query, in the driver. They are created for the first record that belongs to them."""

    def records(self) -> PipelineRecords:
        """Return how records find their tables now."""
        ...

    def create(self, statistics: BatchStatistics) -> Sequence[BatchTarget]:
        """Create the tables of these first records. Returns the sinks of tables that the query did not know.

        Raises BadInput for a table that can't be created.
        """
        ...

    def keep_dead_letters(self, batch_id: int, lines: Sequence[str]) -> None:
        """Make dead letters without a table durable. A replayed batch finds them."""
        ...

    def read(self, batch_id: int, ranges: Ranges, idle: Mapping[str, Snapshot | None]) -> None:
        """Record that a batch is in all tables.

        ranges: its offsets.
        idle: for tables that it gave no snapshot, the newest one of the query.
        """
        ...


class SchemaFollower(Protocol):
    """Changes the schemas of tables for their records, in the driver."""

    def with_decisions(self, target: BatchTarget) -> BatchTarget:
        """Return the target with the current decisions about the table's columns."""
        ...

    def follow(self, needs: Mapping[str, Sequence[SchemaNeed]]) -> bool:
        """Change tables for these needs. Returns whether tables or decisions have changed; then the batch is decoded
        again.

        needs: the needs of each table.

        Raises BadInput for a change that is impossible or not allowed.
        """
        ...


def write_batch(
    sinks: Sequence[BatchTarget],
    batch: DataFrame,
    batch_id: int,
    schemas: SchemaFollower | None = None,
    observer: BatchObserver | None = None,
    budget: DeadLetterBudget | None = None,
    truncates: TruncateSource | None = None,
    tables: QueryTables | None = None,
) -> list[int]:
    """Write a batch to the tables of several sinks. Raw records of one format are decoded once.

    schemas: for `RawRecords.decisions`. Schema changes are made before any row of the batch is written. A crash in
        between needs no repair: the batch is decoded again, and then fits.
    budget: how many dead letters the run may keep; None for any number.
    truncates: for `RawRecords.applies_truncates`.
    tables: creates further tables. Then `sinks` are those of existing tables, and may be empty.

    Returns the ids of the new snapshots. Raises the first error. Tables that are committed by then stay committed; a
    repeated batch skips them.
    """
    check_session(batch.sparkSession)
    with explained_task_errors():
        return _BatchWrite(batch, batch_id, schemas, observer, budget, truncates, tables).run(sinks)


@dataclass(frozen=True)
class _BatchWrite:
    """The write of one batch. See `write_batch`."""

    batch: DataFrame
    batch_id: int
    schemas: SchemaFollower | None
    observer: BatchObserver | None
    budget: DeadLetterBudget | None
    truncates: TruncateSource | None
    tables: QueryTables | None

    def run(self, sinks: Sequence[BatchTarget]) -> list[int]:
        query = query_id(self.batch)
        offsets = cache(lambda: offsets_of(self.batch).ranges)
        opened = self._open(sinks, query)
        run = run_id(self.batch, query)
        due = [one for one in opened if not one.is_committed(offsets, run)]
        # A batch that is in all known tables may have a record of one that no snapshot names yet.
        written = self._write_due(opened, due, query) if due or self.tables is not None else []
        if opened and not due and not written:
            keep_state(self.batch)
        if run is not None:
            for one in [*opened, *written]:
                one.note_written(run)
        return [one.published for one in written if one.published is not None]

    def _open(self, sinks: Sequence[BatchTarget], query: str | None) -> list[TableBatch]:
        with env.ThreadPoolExecutor(min(len(sinks), _TABLES_AT_ONCE) or 1, "open") as threads:
            return list(threads.map(lambda one: TableBatch.open(one, self.batch_id, query), sinks))

    def _write_due(self, opened: list[TableBatch], due: list[TableBatch], query: str | None) -> list[TableBatch]:
        """Write the batch to the tables of `due`, and to those that are created for it. Returns all of them.

        opened: all tables that existed before.
        """
        schemas, tables = self.schemas, self.tables
        while True:
            inputs = [(one.context, one.input) for one in due]
            with decoded(self.batch, inputs, None if tables is None else tables.records()) as rows:
                found = rows.statistics
                created = [] if tables is None else tables.create(found)
                needs = {due[number].target.table: of.needs for number, of in found.tables.items() if of.needs}
                follows = schemas is not None and bool(needs) and schemas.follow(needs)
                planned = []
                if self.truncates is not None and not follows and not created:
                    truncated = [(due[n], of) for n, of in found.tables.items() if of.truncates]
                    planned = [one.plan_truncation(found.ranges, of, self.truncates) for one, of in truncated]
                if not follows and not created and not any(planned):
                    self._write_decoded(due, rows)
                    if tables is not None:
                        in_end = {one.target.table: one for one in [*opened, *due]}
                        idle = {name: one.newest for name, one in in_end.items() if one.published is None}
                        tables.read(self.batch_id, found.ranges, idle)
                    return due
            if schemas is not None and follows:
                due = self._open([schemas.with_decisions(one.target) for one in due], query)
            if schemas is not None:
                created = [schemas.with_decisions(one) for one in created]
            due = [*due, *self._open(created, query)]

    def _write_decoded(self, due: Sequence[TableBatch], rows: BatchChunks) -> None:
        statistics, budget, observer = rows.statistics, self.budget, self.observer
        if observer is not None:
            observer.was_read(statistics.ranges, statistics.record_bytes)
        with env.ThreadPoolExecutor(min(len(due), _TABLES_AT_ONCE) or 1, "check") as threads:
            for _ in threads.map(lambda n: due[n].check(statistics.ranges, statistics.table(n)), range(len(due))):
                pass  # raises the first error
        left = list(range(len(due)))
        for attempt in range(1, _ATTEMPTS + 1):
            written = {n: due[n].in_buckets(rows, of) for n, of in rows.write(left, self.batch_id).items()}
            letters = {n: [*statistics.table(n).dead_letters, *of.dead_letters] for n, of in written.items()}
            if budget is not None:
                try:
                    of_batch = statistics.dead_letters if attempt == 1 else []
                    budget.check([*of_batch, *(line for lines in letters.values() for line in lines)])
                except RecordRefused:
                    for number, of in written.items():
                        due[number].abort(of)
                    raise
            if attempt == 1 and statistics.dead_letters and self.tables is not None:
                self.tables.keep_dead_letters(self.batch_id, statistics.dead_letters)
                if observer is not None:
                    observer.dead_lettered(statistics.dead_letters)
                if budget is not None:
                    budget.keep(statistics.dead_letters)
            is_last = attempt == _ATTEMPTS
            left = run_in_parallel(
                {n: partial(_commit, due[n], statistics, n, written[n], is_last, observer) for n in left}
            )
            if budget is not None:
                budget.keep([line for n, lines in letters.items() if n not in left for line in lines])
            if not left:
                break


def _commit(
    one: TableBatch,
    statistics: BatchStatistics,
    number: int,
    written: TaskOutput,
    is_last: bool,
    observer: BatchObserver | None,
) -> bool:
    of_table = statistics.table(number)
    if observer is None:
        return one.commit(statistics, of_table, written, is_last=is_last)
    observer.commit_began(one.context)
    began = env.monotonic_s()
    files = WrittenFiles.of(written.messages, of_table.times)
    try:
        is_done = one.commit(statistics, of_table, written, is_last=is_last)
    finally:
        observer.commit_ended(one.context, int((env.monotonic_s() - began) * 1000), files, one.published)
    if is_done:
        observer.dead_lettered([*of_table.dead_letters, *written.dead_letters])
    return is_done
