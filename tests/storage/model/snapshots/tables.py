"""Small tables without data files, for tests of metadata alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.commit.publisher import CommitEnvironment, Guard
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from tidelake.storage.model.binary_row import serialize_row
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import FileSource
from tidelake.storage.model.paths import TablePaths
from tidelake.storage.model.schema.schema_store import SchemaStore
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import BIGINT, INT, STRING, DataField, not_null

KEY_TYPES = (not_null(INT),)


def make_table(
    io: FileIO,
    location: str,
    *,
    primary_key: bool = False,
    partitioned: bool = False,
    options: Mapping[str, str] | None = None,
) -> TableContext:
    """Columns k INT, v BIGINT and, where partitioned, p STRING. Two buckets with a primary key, else none."""
    fields = [DataField(0, "k", not_null(INT) if primary_key else INT), DataField(1, "v", BIGINT)]
    if partitioned:
        fields.append(DataField(2, "p", not_null(STRING) if primary_key else STRING))
    partition_keys = ("p",) if partitioned else ()
    schema = TableSchema(
        id=0,
        fields=tuple(fields),
        highest_field_id=len(fields) - 1,
        partition_keys=partition_keys,
        primary_keys=(*partition_keys, "k") if primary_key else (),
        options={"bucket": "2" if primary_key else "-1", **(options or {})},
    )
    SchemaStore(io, TablePaths(location)).publish(schema)
    return TableContext.open(io, location, "db.t")


def partition(name: str | None) -> bytes:
    """A partition of such a table."""
    return serialize_row([name], [STRING])


def key(value: int) -> bytes:
    return serialize_row([value], KEY_TYPES)


def data_file(
    name: str, *, rows: int = 1, level: int = 0, keys: tuple[int, int] | None = None, **more: object
) -> DataFileMeta:
    """keys: smallest and largest, of a primary-key table."""
    low, high = (EMPTY_ROW, EMPTY_ROW) if keys is None else (key(keys[0]), key(keys[1]))
    members: dict[str, object] = {
        "file_size": 100,
        "key_stats": EMPTY_STATS,
        "value_stats": EMPTY_STATS,
        "min_sequence_number": 0,
        "max_sequence_number": rows - 1,
        "schema_id": 0,
        "creation_time_ms": 1_700_000_000_000,
        "delete_row_count": 0,
        "file_source": FileSource.APPEND,
        "value_stats_columns": (),
        **more,
    }
    return DataFileMeta(
        file_name=name,
        row_count=rows,
        min_key=low,
        max_key=high,
        level=level,
        **members,  # type: ignore[arg-type]
    )


def added(*names: str, bucket: int = 0, in_partition: bytes = EMPTY_ROW, base: int | None = None) -> CommitMessage:
    """New files of one bucket, one row each."""
    files = tuple(data_file(name, keys=(i, i)) for i, name in enumerate(names))
    return CommitMessage(BucketId(in_partition, bucket), CommitIncrement(new_files=files), CommitBase(snapshot_id=base))


def with_increment(message: CommitMessage, **changes: Any) -> CommitMessage:
    """The message with other files: fields of `CommitIncrement`."""
    return replace(message, increment=replace(message.increment, **changes))


def with_lost_compaction(message: CommitMessage) -> CommitMessage:
    """The message, as if its new files had been compacted, too."""
    return with_increment(message, compacted=CompactResult(message.increment.new_files))


@dataclass
class FakeTime:
    """A clock that advances by sleeping, and randomness with a fixed value."""

    now_ms: int = 1_700_000_000_000
    slept_ms: list[float] = field(default_factory=list)
    uuids: Iterator[int] = field(default_factory=itertools.count)

    def sleep(self, wait_ms: float) -> None:
        self.slept_ms.append(wait_ms)
        self.now_ms += int(wait_ms)

    def environment(self) -> CommitEnvironment:
        return CommitEnvironment(
            now_ms=lambda: self.now_ms, monotonic_ms=lambda: self.now_ms, sleep_ms=self.sleep, random=lambda: 0.5
        )


def committer(
    context: TableContext, user: str = "etl", *, guard: Guard | None = None, time: FakeTime | None = None
) -> TableCommit:
    return TableCommit(context, user, guard=guard, environment=(time or FakeTime()).environment())


def snapshots(context: TableContext) -> list[Snapshot]:
    return context.snapshots.all()


def latest(context: TableContext) -> Snapshot:
    found = context.snapshots.latest()
    assert found is not None
    return found


def live_names(context: TableContext, snapshot: Snapshot | None = None) -> list[str]:
    return sorted(entry.file.file_name for entry in live_entries(context, snapshot or latest(context)))
