"""The driver's part of a sink: decide whether a batch is new, have it written, commit it once.

1. A batch that is the newest one committed is passed over: Spark calls again after a crash, for its last batch only. An
   older one comes from another checkpoint directory, or one that was reset, and is refused. So is one of the same
   number that read other offsets; typed rows have none, and only the query's id can be compared.
2. Executors decode and route, rows travel as blobs, tasks write files (`batch_write`). *Crash: files that no snapshot
   names.*
3. One commit a table publishes them, with the batch id as identifier. *Crash: step 1 of the replay finds it.*

Raw records also bring their position: a snapshot names the offsets it was made from, and a batch that reads offsets a
second time, under whatever commit user, is refused; so is a query that begins past them (`batch_position`).

There are no epochs here: the batch id is the fence. A driver that was left for dead and wakes finds its batch, or a
later one, committed (1, or 3 recognises it), and can't begin another: Spark's checkpoint directory gives each batch id
to one driver.

Source: Spark `MicroBatchExecution.populateStartOffsets`: it begins with the last batch of its offset log if the commit
log lacks it, else with the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Final, Literal, Protocol
from urllib.parse import quote

from pyspark.sql import DataFrame

from checkpoint.routing import takes_topic
from compaction.postpone_batch import Rescale
from ingest.dead_letter_table import DeadLetterTable
from ingest.formats.registry import open_format
from ingest.spark.assigning.fixed_bucket_write import written_in_fixed_buckets
from ingest.spark.batch_commits import BatchCommits, BatchOutdated, query_user
from ingest.spark.batch_facts import BatchFacts, SchemaNeed, TableFacts
from ingest.spark.batch_position import BatchPosition, Ranges
from ingest.spark.batch_rows import BatchInput, RawRecords, TypedColumns
from ingest.spark.batch_write import BatchBlobs, TaskOutput, decoded, offsets_of, side_by_side
from ingest.spark.maintenance import maintenance
from storage.catalog.base import Catalog
from storage.catalog.opening import open_catalog
from storage.commit.commit_message import Committable
from storage.commit.publisher import Guard
from storage.commit.table_commit import TableCommit
from storage.errors import BadInput, CommitConflict
from storage.fileio import open_file_io
from storage.logs import get_logger
from storage.metadata_cache import MetadataCache
from storage.table import TableContext
from storage.write.assigners.cross_partition.replaceable import check_replaceable

_log = get_logger(__name__)

_QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"  # Spark's
_ATTEMPTS: Final = 5  # to write a table's part of a batch and commit it, where others commit first
_TABLES_AT_ONCE: Final = 8
_METADATA_BYTES: Final = 128 << 20  # of a table: a file in each of ten thousand buckets, some times over


def sink(  # noqa: PLR0913 - one parameter a thing people set
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
    options: Mapping[str, str] | None = None,
) -> SparkSink:
    """A function for `df.writeStream.foreachBatch(...)` that keeps a table up to date, each batch exactly once.

    Call what it returns once for each batch, with the whole of it. It raises PositionRefused for a batch that is older
    than the newest of the commit user, or has its number and other offsets; for offsets that the table holds already;
    and for a query that begins past them.
    table, warehouse: where the rows go; the table exists.
    options: of the store, as for `tidelake.open_catalog`.
    format: None for columns of the table (and optionally `_VALUE_KIND`), the `format` of a configuration for raw change
        records: Kafka's columns, or one text column `value` with the lines of a change-log folder.
    match: for raw records, patterns of source tables that are meant (`public.orders`); without, there may be only one.
    order_by: for typed columns, which of two rows of a key is newer. Needed when a batch may hold a key twice and the
        table has no `sequence.field`.
    commit_user: permanent name of this stream of commits; it belongs to one checkpoint directory. Without one it is
        made from the query's id, which stays the same as long as the directory does. Spark Connect doesn't report the
        id: pass one there.

    Only for raw records:
    topics: patterns of topics whose records are meant; the table's position says how far these were read.
    reread: take offsets that are in the table already instead of refusing them.
    accept_gap: let a query begin past the offsets that are in the table; the snapshot keeps that it was chosen.
    dead_letters: a location for records that can't be decoded; without one the first of them stops the query.
    source_types: column to what its values mean at the source, where records can't say ("bigint unsigned", "bits").
    rounded_columns: columns whose values may lose digits that the column's type lacks.
    connector: the `format_options` of a configuration: settings of the connector that its records don't carry
        (`binary_handling_mode`, …), and `inexact_values` (all columns may lose digits).
    truncates: what a truncate of the source table does, "fail" or "skip": it can't be applied in order. The same as the
        format option of that name.
    """
    if format is None:
        rows: BatchInput = TypedColumns(tuple(order_by))
    else:
        if order_by:
            raise BadInput("raw records are ordered by their offsets; leave order_by out")
        given = {} if truncates == "fail" else {"truncates": truncates}
        rows = RawRecords(
            open_format(format, {**given, **(connector or {})}),
            (match,) if isinstance(match, str) else None if match is None else tuple(match),
            dead_letters is not None,
            dict(source_types or {}),
            tuple(rounded_columns),
            tuple(topics),
        )
    return SparkSink(table, warehouse, rows, commit_user, reread, accept_gap, dead_letters, dict(options or {}))


@dataclass(frozen=True)
class Overwrite:
    """What a write replaces: of partitions that agree with `partition` all rows; else those of the partitions that rows
    go to (is_dynamic), or the whole table's.

    properties: of the snapshot.
    """

    partition: Mapping[str, Any] | None = None
    is_dynamic: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SparkDeadLetterTable:
    """A table for dead letters, in the sink's warehouse. pipeline: named in its rows."""

    name: str
    pipeline: str

    def keep(self, catalog: Catalog, lines: Sequence[str]) -> None:
        """A replayed batch finds its rows."""
        count = DeadLetterTable(catalog, self.name, self.pipeline).append_lines(lines)
        _log.warning("records became dead letters", table=self.name, count=count, there_already=len(lines) - count)


