"""`spark.readStream.format("tidelake")`: Spark's calls of a stream reader, made here; then by Spark itself."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import tidelake
from tests.support.changelog_fold import Rows, fold
from tidelake.errors import BadInput, SnapshotExpired, UnsupportedFeature
from tidelake.spark import register
from tidelake.spark.spark_types import arrow_form
from tidelake.spark.stream_reader import TableStreamReader
from tidelake.spark.table_data_source import TidelakeDataSource
from tidelake.storage.model.format import KIND_COLUMN, RowKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NUMBER = {kind.symbol: int(kind) for kind in RowKind}
ORDERS = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    return catalog


def table_of(lake: tidelake.Catalog, **options: str) -> tidelake.Table:
    given = {"bucket": "2", **{key.replace("_", "-"): value for key, value in options.items()}}
    return lake.create_table("shop.orders", ORDERS, primary_key=["id"], options=given)


def log_of(lake: tidelake.Catalog, **options: str) -> tidelake.Table:
    given = {key.replace("_", "-"): value for key, value in options.items()}
    return lake.create_table("shop.orders", ORDERS, options=given)


def put(table: tidelake.Table, ids: Sequence[int], name: str = "a", kind: str | None = None) -> None:
    with table.writer() as writer:
        rows = pa.table({"id": ids, "name": [name] * len(ids)}, ORDERS)
        if kind is not None:
            kinds = pa.array([_NUMBER[kind]] * len(ids), pa.int8())
            rows = rows.append_column(pa.field(KIND_COLUMN, pa.int8(), nullable=False), kinds)
        writer.write(rows)
        writer.commit()


class Stream:
    """A query as Spark runs one: the reader stays in the driver, and is pickled for tasks."""

    def __init__(
        self, home: Path, options: Mapping[str, str] = MappingProxyType({}), offset: dict[str, Any] | None = None
    ) -> None:
        source = TidelakeDataSource({"warehouse": str(home / "lake"), "table": "shop.orders", **options})
        self.schema = source.schema()
        self.reader = source.streamReader(self.schema)
        self.limit = self.reader.getDefaultReadLimit()
        self.offset = self.begun() if offset is None else offset
        self.batches: list[list[dict[str, Any]]] = []

    def begun(self) -> dict[str, Any]:
        """Behind the first batch, which is empty."""
        first = self.reader.initialOffset()
        end: dict[str, Any] = self.reader.latestOffset(first, self.limit)
        assert self.rows(first, end) == []
        return end

    def step(self) -> bool:
        """One trigger; whether it had rows to read."""
        end = self.reader.latestOffset(self.offset, self.limit)
        if end == self.offset:
            return False
        self.batches.append(self.rows(self.offset, end))
        self.reader.commit(end)
        self.offset = end
        return True

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        in_task: TableStreamReader = pickle.loads(pickle.dumps(self.reader))
        partitions = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        form = arrow_form(self.schema)
        found = [batch for part in partitions for batch in in_task.read(part)]
        assert all(batch.schema == form for batch in found)
        rows: list[dict[str, Any]] = pa.Table.from_batches(found, form).to_pylist()
        return rows

    def drain(self) -> list[dict[str, Any]]:
        """Until nothing more comes; all rows since the stream began."""
        for _ in range(100):
            if not self.step():
                return [row for batch in self.batches for row in batch]
        raise AssertionError("the stream does not come to rest")


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def copy_of(changes: list[dict[str, Any]]) -> Rows:
    """The copy of the table that a follower of these changes has."""
    rows: Rows = {}
    fold(
        rows, [{KIND_COLUMN: _NUMBER[row["rowkind"]], "id": row["id"], "name": row["name"]} for row in changes], ("id",)
    )
    return rows


def rows_of(table: tidelake.Table) -> Rows:
    return {(row["id"],): row for row in table.scan().to_arrow().to_pylist()}


# ---------------------------------------------------------------- the rows of a stream


def test_a_stream_starts_with_existing_rows_and_continues_with_new_ones(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = log_of(lake)
    put(orders, [1, 2])
    stream = Stream(tmp_path)
    assert ids(stream.drain()) == [1, 2]
    put(orders, [3])
    put(orders, [4])
    assert ids(stream.drain()) == [1, 2, 3, 4]
    assert len(stream.batches) == 2


def test_a_stream_of_a_table_without_a_snapshot_waits_for_the_first(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = log_of(lake)
    stream = Stream(tmp_path)
    assert stream.drain() == []
    put(orders, [1])
    assert ids(stream.drain()) == [1]


def test_rows_of_a_table_with_a_primary_key_have_their_row_kind(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = table_of(lake, changelog_producer="input")
    put(orders, [1, 2])
    stream = Stream(tmp_path, {"read.changelog": "true"})
    stream.step()
    put(orders, [1], "b")
    put(orders, [2], kind="-D")
    changes = [(row["rowkind"], row["id"], row["name"]) for row in stream.drain()]
    assert sorted(changes[:2]) == [("+I", 1, "a"), ("+I", 2, "a")]
    assert sorted(changes[2:]) == [("+I", 1, "b"), ("-D", 2, "a")]


def test_without_row_kinds_deletes_are_dropped_only_on_request(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = table_of(lake)
    with pytest.raises(BadInput, match=r"read\.changelog"):
        Stream(tmp_path)
    stream = Stream(tmp_path, {"read.changelog": "false", "scan.mode": "latest"})
    put(orders, [1, 2])
    put(orders, [1], kind="-D")
    put(orders, [2], "b")
    assert sorted((row["id"], row["name"]) for row in stream.drain()) == [(1, "a"), (2, "a"), (2, "b")]


def test_changes_of_a_bucket_are_in_one_task_in_the_order_of_their_commits(
    lake: tidelake.Catalog, tmp_path: Path
) -> None:
    orders = table_of(lake, changelog_producer="lookup")
    put(orders, range(50))
    stream = Stream(tmp_path, {"read.changelog": "true", "scan.mode": "from-snapshot", "scan.snapshot-id": "1"})
    for name in "bcd":
        put(orders, range(50), name)
    put(orders, range(0, 50, 2), kind="-D")
    assert copy_of(stream.drain()) == rows_of(orders)
    assert len(stream.batches) == 1


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("option", "limit", "batches"),
    [
        ("read.stream.maxRowsPerTrigger", "2", [2, 2, 2]),
        ("read.stream.maxRowsPerTrigger", "3", [4, 2]),
        ("read.stream.maxFilesPerTrigger", "1", [2, 2, 2]),
        ("read.stream.maxBytesPerTrigger", "1", [2, 2, 2]),
    ],
)
def test_a_batch_stays_within_its_limits(
    lake: tidelake.Catalog, tmp_path: Path, option: str, limit: str, batches: list[int]
) -> None:
    orders = log_of(lake)
    stream = Stream(tmp_path, {option: limit, "scan.mode": "latest"})
    for first in (1, 3, 5):
        put(orders, [first, first + 1])
    assert ids(stream.drain()) == [1, 2, 3, 4, 5, 6]
    assert [len(batch) for batch in stream.batches] == batches


def test_a_limit_also_splits_the_first_snapshot_of_a_stream(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = table_of(lake)
    put(orders, range(40))
    stream = Stream(tmp_path, {"read.stream.maxFilesPerTrigger": "1", "read.changelog": "true"})
    assert ids(stream.drain()) == list(range(40))
    assert len(stream.batches) == 2, "a batch for each bucket"


def test_with_a_minimum_a_batch_waits_for_that_many_rows(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = log_of(lake)
    minimum = {"read.stream.minRowsPerTrigger": "3", "read.stream.maxTriggerDelayMs": "3600000"}
    stream = Stream(tmp_path, {"scan.mode": "latest", **minimum})
    put(orders, [1, 2])
    assert not stream.step()
    put(orders, [3])
    assert ids(stream.drain()) == [1, 2, 3]


def test_available_now_reads_only_rows_that_existed_at_its_start(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = log_of(lake)
    put(orders, [1])
    stream = Stream(tmp_path, {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"})
    put(orders, [2])
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.step()
    put(orders, [3])
    assert not stream.step()
    assert ids(stream.drain()) == [1, 2]


# ---------------------------------------------------------------- restarts


@pytest.mark.parametrize("limit", [{}, {"read.stream.maxFilesPerTrigger": "1"}])
def test_a_restarted_query_continues_after_its_last_offset(
    lake: tidelake.Catalog, tmp_path: Path, limit: dict[str, str]
) -> None:
    orders = table_of(lake, changelog_producer="input")
    kinds = {"read.changelog": "true", **limit}
    put(orders, range(10))
    first = Stream(tmp_path, kinds)
    first.step()
    put(orders, range(10, 20))
    second = Stream(tmp_path, kinds, first.offset)
    assert ids(first.batches[0] + second.drain()) == list(range(20))


def test_a_replanned_batch_has_the_same_rows(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = table_of(lake)
    put(orders, range(10))
    stream = Stream(tmp_path, {"read.changelog": "true"})
    begin = stream.offset
    stream.step()
    put(orders, range(5), "b")
    orders.compact(full=True)
    again = Stream(tmp_path, {"read.changelog": "true"}, begin)
    assert again.rows(begin, stream.offset) == stream.batches[0]


@pytest.mark.parametrize("mode", ["latest-full", "latest"])
def test_a_query_that_ends_in_its_first_batch_restarts_where_the_batch_began(
    lake: tidelake.Catalog, tmp_path: Path, mode: str
) -> None:
    """Spark has logged the batch's end, and asks a new reader where the query begins."""
    orders = log_of(lake)
    put(orders, [1])
    begun = Stream(tmp_path, {"scan.mode": mode})
    logged_end = begun.offset
    put(orders, [2])
    put(orders, [3])
    again = Stream(tmp_path, {"scan.mode": mode}, logged_end)
    assert again.rows(again.reader.initialOffset(), logged_end) == []
    assert ids(again.drain()) == ([1, 2, 3] if mode == "latest-full" else [2, 3])


