"""`spark.read.format("tidelake")`: Spark's own calls of a data source, made here without a Spark; then with one."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, InputPartition, StringEndsWith
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    VariantType,
    VariantVal,
)

import tidelake
from tests.golden.test_golden_tables import read_problem
from tests.support.cases import GOLDEN_DATABASE, GoldenTable, golden_expected, golden_tables
from tests.support.expected import difference
from tidelake.errors import BadInput, TidelakeError, UnsupportedFeature
from tidelake.spark import register
from tidelake.spark.batch_reader import FilteringBatchReader, SplitsPartition
from tidelake.spark.data_source_options import STREAM_OPTIONS, ReadOptions
from tidelake.spark.spark_types import arrow_form, spark_schema, spark_timestamps
from tidelake.spark.table_data_source import TidelakeDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string()), ("amount", pa.float64())])


@pytest.fixture
def lake(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    return catalog


@pytest.fixture
def orders(lake: tidelake.Catalog) -> tidelake.Table:
    return lake.create_table("shop.orders", ORDERS, primary_key=["id"], options={"bucket": "4"})


def put(table: tidelake.Table, ids: range, name: str = "a") -> int:
    with table.writer() as writer:
        writer.write(pa.table({"id": ids, "name": [name] * len(ids), "amount": [i / 2 for i in ids]}, table.schema))
        snapshot_id = writer.commit()
    assert snapshot_id is not None
    return snapshot_id


def source(home: Path, table: str = "shop.orders", **more: str) -> TidelakeDataSource:
    """As Spark has it in each of its processes: pickled."""
    options = {key.replace("_", "-"): value for key, value in more.items()}
    made = TidelakeDataSource({"warehouse": str(home / "lake"), "table": table, **options})
    travelled: TidelakeDataSource = pickle.loads(pickle.dumps(made))
    return travelled


def read(of: TidelakeDataSource, schema: StructType | None = None) -> pa.Table:
    """As Spark reads: the reader travels to the tasks before it is asked for partitions."""
    schema = schema or of.schema()
    reader = of.reader(schema)
    in_task = pickle.loads(pickle.dumps(reader))
    batches = batches_of(in_task, reader.partitions() or [InputPartition(None)])
    return pa.Table.from_batches(batches, arrow_form(schema))


def batches_of(reader: Any, partitions: Any) -> Iterator[pa.RecordBatch]:
    for partition in partitions:
        yield from reader.read(pickle.loads(pickle.dumps(partition)))


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows.column("id").to_pylist())


# ---------------------------------------------------------------- what is read


def test_all_rows_have_the_columns_and_types_of_the_table(orders: tidelake.Table, tmp_path: Path) -> None:
    put(orders, range(100))
    assert source(tmp_path).schema() == StructType(
        [
            StructField("id", LongType(), False),
            StructField("name", StringType()),
            StructField("amount", spark_schema(ORDERS)["amount"].dataType),
        ]
    )
    rows = read(source(tmp_path))
    assert rows.sort_by("id").to_pylist() == orders.scan().to_arrow().sort_by("id").to_pylist()


def test_a_schema_names_the_columns_to_read_in_its_order(orders: tidelake.Table, tmp_path: Path) -> None:
    put(orders, range(3))
    asked = StructType([StructField("name", StringType()), StructField("id", LongType())])
    rows = read(source(tmp_path), asked)
    assert rows.schema == pa.schema([("name", pa.string()), ("id", pa.int64())])
    assert ids(rows) == [0, 1, 2]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("nam", StringType()), "shop.orders has no column 'nam'; it has id, name, amount"),
        (StructField("id", IntegerType()), "column 'id' is bigint NOT NULL, but the schema .* says int"),
        (
            StructField("name", StringType(), False),
            "'name' is string, but the schema of the read says string NO",
        ),
        (None, "the schema of the read has no columns"),
    ],
)
def test_a_schema_that_contradicts_the_table_is_refused(
    orders: tidelake.Table, tmp_path: Path, field: StructField | None, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        source(tmp_path).reader(StructType([field] if field else []))


def test_a_table_without_snapshots_has_no_rows(orders: tidelake.Table, tmp_path: Path) -> None:
    assert read(source(tmp_path)).num_rows == 0


def test_options_select_a_snapshot_tag_time_or_range(orders: tidelake.Table, tmp_path: Path) -> None:
    first = put(orders, range(2))
    put(orders, range(2, 5))
    orders_by_option = {
        "snapshot": str(first),
        "scan.snapshot-id": str(first),
        "scan.version": str(first),
        "as-of": str(orders.snapshots()[0].time_ms),
        "scan.timestamp-millis": str(orders.snapshots()[0].time_ms),
        "As-Of": datetime.fromtimestamp(orders.snapshots()[0].time_ms / 1000, UTC).isoformat(),
    }
    for key, value in orders_by_option.items():
        assert ids(read(source(tmp_path, **{key: value}))) == [0, 1], key
    assert ids(read(source(tmp_path, **{"incremental-between": "1,2"}))) == [2, 3, 4]
    assert ids(read(source(tmp_path))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "named",
    [
        pytest.param({"path": "LAKE/shop.db/orders"}, id="a directory"),
        pytest.param({"path": "LAKE/shop.db/orders/"}, id="a directory, with a slash"),
        pytest.param({"path": "shop.orders", "warehouse": "LAKE"}, id="a name"),
        pytest.param({"path": "LAKE/shop.db/orders", "warehouse": "LAKE"}, id="a directory of the named lake"),
        pytest.param({"path": "LAKE/shop.db/orders$audit_log"}, id="a system table"),
    ],
)
def test_load_opens_a_table_by_its_path_or_its_name(
    orders: tidelake.Table, tmp_path: Path, named: dict[str, str]
) -> None:
    put(orders, range(3))
    given = {key: text.replace("LAKE", str(tmp_path / "lake")) for key, text in named.items()}
    assert ids(read(TidelakeDataSource(given))) == [0, 1, 2]


def test_a_branch_is_named_by_an_option_or_in_the_table_s_name(tmp_path: Path, lake: tidelake.Catalog) -> None:
    golden = next(table for table in golden_tables() if table.name == "tags_branches")
    warehouse = golden.unpack(tmp_path / "golden")
    (name, branch), *_ = golden_expected(warehouse, golden.name)["branches"].items()
    table = f"{GOLDEN_DATABASE}.{golden.name}"
    for options in ({"table": table, "branch": name}, {"table": f"{table}$branch_{name}", "branch": name}):
        rows = read(TidelakeDataSource({"warehouse": str(warehouse), **options}))
        assert difference(rows, branch["rows"]) is None
    with pytest.raises(BadInput, match="names another branch"):
        TidelakeDataSource({"warehouse": "w", "table": f"{table}$branch_x", "branch": name}).schema()


def test_a_system_table_is_read_in_one_task(orders: tidelake.Table, tmp_path: Path) -> None:
    put(orders, range(3))
    of = source(tmp_path, "shop.orders$audit_log")
    assert [type(p) for p in of.reader(of.schema()).partitions()] == [SplitsPartition]
    rows = read(of)
    assert rows.column("rowkind").to_pylist() == ["+I"] * 3
    assert ids(rows) == [0, 1, 2]


def test_every_task_reads_the_snapshot_that_was_the_latest_when_the_driver_planned(
    lake: tidelake.Catalog, orders: tidelake.Table, tmp_path: Path
) -> None:
    put(orders, range(10), "old")
    of = source(tmp_path)
    schema = of.schema()
    reader = of.reader(schema)
    in_task = pickle.loads(pickle.dumps(reader))
    put(orders, range(20), "new")
    partitions = reader.partitions()
    lake.alter_table("shop.orders", [tidelake.RenameColumn("name", "title")])
    rows = pa.Table.from_batches(batches_of(in_task, partitions))
    assert set(rows.column("name").to_pylist()) == {"old"}
    assert ids(rows) == list(range(10))


# ---------------------------------------------------------------- how it is divided


def test_small_splits_share_a_task_and_no_split_is_read_twice(orders: tidelake.Table, tmp_path: Path) -> None:
    put(orders, range(1000))
    for tasks in (1, 2, 4):
        of = source(tmp_path, **{"min-partitions": str(tasks)})
        assert len(of.reader(of.schema()).partitions()) == tasks
        assert ids(read(of)) == list(range(1000))
    of = source(tmp_path, **{"min-partitions": "4", "source.split.open-file-cost": "1 tb"})
    assert len(of.reader(of.schema()).partitions()) == 4, "a split is never divided, and none is left out"


# ---------------------------------------------------------------- values


def test_values_are_unchanged_for_every_arrow_type(lake: tidelake.Catalog, tmp_path: Path) -> None:
    moment = datetime(2026, 5, 1, 12, 30, 15, 123456)
    columns = {
        "t": (pa.time32("ms"), time(12, 30, 15, 123000)),
        "seconds": (pa.timestamp("s"), moment.replace(microsecond=0)),
        "nanos": (pa.timestamp("ns"), moment),
        "zoned": (pa.timestamp("ms", "UTC"), moment.replace(microsecond=123000, tzinfo=UTC)),
        "day": (pa.date32(), date(1582, 10, 5)),
        "price": (pa.decimal128(38, 18), Decimal("12345678901234567890.123456789012345678")),
        "times": (pa.list_(pa.time32("ms")), [time(1), None]),
        "by_name": (pa.map_(pa.string(), pa.timestamp("ms")), [("a", moment.replace(microsecond=0))]),
        "parts": (pa.struct([("t", pa.time32("ms")), ("n", pa.int8())]), {"t": time(2), "n": -1}),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    table = lake.create_table("shop.values", schema)
    row = {name: value for name, (_, value) in columns.items()}
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist([row, dict.fromkeys(row)], schema))
        writer.commit()
    of = source(tmp_path, "shop.values")
    assert of.schema()["nanos"].dataType == TimestampNTZType()
    assert read(of).to_pylist() == [row, dict.fromkeys(row)]


def test_a_value_finer_than_in_spark_raises_and_other_columns_are_readable(
    lake: tidelake.Catalog, tmp_path: Path
) -> None:
    table = lake.create_table("shop.nanos", pa.schema([("id", pa.int64()), ("at", pa.timestamp("ns"))]))
    with table.writer() as writer:
        writer.write(pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))}))
        writer.commit()
    with pytest.raises(BadInput, match=r"column 'at' has a value that Spark can't hold .*Leave the column out"):
        read(source(tmp_path, "shop.nanos"))
    assert ids(read(source(tmp_path, "shop.nanos"), StructType([StructField("id", LongType())]))) == [1]


# ---------------------------------------------------------------- filters


def test_filters_are_pushed_down_only_with_the_option(orders: tidelake.Table, tmp_path: Path) -> None:
    put(orders, range(10))
    plain = source(tmp_path)
    assert not isinstance(plain.reader(plain.schema()), FilteringBatchReader)
    of = source(tmp_path, push_filters="once")
    reader = of.reader(of.schema())
    assert isinstance(reader, FilteringBatchReader)
    taken, left = EqualTo(("id",), 3), StringEndsWith(("name",), "a")
    assert list(reader.pushFilters([taken, left])) == [left]
    in_task = pickle.loads(pickle.dumps(reader))
    assert ids(pa.Table.from_batches(batches_of(in_task, reader.partitions()))) == [3]


# ---------------------------------------------------------------- errors


NAMED_ELSEWHERE = {  # as users of Delta Lake, Apache Iceberg and Apache Hudi type them, and what the error proposes
    "versionAsOf": "snapshot",
    "timestampAsOf": "as-of",
    "startingVersion": "scan.snapshot-id",
    "startingTimestamp": "scan.timestamp-millis",
    "endingVersion": "incremental-between",
    "endingTimestamp": "incremental-between-timestamp",
    "readChangeFeed": "read.changelog",
    "readChangeData": "read.changelog",
    "ignoreChanges": "skip-overwrites",
    "skipChangeCommits": "skip-overwrites",
    "maxFilesPerTrigger": "read.stream.maxFilesPerTrigger",
    "maxBytesPerTrigger": "read.stream.maxBytesPerTrigger",
    "snapshot-id": "snapshot",
    "as-of-timestamp": "as-of",
    "start-snapshot-id": "incremental-between",
    "end-snapshot-id": "incremental-between",
    "stream-from-timestamp": "scan.timestamp-millis",
    "streaming-skip-overwrite-snapshots": "skip-overwrites",
    "as.of.instant": "as-of",
}


@pytest.mark.parametrize("given", NAMED_ELSEWHERE)
def test_an_option_of_another_format_is_refused_with_ours(given: str) -> None:
    ours = NAMED_ELSEWHERE[given]
    for spelt in (given, given.upper()):
        with pytest.raises(BadInput, match=re.escape(f"no option {given.lower()!r}. Did you mean {ours!r}")):
            ReadOptions.of({"path": "/lake/shop.db/orders", spelt: "1"})
    known = {"skip-overwrites": "true", "read.changelog": "true"}.get(ours, "1")
    at = {"scan.timestamp-millis": {"scan.mode": "from-timestamp"}}.get(ours, {})
    assert ReadOptions.of({"path": "/lake/shop.db/orders", ours: known, **at}).catalog_options == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "shop.orders"}, r"option warehouse of format tidelake is missing: .*\.option\(\"warehouse\""),
        ({"warehouse": "LAKE"}, "option table of format tidelake is missing: database and table"),
        ({"warehouse": "LAKE", "table": "shop.order"}, "shop.order"),
        ({"path": "shop.orders"}, "option warehouse of format tidelake is missing"),
        ({"path": "orders", "warehouse": "LAKE"}, "'orders' is not the name of a table"),
        ({"path": "/lake/shop/orders"}, "is neither a name such as shop.orders nor the directory of a table"),
        ({"path": "LAKE/shop.db/orders", "table": "shop.orders"}, "names the table, too; name it once"),
        ({"path": "LAKE/shop.db/orders", "warehouse": "/other"}, "names another lake; leave it out"),
        ({"path": "LAKE/shop.db/orders", "versionAsOf": "1"}, "no option 'versionasof'. Did you mean 'snapshot'"),
        ({"path": "LAKE/shop.db/orders", "startingVersion": "1"}, "Did you mean 'scan.snapshot-id'"),
        ({"path": "LAKE/shop.db/orders", "owner": "me"}, "Did you mean tidelake.spark.catalog"),
        ({"path": "LAKE/shop.db/orders", "readChangeFeed": "true"}, "Did you mean 'read.changelog'"),
        (
            {"warehouse": "LAKE", "table": "shop.orders", "snapshto": "1"},
            "'snapshto'.*did you mean 'snapshot'",
        ),
        ({"warehouse": "LAKE", "table": "shop.orders", "scan.snapshot": "1"}, "no option 'scan.snapshot'"),
        ({"warehouse": "LAKE", "table": "shop.orders", "snapshot": "0"}, "option snapshot = '0': expected a whole"),
        ({"warehouse": "LAKE", "table": "shop.orders", "snapshot": "9"}, "shop.orders has no snapshot 9"),
        ({"warehouse": "LAKE", "table": "shop.orders", "tag": "x"}, "tag.*x"),
        ({"warehouse": "LAKE", "table": "shop.orders", "as-of": "noon"}, "option as-of = 'noon': expected epoch"),
        ({"warehouse": "LAKE", "table": "shop.orders", "push-filters": "1"}, "expected false or once"),
        (
            {"warehouse": "LAKE", "table": "shop.orders", "push-filters": "true"},
            "others of the same DataFrame.*Set it to",
        ),
        (
            {"warehouse": "LAKE", "table": "shop.orders", "tag": "x", "snapshot": "1"},
            "snapshot and tag each choose what",
        ),
        (
            {"warehouse": "LAKE", "table": "shop.orders", "tag": "x", "scan.mode": "latest"},
            "tag and scan.mode each",
        ),
    ],
)
def test_a_missing_or_wrong_option_is_named_with_the_remedy(
    orders: tidelake.Table, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    given = {key: value.replace("LAKE", str(tmp_path / "lake")) for key, value in options.items()}
    with pytest.raises(BadInput, match=message):
        TidelakeDataSource(given).schema()


def test_options_of_a_stream_are_refused_in_a_batch_read(orders: tidelake.Table, tmp_path: Path) -> None:
    given = {"warehouse": str(tmp_path / "lake"), "table": "shop.orders", STREAM_OPTIONS[0]: "1"}
    with pytest.raises(BadInput, match=r"options read\.stream\.… and skip-overwrites are only for streaming reads"):
        TidelakeDataSource(given).reader(StructType([]))


def test_unsupported_features_are_refused_with_an_alternative(orders: tidelake.Table, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match=r"rows of a bucket.*Write with tidelake\.spark\.sink"):
        source(tmp_path).writer(StructType([]), overwrite=False)
    with pytest.raises(UnsupportedFeature, match=r"rows of a bucket.*Write with tidelake\.spark\.sink"):
        source(tmp_path).streamWriter(StructType([]), overwrite=False)


def test_options_do_not_show_store_credentials(tmp_path: Path) -> None:
    from tidelake.spark.data_source_options import ReadOptions  # noqa: PLC0415

    assert "geheim" not in repr(ReadOptions.of({"warehouse": "w", "table": "a.b", "s3.secret-key": "geheim"}))


# ---------------------------------------------------------------- in Spark


def frame(
    spark: SparkSession, warehouse: Path, table: str, columns: list[str] | None = None, push_filters: str = "false"
) -> DataFrame:
    register(spark)
    given = {"warehouse": str(warehouse), "table": table, "push-filters": push_filters}
    reader = spark.read.format("tidelake").options(**given)
    return reader.load() if columns is None else reader.schema(reader.load().select(columns).schema).load()


@pytest.mark.interop
def test_spark_passes_no_limit_and_shuffles_both_sides_of_a_join(
    spark: SparkSession, orders: tidelake.Table, tmp_path: Path
) -> None:
    """What docs/spark.md says that a Python data source can't get or give: it is to be used once Spark has it."""
    read = frame(spark, tmp_path / "lake", "shop.orders")
    hints = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.sources.v2.bucketing.enabled": "true"}
    try:
        for key, value in hints.items():
            spark.conf.set(key, value)
        limited, joined = (executed_plan(rows) for rows in (read.limit(1), read.join(read, "id")))
    finally:
        for key in hints:
            spark.conf.unset(key)
    assert "CollectLimit 1" in limited
    assert "BatchScan tidelake[" in limited
    assert "limit" not in limited.split("BatchScan")[1].lower()
    assert joined.count("Exchange hashpartitioning(id") == 2


