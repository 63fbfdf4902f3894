"""Dead letters as rows of an append table, which can be queried.

Dead letters are committed before any table's position passes their records, under a separate commit user. A record that
is read again after a crash is recognized by its `id`, and is not written twice. A process that takes over may read the
same records as the one before: who writes second finds the rows of the first.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput, CommitConflict
from tidelake.ingest.clock import Clock
from tidelake.ingest.dead_letters import DeadLetters, dead_letter_id, dead_letter_id_of_line
from tidelake.ingest.formats.base import DecodeFailure, FailureKind
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.ddl.schema_changes import AddColumn
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import STRING
from tidelake.storage.read.conditions import as_predicate
from tidelake.storage.read.predicate import Predicate, col
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.write.table_writer import TableWriter

_TIME: Final = pa.timestamp("ms", "UTC")
COLUMNS: Final = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("pipeline", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", _TIME),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())]))),
        pa.field("error_code", pa.string()),
        pa.field("message", pa.string()),
        pa.field("schema_id", pa.int32()),
        pa.field("failed_at", _TIME),
        pa.field("replay_id", pa.int64()),
        pa.field("replay_outcome", pa.string()),
        pa.field("replayed_at", _TIME),
        pa.field("timestamp_type", pa.string()),
        pa.field("table", pa.string()),
    ]
)
"""The columns of a dead-letter table.

id: digest of topic, partition, offset, time, key and value of the record, and of `table`.
schema_id: id in a schema registry, if the value begins with one.
replay_id: the replay that handled the record; null before.
replay_outcome: the outcome of that replay.
replayed_at: the time of that replay.
timestamp_type: the type in Kafka's terms. Tables of the first releases lack this column until a record with a
    timestamp type is written.