@dataclass(frozen=True)
class SparkSink:
    """See `sink`. Call it as Spark does: (DataFrame, batch id).

    dead_letter_table: of dead letters, in place of a location.
    guard: for a write that is no batch of a query, and is never repeated: see `Publisher`.
    overwrite: of such a write; its `input` replaces, too.
    rescale: for such a write into a table with `bucket = -2`, whose rows get buckets at once; else they wait for them.
    """

    table: str
    warehouse: str
    input: BatchInput
    commit_user: str | None = None
    reread: bool = False
    accept_gap: bool = False
    dead_letters: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    dead_letter_table: SparkDeadLetterTable | None = None
    guard: Guard | None = None
    overwrite: Overwrite | None = None
    rescale: Rescale | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        write_batch([self], batch, batch_id)

    @property
    def topics(self) -> Sequence[str]:
        return self.input.topics if isinstance(self.input, RawRecords) else ("*",)

    def open(self, batch_id: int, query: str | None) -> TableBatch:
        """Reads the table's newest state."""
        context = open_catalog(self.warehouse, self.options).load(self.table)
        context = context.with_cache(_metadata_cache(context.location))
        if self.overwrite is not None:
            check_replaceable(context, self.overwrite.partition, is_dynamic=self.overwrite.is_dynamic)
        user = self.commit_user or _user_of(query, context)
        return TableBatch(self, context, user, batch_id, query)

    def keep_dead_letters(self, user: str, batch_id: int, lines: Sequence[str]) -> None:
        """Durable before the snapshot whose position passes them; a replayed batch finds its file."""
        if lines and self.dead_letter_table is not None:
            self.dead_letter_table.keep(open_catalog(self.warehouse, self.options), lines)
        elif lines and self.dead_letters is not None:
            path = f"{self.dead_letters.rstrip('/')}/{quote(user, safe='')}-{batch_id}.jsonl"
            text = "".join(line + "\n" for line in lines)
            open_file_io(path, self.options).create_if_absent(path, text.encode())
            _log.warning(
                "records became dead letters", table=self.table, batch_id=batch_id, count=len(lines), path=path
            )