def executed_plan(rows: Any) -> str:
    return str(rows._jdf.queryExecution().executedPlan().toString())


@pytest.mark.interop
def test_spark_reads_a_table_with_its_own_filters_and_with_ours(
    spark: SparkSession, orders: tidelake.Table, tmp_path: Path
) -> None:
    put(orders, range(100))
    found = frame(spark, tmp_path / "lake", "shop.orders").where("amount > 48 and name = 'a'")
    assert sorted(row.id for row in found.collect()) == [97, 98, 99]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = frame(spark, tmp_path / "lake", "shop.orders", push_filters="once")
        found = found.where("amount > 48 and name = 'a' and name like '%a'")
        assert sorted(row.id for row in found.collect()) == [97, 98, 99]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    pruned = spark.read.format("tidelake").schema("amount double, id long")
    pruned = pruned.options(warehouse=str(tmp_path / "lake"), table="shop.orders")
    assert pruned.load().where("id = 7").collect() == [(3.5, 7)]
    with pytest.raises(Exception, match="option table of format tidelake is missing"):
        spark.read.format("tidelake").option("warehouse", str(tmp_path)).load()


@pytest.mark.interop
def test_a_data_frame_keeps_the_snapshot_of_its_first_query(
    spark: SparkSession, orders: tidelake.Table, tmp_path: Path
) -> None:
    put(orders, range(3))
    found = frame(spark, tmp_path / "lake", "shop.orders")
    assert found.count() == 3
    put(orders, range(5))
    assert found.where("id >= 0").count() == 3
    assert frame(spark, tmp_path / "lake", "shop.orders").count() == 5