table: the table that can't take the record; null if the record's source table has no other. Added like timestamp_type.
"""

_ADDED_COLUMNS: Final = ("timestamp_type", "table")

_OPTIONS: Final = {"bucket": "-1", "deletion-vectors.enabled": "true"}  # a replay marks the rows that it handled
_ATTEMPTS: Final = 20  # of a commit while other processes of the pipeline write dead letters, too
_SNAPSHOTS_READ_MAX: Final = 32  # of other pipelines; to look for known rows costs less than more
_CONFLUENT_MAGIC: Final = 0
_CONFLUENT_HEADER_BYTES: Final = 5


class DeadLetterTable:
    """The dead-letter table of a pipeline. All methods block."""

    def __init__(self, catalog: Catalog, name: str, pipeline: str) -> None:
        self._catalog = catalog
        self.name = name
        self._pipeline = pipeline
        self.commit_user = f"{pipeline}.dead-letters"

    @property
    def exists(self) -> bool:
        return self._catalog.table_exists(self.name)

    def open(self) -> TableContext:
        """Return the table. Raises BadInput for a table with other columns."""
        context = self._catalog.load(self.name)
        missing = [name for name in COLUMNS.names if name not in context.schema.names and name not in _ADDED_COLUMNS]
        if missing or context.schema.has_primary_key:
            what = f"lacks {', '.join(missing)}" if missing else "has a primary key"
            raise BadInput(
                f"{self.name} {what}, so it can't hold dead letters. Name another table in "
                "`errors.dead_letters.table`; it is created if it does not exist"
            )
        return context

    def create(self) -> None:
        self._catalog.create_database(self.name.partition(".")[0], if_not_exists=True)
        self._catalog.create_table(self.name, COLUMNS, options=_OPTIONS, if_not_exists=True)

    def append(self, rows: pa.Table, check_base: Callable[[Snapshot | None], None] = lambda _: None) -> int | None:
        """Append the rows in one snapshot, and return its id. The table is created if it doesn't exist.

        check_base: see `TableCommit.commit`
        """
        if not self.exists:
            self.create()
        context = self._with_columns_of(rows)
        commit = TableCommit(context, self.commit_user)
        writer = TableWriter(context)
        try:
            writer.write(rows.select([name for name in COLUMNS.names if name in context.schema.names]))
            messages = writer.prepare_commit()
            try:
                return commit.commit(Committable(BATCH_COMMIT_IDENTIFIER, messages), check_base=check_base)
            except CommitConflict:
                commit.abort(messages)
                raise
        finally:
            writer.abort()

    def _with_columns_of(self, rows: pa.Table) -> TableContext:
        """Return the table. A table of an earlier release first gets the missing columns in which these rows have
        values.
        """
        context = self.open()
        for name in _ADDED_COLUMNS:
            if name not in context.schema.names and rows.column(name).null_count < len(rows):
                try:
                    self._catalog.alter_table(self.name, [AddColumn((name,), STRING)])
                except BadInput:
                    if name not in self.open().schema.names:
                        raise
                    # Another pipeline that shares the table added the column meanwhile.
                context = self.open()
        return context

    def append_lines(self, lines: Sequence[str]) -> int:
        """Append lines that `DeadLetters` wrote, in one snapshot, and return the number of new rows.

        Lines whose rows exist already are left out.
        """
        rows = [_row_of_line(line, self._pipeline) for line in lines]
        least = min((row["offset"] for row in rows), default=0)
        found = self.read(col("offset") >= least, ("topic", "partition", "offset", "id"))
        existing = set(found.column("id").to_pylist())
        new = [row for row in rows if row["id"] not in existing]
        if new:
            self.append(pa.Table.from_pylist(new, COLUMNS))
        return len(new)

    def read(self, where: Predicate | Any = None, columns: tuple[str, ...] = tuple(COLUMNS.names)) -> pa.Table:
        """Return dead letters of this pipeline, in the order of topic, partition and offset.

        Raises BadInput for a condition that doesn't fit the columns.
        """
        if not self.exists:
            return COLUMNS.empty_table().select(list(columns))
        context = self.open()
        existing = tuple(name for name in COLUMNS.names if name in context.schema.names)
        own = col("pipeline") == self._pipeline
        condition = own if where is None else own & as_predicate(where, context.schema.arrow)
        condition.expression(context.schema.arrow)
        reader = SnapshotReader(context, existing, condition)
        splits = TableScan(context, condition).plan(context.snapshots.latest())
        found = pa.Table.from_batches(reader.read(splits), reader.schema)
        for name in _ADDED_COLUMNS:
            if name not in existing:
                found = found.append_column(COLUMNS.field(name), pa.nulls(len(found), COLUMNS.field(name).type))
        order = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
        return found.sort_by(order).select(list(columns))


def values_of(letters: pa.Table) -> list[dict[str, Any]]:
    """Return rows of `DeadLetterTable.read` as Python values. Times are epoch milliseconds.

    Times of Kafka's records may be out of the range of Python's datetime; one such time would prevent the conversion of
    all rows.
    """
    for at, column in enumerate(letters.schema):
        if pa.types.is_timestamp(column.type):
            letters = letters.set_column(at, column.name, letters.column(at).cast(pa.int64()))
    found: list[dict[str, Any]] = letters.to_pylist()
    return found


class TableDeadLetters(DeadLetters):
    """Dead letters that are written to a table instead of files."""

    def __init__(
        self, table: DeadLetterTable, pipeline: str, clock: Clock | None = None, *, logs_reasons: bool = False
    ) -> None:
        super().__init__(None, table.name, clock, logs_reasons=logs_reasons)
        self._table = table
        self._pipeline = pipeline
        self._rows: list[dict[str, Any]] = []
        self._seen_id = 0  # others' dead letters up to this snapshot are known

    def recover(self, resume_offsets: Mapping[TopicPartition, int]) -> None:
        self._seen_id = self._latest_id()
        least = min(resume_offsets.values(), default=0)
        found = self._table.read(col("offset") >= least, ("topic", "partition", "offset", "id"))
        for row in found.to_pylist():
            if row["offset"] >= resume_offsets.get(TopicPartition(row["topic"], row["partition"]), 0):
                self._written.add(bytes.fromhex(row["id"]))

    def _store(self, batch: RawBatch, failure: DecodeFailure) -> int:
        row = failure.row
        key, value = (None, None) if failure.is_withheld else (batch.keys[row].as_py(), batch.values[row].as_py())
        timestamp_ms = int(batch.timestamps_ms[row])
        self._rows.append(
            {
                "id": dead_letter_id(batch, failure).hex(),
                "pipeline": self._pipeline,
                "topic": batch.topic,
                "partition": batch.partition,
                "offset": failure.offset,
                "timestamp": timestamp_ms if timestamp_ms >= 0 else None,
                "key": key,
                "value": value,
                "headers": [
                    {"name": name, "value": data}
                    for name, data in (() if failure.is_withheld else batch.headers.get(row, ()))
                ],
                "error_code": failure.code,
                "message": failure.reason,
                "schema_id": _schema_id(value),
                "failed_at": epoch_ms(),
                "timestamp_type": batch.timestamp_type(row),
                "table": failure.table_name if failure.is_shared else None,
            }
        )
        return len(key or b"") + len(value or b"") + len(failure.reason)

    def flush(self) -> None:
        """Write all dead letters to the table. See `DeadLetters.flush`.

        Raises the errors of the commit. After an error, no position may pass these records.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            if not self._rows:
                break
            try:
                snapshot_id = self._table.append(pa.Table.from_pylist(self._rows, COLUMNS), self._check_others)
                self._seen_id = snapshot_id or self._seen_id
                break
            except CommitConflict:
                self._leave_out_known()
                if attempt == _ATTEMPTS:
                    raise
        self._rows, self._waiting_bytes = [], 0

    def _check_others(self, base: Snapshot | None) -> None:
        """Raise CommitConflict if dead letters of this pipeline were written that were not looked at: by another one,
        or by a commit of this one whose outcome was unknown.
        """
        if base is None or base.id <= self._seen_id:
            return
        if base.id - self._seen_id > _SNAPSHOTS_READ_MAX:
            raise CommitConflict(f"{self._table.name}: others have written a lot, maybe dead letters of this pipeline")
        snapshots = self._table.open().snapshots
        since = [base, *(snapshots.find(number) for number in range(self._seen_id + 1, base.id))]
        if any(one is None or one.commit_user == self._table.commit_user for one in since):
            raise CommitConflict(f"{self._table.name}: another process wrote dead letters of this pipeline")

    def _leave_out_known(self) -> None:
        """Forget rows that the table has already."""
        self._seen_id = self._latest_id()
        least = min(row["offset"] for row in self._rows)
        known = set(self._table.read(col("offset") >= least, ("topic", "partition", "offset", "id"))["id"].to_pylist())
        self._rows = [row for row in self._rows if row["id"] not in known]

    def _latest_id(self) -> int:
        return (self._table.open().snapshots.latest_id() or 0) if self._table.exists else 0


