"""The driver's part of a sink: decide whether a batch is new, have it written, commit it once.

1. A batch that (commit user, batch id) shows as committed is passed over: Spark calls again after a crash.
2. Executors decode and route, rows travel as blobs, tasks write files. *Crash: files nobody sees.*
3. One commit publishes them, with the batch id as identifier. *Crash: step 1 of the replay finds it.*

Raw records also bring their position: a snapshot names the offsets it was made from, and a batch that reads offsets a
second time, under whatever commit user, is refused.

There are no epochs here: the batch id is the fence. A driver that was left for dead and wakes finds its batch committed
(1, or 3 recognises it), and can't begin another: Spark's checkpoint directory gives each batch id to one driver.

Source: spark notes B6 to B8.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

from pyspark.sql import DataFrame

from checkpoint.offsets import SourcePosition
from checkpoint.position_text import POSITION_PROPERTY, position_from_text, position_to_text
from ingest.formats.connect_schema import ConnectorSettings
from ingest.spark.batch_rows import BatchInput, RawRecords, Seen, TypedColumns
from ingest.spark.bucket_task import WriteBuckets
from ingest.spark.shuffle import PARTS_SCHEMA, Kind, MakeParts, merge_seen
from ingest.spark.upkeep import upkeep
from storage.bucketing import Bucketing, BucketMode
from storage.catalog.filesystem import FileSystemCatalog
from storage.errors import BadInput, CommitConflict, PositionRefused, UnsupportedFeature
from storage.fileio import open_file_io
from storage.logs import get_logger
from storage.snapshots.commit import TableCommit
from storage.snapshots.commit_message import CommitMessage, Committable
from storage.snapshots.publisher import Guard
from storage.snapshots.snapshot import Snapshot, SnapshotStore
from storage.table import TableContext

_log = get_logger(__name__)

_QUERY_ID_PROPERTY = "sql.streaming.queryId"


def sink(  # noqa: PLR0913 - one parameter a thing people set
    table: str,
    warehouse: str,
    *,
    format: str | None = None,
    match: str | Sequence[str] | None = None,
    order_by: Sequence[str] = (),
    commit_user: str | None = None,
    reread: bool = False,
    dead_letters: str | None = None,
    source_types: Mapping[str, str] | None = None,
    connector: Mapping[str, str] | None = None,
    truncates: Literal["fail", "skip"] = "fail",
    options: Mapping[str, str] | None = None,
) -> TableSink:
    """A function for `df.writeStream.foreachBatch(...)` that keeps a table up to date, each batch exactly once.

    table, warehouse: where the rows go; the table exists. options: of the store, as for `tidelake.open_catalog`.
    format: None for columns of the table (and optionally `_VALUE_KIND`), "debezium-json" for raw change records:
    Kafka's
        columns, or one text column `value` with the lines of a change-log folder.
    match: for raw records, patterns of source tables that are meant (`public.orders`); without, there may be only one.
    order_by: for typed columns, which of two rows of a key is newer. Needed when a batch may hold a key twice and the
        table has no `sequence.field`.
    commit_user: names this stream of commits for ever. Without one it is made from the query's id, which stays the same
        as long as the checkpoint directory does. Spark Connect doesn't tell the id: pass one there.

    Only for raw records:
    reread: take offsets that are in the table already instead of refusing them.
    dead_letters: a location for records that can't be decoded; without one the first of them stops the query.
    source_types: column to what its values mean at the source, where records can't say ("bigint unsigned", "bits").
    connector: settings of the Debezium connector that its records don't carry (`binary_handling_mode`, …).
    truncates: what a truncate of the source table does: it can't be applied in order.
    """
    if format is None:
        rows: BatchInput = TypedColumns(tuple(order_by))
    elif format == "debezium-json":
        if order_by:
            raise BadInput("raw records are ordered by their offsets; leave order_by out")
        rows = RawRecords(
            (match,) if isinstance(match, str) else None if match is None else tuple(match),
            dead_letters is not None,
            dict(source_types or {}),
            ConnectorSettings(**connector or {}),
            truncates,
        )
    else:
        raise UnsupportedFeature(
            f"format = {format!r}", "this release decodes debezium-json", "Decode in the query, and leave format out"
        )
    return TableSink(table, warehouse, rows, commit_user, reread, dead_letters, dict(options or {}))


@dataclass(frozen=True)
class TableSink:
    """See `sink`. Call it as Spark does: (DataFrame, batch id)."""

    table: str
    warehouse: str
    input: BatchInput
    commit_user: str | None = None
    reread: bool = False
    dead_letters: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        catalog = FileSystemCatalog(open_file_io(self.warehouse, self.options), self.warehouse)
        context = catalog.load(self.table)
        user = self.commit_user or _user_of_query(batch, context)
        snapshots = SnapshotStore(context.io, context.paths)
        committed = snapshots.newest_of_user(user)
        if committed is not None and committed.commit_identifier >= batch_id:
            _log.info("batch_replayed", table=self.table, batch_id=batch_id, snapshot=committed.id)
            return
        messages, seen = self._write(batch, batch_id, context, user)
        based_on = snapshots.latest_id() or 0
        properties = self._position(context, snapshots, seen)
        self._keep_letters(user, batch_id, seen)
        if messages:
            # what tasks compacted beside the rows may be lost to a compaction job; the rows are not
            guard = _position_guard(self.table, user, based_on) if properties else None
            commit = TableCommit(context, user, guard=guard, on_lost_compaction=lambda _: None)
            published = commit.commit(Committable(batch_id, messages, properties=properties))
            _log.info("batch_committed", table=self.table, batch_id=batch_id, snapshot=published)
            if published is not None:
                upkeep.committed(context, user, published)

    def _write(
        self, batch: DataFrame, batch_id: int, context: TableContext, user: str
    ) -> tuple[list[CommitMessage], Seen]:
        slots = _slots(batch, context)
        found = self._written(batch, batch_id, context, slots)
        if found[Kind.ALONE]:
            TableCommit(context, user).abort(_messages(found))  # of this attempt, and shown to nobody
            found = self._written(batch, batch_id, context, 1)
        return _messages(found), merge_seen(found[Kind.SEEN])

    def _written(self, batch: DataFrame, batch_id: int, context: TableContext, slots: int) -> dict[Kind, list[bytes]]:
        """Payloads that came back from the tasks, by kind."""
        parts = batch.mapInArrow(MakeParts(context, self.input, slots), PARTS_SCHEMA)
        writers = WriteBuckets(
            context, batch_id, self.input.has_order, self.dead_letters is not None, is_alone=slots == 1
        )
        written = parts.repartitionById(slots, "slot").mapInArrow(writers, PARTS_SCHEMA)
        found: dict[Kind, list[bytes]] = {kind: [] for kind in Kind}
        for row in written.select("kind", "payload").collect():
            found[Kind(row.kind)].append(bytes(row.payload))
        return found

    def _keep_letters(self, user: str, batch_id: int, seen: Seen) -> None:
        """Durable before the snapshot whose position passes them; a replayed batch finds its file."""
        if seen.letters and self.dead_letters is not None:
            path = f"{self.dead_letters.rstrip('/')}/{quote(user, safe='')}-{batch_id}.jsonl"
            text = "".join(letter + "\n" for letter in seen.letters)
            open_file_io(path, self.options).create_if_absent(path, text.encode())
            _log.warning("dead_letters", table=self.table, batch_id=batch_id, count=len(seen.letters), path=path)

    def _position(self, context: TableContext, snapshots: SnapshotStore, seen: Seen) -> dict[str, str]:
        """The snapshot's properties. Raises PositionRefused for offsets that are in the table, BadInput for a mixture
        of tables.
        """
        if isinstance(self.input, RawRecords) and self.input.match is None and len(seen.sources) > 1:
            raise BadInput(
                f"{self.table}: records of {' and '.join(sorted(seen.sources))} in one stream; "
                "pass match=… to say which of them the table is for"
            )
        if not seen.ranges:
            return {}
        known = _newest_position(snapshots)
        again = {p: (r, known.ends[p]) for p, r in seen.ranges.items() if r.start < known.ends.get(p, 0)}
        if again and not self.reread:
            partition, (found, end) = sorted(again.items())[0]
            raise PositionRefused(
                f"{self.table}: the batch reads {partition} from offset {found.start}, but the table holds its records "
                f"up to {end} already: they would be there twice",
                [
                    f"start the query at the table's position: option(\"startingOffsets\", '{_offsets_json(known)}')",
                    "go on with the checkpoint directory that wrote them",
                    "sink(…, reread=True), where applying records again does no harm (a primary key that deduplicates)",
                ],
            )
        starts = {partition: found.start for partition, found in seen.ranges.items()}
        ends = {partition: found.end for partition, found in seen.ranges.items()}
        return {POSITION_PROPERTY: position_to_text(known.including(starts).advanced(ends))}


def _position_guard(table: str, user: str, based_on: int) -> Guard:
    """Against another stream that moved the table's position after ours was compared with it."""

    def guard(snapshots: Sequence[Snapshot]) -> None:
        for snapshot in snapshots:
            is_other = snapshot.id > based_on and snapshot.commit_user != user
            if is_other and POSITION_PROPERTY in snapshot.properties:
                raise CommitConflict(
                    f"{table}: while this batch was written, {snapshot.commit_user!r} moved the table's position, in "
                    f"snapshot {snapshot.id}: two streams read into it. Nothing of the batch was published. Stop one "
                    "of them; the batch is compared with the new position when it is done again"
                )

    return guard