@pytest.mark.interop
@pytest.mark.parametrize("golden", [pytest.param(table, id=table.id) for table in golden_tables()])
def test_golden_tables_are_read_by_spark_as_by_their_writer(
    spark: SparkSession, golden: GoldenTable, tmp_path: Path
) -> None:
    """Those that a scan reads, without columns finer than a microsecond; others are refused in the scan's words."""
    warehouse = golden.unpack(tmp_path)
    name = f"{GOLDEN_DATABASE}.{golden.name}"
    expected = golden_expected(warehouse, golden.name)
    try:
        own = tidelake.open_catalog(str(warehouse)).table(name).scan().to_arrow()
    except TidelakeError as error:
        with pytest.raises(Exception, match=type(error).__name__):
            frame(spark, warehouse, name).collect()
        return
    kept = [number for number, column in enumerate(own.schema) if not is_of_nanoseconds(column.type)]
    columns = [own.schema.names[number] for number in kept]
    rows = collected(frame(spark, warehouse, name, columns if len(kept) < len(own.schema) else None))
    wanted = [[row[number] for number in kept] for row in expected["rows"]]
    assert read_problem(rows.cast(own.select(columns).schema), wanted, columns) is None


def collected(rows: DataFrame) -> pa.Table:
    """With `toArrow`, which fails on a VARIANT that is null."""
    variants = {field.name for field in rows.schema if isinstance(field.dataType, VariantType)}
    if not variants:
        return rows.toArrow()
    parts = [
        {name: part(row[name]) if name in variants else row[name] for name in rows.columns} for row in rows.collect()
    ]
    return pa.Table.from_pylist(parts, arrow_form(rows.schema))


def part(variant: VariantVal | None) -> dict[str, bytes] | None:
    return None if variant is None else {"value": bytes(variant.value), "metadata": bytes(variant.metadata)}


def is_of_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "ns"


@pytest.mark.parametrize(
    ("time_ms", "micros"),
    [
        (0, 0),
        (-1, -1_000),
        (9_223_372_036_854_775, 9_223_372_036_854_775_000),
        (9_223_372_036_854_776, None),
        (2**63 - 1, None),
        (-(2**63), None),
    ],
)
def test_a_record_time_outside_of_sparks_range_is_null(time_ms: int, micros: int | None) -> None:
    times = np.array([5, time_ms], np.int64)
    assert spark_timestamps(times).cast(pa.int64()).to_pylist() == [5_000, micros]
    assert spark_timestamps(times, times == 5).cast(pa.int64()).to_pylist() == [None, micros]