class TableBatch:
    """A batch's part of one table."""

    def __init__(self, sink: SparkSink, context: TableContext, user: str, batch_id: int, query: str | None) -> None:
        self.context = context
        self.sink = sink
        self._user = user
        self._batch_id = batch_id
        reread = sink.reread if isinstance(sink.input, RawRecords) else None
        self._commits = BatchCommits(context, user, query, reread, sink.accept_gap, sink.guard)
        self._position: BatchPosition | None = None
        self.published: int | None = None

    def is_committed(self, offsets: Callable[[], Ranges]) -> bool:
        """See `BatchCommits.is_committed`."""
        is_committed = self._commits.is_committed(self._batch_id, lambda: self._own(offsets()))
        if is_committed:
            _log.info("batch replayed", table=self.context.name, batch_id=self._batch_id)
        return is_committed

    def check(self, ranges: Ranges, facts: TableFacts) -> None:
        """Before anything is written. ranges: of the whole batch.

        Raises BadInput for a mixture of source tables; PositionRefused for offsets that don't follow on the table's.
        """
        is_any = isinstance(self.sink.input, RawRecords) and self.sink.input.match is None
        if is_any and len(facts.sources) > 1:
            raise BadInput(
                f"{self.context.name}: records of {' and '.join(sorted(facts.sources))} in one stream; "
                "pass match=… to say which of them the table is for"
            )
        self._position = self._commits.next_position(self._own(ranges))

    def in_buckets(self, rows: BatchBlobs, written: TaskOutput) -> TaskOutput:
        """What is to be committed of what tasks wrote."""
        if self.sink.rescale is None:
            return written
        messages = written_in_fixed_buckets(
            rows.session,
            self.context,
            written.messages,
            commit_user=self._user,
            rescale=self.sink.rescale,
            replaces=self.sink.overwrite is not None,
            cores=rows.cores,
        )
        return replace(written, messages=messages)

    def commit(self, facts: BatchFacts, of_table: TableFacts, written: TaskOutput, *, is_last: bool) -> bool:
        """False where another writer's commit came first: the files are gone, and the rows must be written again.

        is_last: to raise CommitConflict instead.
        """
        self.sink.keep_dead_letters(self._user, self._batch_id, [*of_table.dead_letters, *written.dead_letters])
        try:
            published = self._publish(written)
        except CommitConflict as conflict:
            TableCommit(self.context, self._user).abort(written.messages)  # published nothing
            if is_last or isinstance(conflict, BatchOutdated):
                raise
            _log.warning("batch is written again", table=self.context.name, batch_id=self._batch_id, why=str(conflict))
            self.check(facts.ranges, of_table)
            return False
        self.published = published
        if published is not None and self.sink.guard is None:
            maintenance.committed(self.context, self._user, published)
        return True

    def _publish(self, written: TaskOutput) -> int | None:
        if self.sink.overwrite is None:
            return self._commits.publish(self._batch_id, written.messages, self._position)
        commit = TableCommit(self.context, self._user, guard=self.sink.guard)
        replaced = self.sink.overwrite
        committable = Committable(self._batch_id, written.messages, properties=dict(replaced.properties))
        try:
            return commit.overwrite(committable, replaced.partition, dynamic=replaced.is_dynamic)
        except BadInput:
            commit.abort(written.messages)  # rows outside of the partition to replace
            raise

    def _own(self, ranges: Ranges) -> Ranges:
        return {partition: r for partition, r in ranges.items() if takes_topic(self.sink.topics, partition.topic)}


class BatchObserver(Protocol):
    """Hears what becomes of a batch, on any thread."""

    def was_read(self, ranges: Ranges) -> None: ...

    def commit_began(self, context: TableContext) -> None: ...

    def commit_ended(self, context: TableContext, took_ms: int, rows: int, snapshot_id: int | None) -> None:
        """However it ended. rows: of the files. snapshot_id: None where there is none."""
        ...

    def became_dead_letters(self, lines: Sequence[str]) -> None: ...


