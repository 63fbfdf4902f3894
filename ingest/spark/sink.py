"""The driver's part of a sink: decide whether a batch is new, have it written, commit it once.

1. A batch that is the newest one committed is passed over: Spark calls again after a crash, for its last batch only. An
   older one comes from another checkpoint directory, or one that was set back, and is refused. So is one of the same
   number that read other offsets; typed rows have none, and only the query's id can be compared.
2. Executors decode and route, rows travel as blobs, tasks write files. *Crash: files that no snapshot names.*
3. One commit publishes them, with the batch id as identifier. *Crash: step 1 of the replay finds it.*

Raw records also bring their position: a snapshot names the offsets it was made from, and a batch that reads offsets a
second time, under whatever commit user, is refused; so is a query that begins past them (`batch_position`).

There are no epochs here: the batch id is the fence. A driver that was left for dead and wakes finds its batch, or a
later one, committed (1, or 3 recognises it), and can't begin another: Spark's checkpoint directory gives each batch id
to one driver.

Source: Spark `MicroBatchExecution.populateStartOffsets`: it begins with the last batch of its offset log if the commit
log lacks it, else with the next one.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote

from pyspark.sql import DataFrame

from checkpoint.offsets import OffsetRange, TopicPartition
from ingest.formats.registry import open_format
from ingest.spark.batch_commits import BatchCommits, query_user
from ingest.spark.batch_rows import BatchInput, BatchStatistics, RawRecords, TypedColumns
from ingest.spark.bucket_task import BucketTask
from ingest.spark.maintenance import maintenance
from ingest.spark.shuffle import SHUFFLE_SCHEMA, PayloadKind, ShuffleMap, collect_offsets, merge_statistics
from storage.bucketing import Bucketing, BucketMode, bucket_mode
from storage.catalog.opening import open_catalog
from storage.commit.commit_message import CommitMessage
from storage.commit.table_commit import TableCommit
from storage.errors import BadInput, TidelakeError, UnsupportedFeature
from storage.fileio import open_file_io
from storage.logs import get_logger
from storage.table import TableContext

_log = get_logger(__name__)

_QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"  # Spark's


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
    commit_user: names this stream of commits for ever, and belongs to one checkpoint directory. Without one it is made
        from the query's id, which stays the same as long as the directory does. Spark Connect doesn't report the id:
        pass one there.

    Only for raw records:
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
        )
    return SparkSink(table, warehouse, rows, commit_user, reread, accept_gap, dead_letters, dict(options or {}))


@dataclass(frozen=True)
class SparkSink:
    """See `sink`. Call it as Spark does: (DataFrame, batch id)."""

    table: str
    warehouse: str
    input: BatchInput
    commit_user: str | None = None
    reread: bool = False
    accept_gap: bool = False
    dead_letters: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        context = open_catalog(self.warehouse, self.options).load(self.table)
        _check_buckets(context)
        query = _query_id(batch)
        user = self.commit_user or _user_of(query, context)
        commits = BatchCommits(
            context, user, query, self.reread if isinstance(self.input, RawRecords) else None, self.accept_gap
        )
        if commits.is_committed(batch_id, lambda: _offsets_of(batch)):
            _log.info("batch replayed", table=self.table, batch_id=batch_id)
            return
        messages, statistics = self._write(batch, batch_id, context, user)
        try:
            self._check_sources(statistics)
            position = commits.next_position(statistics.ranges)
        except TidelakeError:
            TableCommit(context, user).abort(messages)  # shown to nobody
            raise
        self._keep_dead_letters(user, batch_id, statistics)
        published = commits.publish(batch_id, messages, position)
        if published is not None:
            maintenance.committed(context, user, published)

    def _write(
        self, batch: DataFrame, batch_id: int, context: TableContext, user: str
    ) -> tuple[list[CommitMessage], BatchStatistics]:
        shuffle_partitions = _shuffle_partitions(batch, context)
        found = self._written(batch, batch_id, context, shuffle_partitions)
        if found[PayloadKind.SINGLE_TASK]:
            TableCommit(context, user).abort(_messages(found))  # of this attempt, and shown to nobody
            found = self._written(batch, batch_id, context, 1)
        return _messages(found), merge_statistics(found[PayloadKind.STATISTICS])

    def _written(
        self, batch: DataFrame, batch_id: int, context: TableContext, shuffle_partitions: int
    ) -> dict[PayloadKind, list[bytes]]:
        """Payloads that came back from the tasks, by kind."""
        parts = batch.mapInArrow(ShuffleMap(context, self.input, shuffle_partitions), SHUFFLE_SCHEMA)
        writers = BucketTask(
            context,
            batch_id,
            self.input.has_order,
            self.input.is_converted,
            self.dead_letters is not None,
            is_single_task=shuffle_partitions == 1,
        )
        written = parts.repartitionById(shuffle_partitions, "shuffle_partition").mapInArrow(writers, SHUFFLE_SCHEMA)
        found: dict[PayloadKind, list[bytes]] = {kind: [] for kind in PayloadKind}
        for row in written.select("kind", "payload").collect():
            found[PayloadKind(row.kind)].append(bytes(row.payload))
        return found

    def _keep_dead_letters(self, user: str, batch_id: int, statistics: BatchStatistics) -> None:
        """Durable before the snapshot whose position passes them; a replayed batch finds its file."""
        if statistics.dead_letters and self.dead_letters is not None:
            path = f"{self.dead_letters.rstrip('/')}/{quote(user, safe='')}-{batch_id}.jsonl"
            text = "".join(line + "\n" for line in statistics.dead_letters)
            open_file_io(path, self.options).create_if_absent(path, text.encode())
            _log.warning(
                "records became dead letters",
                table=self.table,
                batch_id=batch_id,
                count=len(statistics.dead_letters),
                path=path,
            )

    def _check_sources(self, statistics: BatchStatistics) -> None:
        """Raises BadInput for a mixture of tables."""
        if isinstance(self.input, RawRecords) and self.input.match is None and len(statistics.sources) > 1:
            raise BadInput(
                f"{self.table}: records of {' and '.join(sorted(statistics.sources))} in one stream; "
                "pass match=… to say which of them the table is for"
            )


def _check_buckets(context: TableContext) -> None:
    """Tasks choose buckets apart from each other: it takes a function of the rows."""
    if bucket_mode(context.schema, context.options) is BucketMode.DYNAMIC:
        raise UnsupportedFeature(
            f"{context.name}: option bucket = -1 (dynamic) on a primary-key table",
            "cannot write with Spark: an index says which bucket a key lives in, and tasks don't share one",
            "Write with table.writer() or `tidelake ingest run`, or create the table with a fixed number of buckets",
        )


def _messages(found: Mapping[PayloadKind, list[bytes]]) -> list[CommitMessage]:
    return [message for payload in found[PayloadKind.MESSAGES] for message in pickle.loads(payload)]


def _offsets_of(batch: DataFrame) -> Mapping[TopicPartition, OffsetRange]:
    """By a small job of its own."""
    found = batch.mapInArrow(collect_offsets, SHUFFLE_SCHEMA).select("payload").collect()
    return merge_statistics([bytes(row.payload) for row in found]).ranges


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


def _shuffle_partitions(batch: DataFrame, context: TableContext) -> int:
    """How many tasks write: not more than buckets, and few: a thousand tasks for ten thousand rows take half a
    minute.
    """
    cores = int(batch.sparkSession.conf.get("spark.default.parallelism", None) or 0) or _cores(batch)
    bucketing = Bucketing.of(context.schema, context.options)
    if context.schema.partition_keys or bucketing.mode is not BucketMode.FIXED:
        return cores
    return max(1, min(bucketing.num_buckets, cores))


def _cores(batch: DataFrame) -> int:
    try:
        return int(batch.sparkSession.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect
        return 8