def _row_of_line(line: str, pipeline: str) -> dict[str, Any]:
    members = msgspec.json.decode(line)
    key, value = (_bytes_of(members, name) for name in ("key", "value"))
    return {
        "id": dead_letter_id_of_line(line).hex(),
        "pipeline": pipeline,
        **{name: members[name] for name in ("topic", "partition", "offset")},
        "timestamp": members["timestamp_ms"] if members["timestamp_ms"] >= 0 else None,
        "key": key,
        "value": value,
        "headers": [{"name": name, "value": text and text.encode()} for name, text in members["headers"]],
        "error_code": FailureKind(members["kind"]).name,
        "message": members["reason"],
        "schema_id": _schema_id(value),
        "failed_at": epoch_ms(),
        "timestamp_type": members.get("timestamp_type"),
        "table": members.get("table"),
    }


def _bytes_of(members: Mapping[str, Any], name: str) -> bytes | None:
    if (coded := members.get(f"{name}_base64")) is not None:
        return base64.b64decode(coded)
    text: str | None = members[name]
    return None if text is None else text.encode()


def _schema_id(value: bytes | None) -> int | None:
    """Return the schema id of a value in Confluent's wire format: a zero byte, then the id."""
    if value is None or len(value) <= _CONFLUENT_HEADER_BYTES or value[0] != _CONFLUENT_MAGIC:
        return None
    return int.from_bytes(value[1:_CONFLUENT_HEADER_BYTES], signed=True)