class SchemaFollower(Protocol):
    """Has tables fit their records, in the driver."""

    def decided(self, sink: SparkSink) -> SparkSink:
        """With what is decided about the table's columns now."""
        ...

    def follow(self, needs: Mapping[str, Sequence[SchemaNeed]]) -> bool:
        """needs: by table. Returns whether tables have changed, or what is decided about them: then the batch is
        decoded again. Raises BadInput for what can't be, or shall not.
        """
        ...


def write_batch(
    sinks: Sequence[SparkSink],
    batch: DataFrame,
    batch_id: int,
    schemas: SchemaFollower | None = None,
    observer: BatchObserver | None = None,
) -> list[int]:
    """A batch into the tables of several sinks, which is decoded once: of raw records of one format.

    schemas: for `RawRecords.decisions`. What a batch needs of its tables is made before a row of it is written; a
    crash in between needs no repair, as the batch is decoded again, and then fits.

    Returns the snapshots that were made. Raises the first error. Tables that are committed until then stay so; a batch
    that is done again passes them over.
    """
    query = _query_id(batch)
    offsets = cache(lambda: offsets_of(batch).ranges)
    with ThreadPoolExecutor(min(len(sinks), _TABLES_AT_ONCE) or 1, "open") as threads:
        opened = list(threads.map(lambda one: one.open(batch_id, query), sinks))
    due = [one for one in opened if not one.is_committed(offsets)]
    if not due:
        return []
    while True:
        with decoded(batch, [(one.context, one.sink.input) for one in due]) as rows:
            needs = {due[number].sink.table: of.needs for number, of in rows.facts.tables.items() if of.needs}
            if schemas is None or not needs or not schemas.follow(needs):
                return _write_decoded(due, rows, batch_id, observer)
        due = [schemas.decided(one.sink).open(batch_id, query) for one in due]


def _write_decoded(
    due: Sequence[TableBatch], rows: BatchBlobs, batch_id: int, observer: BatchObserver | None
) -> list[int]:
    """See `write_batch`."""
    facts = rows.facts
    if observer is not None:
        observer.was_read(facts.ranges)
    for number, one in enumerate(due):
        one.check(facts.ranges, facts.table(number))
    left = list(range(len(due)))
    for attempt in range(1, _ATTEMPTS + 1):
        written = {number: due[number].in_buckets(rows, of) for number, of in rows.write(left, batch_id).items()}
        is_last = attempt == _ATTEMPTS
        left = side_by_side(
            {
                number: partial(_commit, due[number], facts, facts.table(number), written[number], is_last, observer)
                for number in left
            }
        )
        if not left:
            break
    return [one.published for one in due if one.published is not None]


def _commit(
    one: TableBatch,
    facts: BatchFacts,
    of_table: TableFacts,
    written: TaskOutput,
    is_last: bool,
    observer: BatchObserver | None,
) -> bool:
    if observer is None:
        return one.commit(facts, of_table, written, is_last=is_last)
    observer.commit_began(one.context)
    began = time.monotonic()
    rows = sum(file.row_count for message in written.messages for file in message.new_files)
    try:
        is_done = one.commit(facts, of_table, written, is_last=is_last)
    finally:
        observer.commit_ended(one.context, int((time.monotonic() - began) * 1000), rows, one.published)
    if is_done:
        observer.became_dead_letters([*of_table.dead_letters, *written.dead_letters])
    return is_done


def _query_id(batch: DataFrame) -> str | None:
    """None outside of a streaming query, and on Spark Connect."""
    try:
        query: str | None = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID_PROPERTY)
    except Exception:  # Spark Connect has no context, and says so in several ways
        return None
    return query or None


def _user_of(query: str | None, context: TableContext) -> str:
    if query is None:
        raise BadInput(
            f"{context.name}: no streaming query calls, or one on Spark Connect, which doesn't report its id. Pass "
            "commit_user=… to sink()"
        )
    return query_user(query, context)


@cache
def _metadata_cache(location: str) -> MetadataCache:
    """From batch to batch: manifests that were read stay known, and what is live."""
    return MetadataCache(_METADATA_BYTES)