def test_a_stream_behind_expiry_raises(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = log_of(lake)
    put(orders, [1])
    stream = Stream(tmp_path)
    stream.step()
    for number in range(2, 6):
        put(orders, [number])
    orders.expire(retain_min=1, retain_max=1, retain_ms=0)
    with pytest.raises(SnapshotExpired, match="its snapshots are 5 to 5"):
        stream.step()


def test_a_consumer_protects_snapshots_that_the_stream_has_not_read(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = log_of(lake)
    put(orders, [1])
    stream = Stream(tmp_path, {"consumer-id": "spark"})
    stream.step()
    for number in range(2, 6):
        put(orders, [number])
    orders.expire(retain_min=1, retain_max=1, retain_ms=0)
    assert ids(stream.drain()) == [1, 2, 3, 4, 5]
    put(orders, [6])
    fresh = Stream(tmp_path, {"consumer-id": "spark"})
    assert ids(fresh.drain()) == [6], "a new query goes on where the consumer is"


def test_a_rolled_back_table_ends_the_stream(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = log_of(lake)
    put(orders, [1])
    put(orders, [2])
    stream = Stream(tmp_path)
    stream.drain()
    lake.drop_table("shop.orders")
    put(log_of(lake), [1])
    with pytest.raises(BadInput, match=r"rolled back|dropped"):
        Stream(tmp_path, offset=stream.offset).step()


# ---------------------------------------------------------------- overwrites, and what is refused


def test_an_overwrite_ends_a_stream_unless_an_option_handles_it(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = table_of(lake)
    put(orders, [1, 2])
    streams = {
        name: Stream(tmp_path, {"read.changelog": "true", **options})
        for name, options in {
            "nothing": {},
            "skip": {"skip-overwrites": "true"},
            "changes": {"streaming-read-overwrite": "true"},
        }.items()
    }
    for stream in streams.values():
        stream.step()
    with orders.writer(overwrite=True) as writer:
        writer.write(pa.table({"id": [3], "name": ["c"]}, ORDERS))
        writer.commit()
    with pytest.raises(UnsupportedFeature, match=r"snapshot 2.*skip-overwrites"):
        streams["nothing"].step()
    assert ids(streams["skip"].drain()) == [1, 2]
    changes = streams["changes"].drain()[2:]
    assert sorted((row["rowkind"], row["id"]) for row in changes) == [("+I", 3), ("-D", 1), ("-D", 2)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshot": "1"}, "option snapshot is only for batch reads"),
        ({"push-filters": "once"}, "push-filters"),
        ({"read.stream.minRowsPerTrigger": "3"}, "Set both"),
        ({"read.stream.maxRowsPerTrigger": "0"}, "whole number from 1"),
        ({"skip-overwrites": "perhaps"}, "true or false"),
    ],
)
def test_options_unrelated_to_a_stream_are_refused(
    lake: tidelake.Catalog, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    put(log_of(lake), [1])
    with pytest.raises(BadInput, match=message):
        Stream(tmp_path, options)


def test_all_available_rows_are_read_on_request_of_spark(lake: tidelake.Catalog, tmp_path: Path) -> None:
    orders = log_of(lake)
    stream = Stream(tmp_path, {"read.stream.maxRowsPerTrigger": "1", "scan.mode": "latest"})
    put(orders, [1, 2])
    put(orders, [3])
    stream.limit = ReadAllAvailable()
    stream.step()
    assert ids(stream.batches[0]) == [1, 2, 3]


# ---------------------------------------------------------------- Spark itself


@pytest.mark.interop
def test_spark_follows_a_table_across_restarts_and_sees_each_change_once(
    spark: SparkSession, lake: tidelake.Catalog, tmp_path: Path
) -> None:
    register(spark)
    orders = table_of(lake, changelog_producer="lookup")
    put(orders, range(100))
    seen: list[dict[str, Any]] = []

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend(row.asDict() for row in batch.collect())

    def run() -> None:
        stream = spark.readStream.format("tidelake").option("warehouse", str(tmp_path / "lake"))
        stream = stream.option("table", "shop.orders").option("read.changelog", "true")
        query = stream.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    run()
    put(orders, range(50), "b")
    put(orders, range(10), kind="-D")
    run()
    assert copy_of(seen) == rows_of(orders)
    kinds = [row["rowkind"] for row in seen]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"+I": 100, "-U": 50, "+U": 50, "-D": 10}


WITH_ROWS_ON_LEVEL_0 = [
    pytest.param({"deletion_vectors.enabled": "true", "write_only": "true"}, id="deletion vectors"),
    pytest.param(
        {"deletion_vectors.enabled": "true", "write_only": "true", "changelog_producer": "input"},
        id="deletion vectors and input",
    ),
    pytest.param({"merge_engine": "first-row", "write_only": "true"}, id="first-row"),
    pytest.param({"bucket": "-2", "postpone.batch_write_fixed_bucket": "false"}, id="postpone"),
]


@pytest.mark.parametrize("options", WITH_ROWS_ON_LEVEL_0)
def test_a_stream_starts_with_rows_that_scans_do_not_show_yet(
    options: dict[str, str], lake: tidelake.Catalog, tmp_path: Path
) -> None:
    orders = table_of(lake, **options)
    put(orders, [1])
    put(orders, [2])
    assert orders.scan().to_arrow().num_rows == 0
    for limit in ({}, {"read.stream.maxFilesPerTrigger": "1"}):
        assert ids(Stream(tmp_path, {"read.changelog": "true", **limit}).drain()) == [1, 2]


@pytest.mark.interop
def test_spark_starts_with_rows_on_level_0_of_a_table_with_deletion_vectors(
    spark: SparkSession, lake: tidelake.Catalog, tmp_path: Path
) -> None:
    register(spark)
    orders = table_of(lake, **{"deletion_vectors.enabled": "true", "write_only": "true"})
    put(orders, [1])
    put(orders, [2])
    stream = spark.readStream.format("tidelake").option("warehouse", str(tmp_path / "lake"))
    stream = stream.option("table", "shop.orders").option("read.changelog", "true")
    sink = stream.load().writeStream.format("memory").queryName("first_rows")
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(row.id for row in spark.sql("select id from first_rows").collect()) == [1, 2]