def _messages(found: Mapping[Kind, list[bytes]]) -> list[CommitMessage]:
    return [message for payload in found[Kind.MESSAGES] for message in pickle.loads(payload)]


def _user_of_query(batch: DataFrame, context: TableContext) -> str:
    try:
        query_id = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID_PROPERTY)
    except Exception as e:  # Spark Connect has no context, and says so in several ways
        raise BadInput(
            f"{context.name}: the query's id can't be told here ({e}). Pass commit_user=… to sink()"
        ) from None
    if not query_id:
        raise BadInput(f"{context.name}: not called from a streaming query. Pass commit_user=… to sink()")
    return f"spark-{query_id}-{context.name}"


def _slots(batch: DataFrame, context: TableContext) -> int:
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


def _newest_position(snapshots: SnapshotStore) -> SourcePosition:
    """Of the newest snapshot that tells one, whoever wrote it."""
    latest: Snapshot | None = snapshots.latest()
    for snapshot in snapshots.back_from(latest) if latest is not None else ():
        text = snapshot.properties.get(POSITION_PROPERTY)
        if text is not None:
            return position_from_text(text, f"snapshot {snapshot.id}")
    return SourcePosition()


def _offsets_json(position: SourcePosition) -> str:
    topics: dict[str, dict[str, int]] = {}
    for partition, end in sorted(position.ends.items()):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = end
    return str(topics).replace("'", '"')
