"""`tidelake.spark.read`: the rows of `format("tidelake")`, read by Spark's own Parquet reader where possible."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyspark.sql.functions import expr, lit

import tidelake
from tests.golden.test_golden_tables import read_problem
from tests.support.cases import GOLDEN_DATABASE, GoldenTable, golden_expected, golden_tables
from tests.support.levels import is_of_the_day, sample
from tests.tidelake.spark.test_table_data_source import collected, frame, is_of_nanoseconds
from tidelake.errors import BadInput, CorruptFile, SnapshotExpired, TidelakeError
from tidelake.spark import read
from tidelake.spark.native.parquet_frame import parquet_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64())])
PARALLELISM: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def lake(home: str) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(home)
    catalog.create_database("shop")
    return catalog


@pytest.fixture
def table(lake: tidelake.Catalog) -> tidelake.Table:
    """Of a key range that is compacted, and one that is not."""
    made = lake.create_table("shop.t", SCHEMA, primary_key=["id"], options={"bucket": "1", "write-only": "true"})
    put(made, range(10))
    made.compact(full=True)
    put(made, range(20, 30))
    put(made, range(25, 35), 100)
    return made


def put(table: tidelake.Table, ids: range, more: int = 0) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": list(ids), "n": [i + more for i in ids]}, SCHEMA))
        writer.commit()


def pairs(rows: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.id, row.n) for row in rows.collect())


WANTED: Final = [(i, i) for i in (*range(10), *range(20, 25))] + [(i, i + 100) for i in range(25, 35)]


# ---------------------------------------------------------------- golden tables


def golden_tables_in_both_forms() -> Iterator[Any]:
    """A day has each table once, the next day in its other form."""
    for number, table in enumerate(golden_tables()):
        for compacted, form in enumerate(("as it is", "compacted")):
            mark = pytest.mark.interop if is_of_the_day(number + compacted, 2) else pytest.mark.long
            yield pytest.param(table, bool(compacted), id=f"{table.id}, {form}", marks=mark)


@pytest.mark.parametrize(("golden", "compacted"), list(golden_tables_in_both_forms()))
def test_golden_tables_are_read_as_by_their_writer(
    spark: SparkSession, golden: GoldenTable, compacted: bool, tmp_path: Path
) -> None:
    """All of them, and by native reads those columns that have some: as in the test of the format."""
    warehouse = golden.unpack(tmp_path)
    name = f"{GOLDEN_DATABASE}.{golden.name}"
    expected = golden_expected(warehouse, golden.name)
    opened = tidelake.open_catalog(str(warehouse)).table(name)
    try:
        own = opened.scan().to_arrow()
    except TidelakeError as error:
        with pytest.raises(Exception, match=type(error).__name__):
            read(spark, name, str(warehouse)).collect()
        return
    if compacted:
        try:
            opened.compact(full=True)
        except TidelakeError:
            return  # tests of compaction say which
        opened = tidelake.open_catalog(str(warehouse)).table(name)
        if difference_of_states(own, opened.scan().to_arrow()):
            return  # rows that had expired, or waited for a bucket
    kept = [number for number, column in enumerate(own.schema) if not is_of_nanoseconds(column.type)]
    for numbers in (kept, [number for number in kept if is_flat(own.schema.field(number).type)]):
        columns = [own.schema.names[number] for number in numbers]
        rows = collected(read(spark, name, str(warehouse), columns=columns))
        wanted = [[row[number] for number in numbers] for row in expected["rows"]]
        assert read_problem(rows.cast(own.select(columns).schema), wanted, columns) is None


def is_flat(kind: pa.DataType) -> bool:
    """And not TIME: the other columns of its table can be read natively."""
    return not pa.types.is_nested(kind) and not pa.types.is_time(kind)


def difference_of_states(one: pa.Table, other: pa.Table) -> bool:
    return sorted(map(str, one.to_pylist())) != sorted(map(str, other.to_pylist()))


# ---------------------------------------------------------------- which files are read, and by which reader


@pytest.mark.interop
def test_a_read_uses_compacted_files_natively_and_merges_the_others(
    spark: SparkSession, table: tidelake.Table, home: str
) -> None:
    rows = read(spark, "shop.t", home)
    assert len(rows.inputFiles()) == 1
    assert pairs(rows) == WANTED
    assert pairs(read(spark, "shop.t", home, native=False)) == WANTED
    assert read(spark, "shop.t", home, native=False).inputFiles() == []
    table.compact(full=True)
    rows = read(spark, "shop.t", home)
    assert pairs(rows) == WANTED
    plan = plan_of(rows)
    assert "FileScan parquet" in plan
    assert "BatchScan" not in plan


@pytest.mark.interop
def test_spark_prunes_columns_and_pushes_filters_to_its_reader(
    spark: SparkSession, table: tidelake.Table, home: str
) -> None:
    table.compact(full=True)
    plan = plan_of(read(spark, "shop.t", home).where("n > 100").select("n"))
    assert "ReadSchema: struct<n:bigint>" in plan
    assert "PushedFilters: [IsNotNull(n), GreaterThan(n,100)]" in plan


@pytest.mark.interop
def test_columns_are_read_in_the_requested_order(spark: SparkSession, table: tidelake.Table, home: str) -> None:
    rows = read(spark, "shop.t", home, columns=["n", "id"])
    assert rows.columns == ["n", "id"]
    assert pairs(rows) == WANTED
    with pytest.raises(BadInput, match="no column 'm'"):
        read(spark, "shop.t", home, columns=["m"])


@pytest.mark.interop
def test_the_snapshot_is_pinned_when_the_read_is_planned(
    spark: SparkSession, lake: tidelake.Catalog, table: tidelake.Table, home: str
) -> None:
    rows = read(spark, "shop.t", home)
    put(table, range(50), 1_000)
    lake.alter_table("shop.t", [tidelake.RenameColumn("n", "m"), tidelake.AddColumn("n", pa.string())])
    table.compact(full=True)
    assert pairs(rows) == WANTED
    assert pairs(rows.alias("a").join(rows.alias("b"), "id").selectExpr("id", "a.n")) == WANTED


@pytest.mark.interop
def test_options_are_those_of_the_format(spark: SparkSession, table: tidelake.Table, home: str) -> None:
    first = [(i, i) for i in range(10)]
    table.create_tag("first", snapshot=2)
    for options in ({"snapshot": "2"}, {"tag": "first"}, {"scan.snapshot-id": "1"}, {"Scan.Version": "first"}):
        assert pairs(read(spark, "shop.t", home, options=options)) == first, options
    assert len(read(spark, "shop.t", home, options={"tag": "first"}).inputFiles()) == 1
    with_kinds = read(spark, "shop.t", home, options={"read.changelog": "true"})
    assert with_kinds.columns == ["rowkind", "id", "n"]
    assert pairs(read(spark, "shop.t$ro", home)) == first
    assert pairs(read(spark, "shop.t", home, options={"incremental-between": "2,3"})) == [(i, i) for i in range(20, 30)]
    with pytest.raises(BadInput, match="did you mean 'snapshot'"):
        read(spark, "shop.t", home, options={"snapshto": "1"})
    for name in ("table", "Warehouse", "pinned-read"):
        with pytest.raises(BadInput, match=r"leave .* out of options"):
            read(spark, "shop.t", home, options={name: "x"})


@pytest.mark.interop
def test_a_table_without_snapshots_has_no_rows(spark: SparkSession, lake: tidelake.Catalog, home: str) -> None:
    made = lake.create_table("shop.empty", SCHEMA, primary_key=["id"])
    rows = read(spark, "shop.empty", home)
    put(made, range(3))
    assert pairs(rows) == []


@pytest.mark.interop
def test_pushed_filters_do_not_affect_the_native_part(spark: SparkSession, table: tidelake.Table, home: str) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        rows = read(spark, "shop.t", home, options={"push-filters": "once"})
        assert pairs(rows.where("id < 22 and n > 3")) == [pair for pair in WANTED if 3 < pair[0] < 22]
        assert pairs(rows.where("id > 25")) == [pair for pair in WANTED if pair[0] > 25]
        assert pairs(rows.where("id < 5")) == [pair for pair in WANTED if pair[0] < 5]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


# ---------------------------------------------------------------- files


@pytest.mark.interop
@pytest.mark.parametrize("folder", ["a b", "100%20", "{a,b}", "[a-z]*?", "back\\slash", "dt=2024", "_hidden/.too"])
def test_warehouse_and_partition_names_may_contain_special_characters(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    """Neither a pattern to Spark, nor a partition of its own, nor hidden."""
    home = str(tmp_path / folder)
    catalog = tidelake.open_catalog(home)
    catalog.create_database("shop")
    schema = pa.schema([("dt", pa.string()), ("hour", pa.int32()), ("id", pa.int64())])
    table = catalog.create_table("shop.t", schema, partition_by=["dt", "hour"])
    names = ["2024", "007", "a b", "10:00", "x/y", "{a}", "[a]*?", "50%", "%41", "\\", "=", "_a", ".a", "", None, "é"]
    wanted = sorted((str(name), 7, i) for name in names for i in range(2))
    with table.writer() as writer:
        rows = [{"dt": name, "hour": 7, "id": i} for name in names for i in range(2)]
        writer.write(pa.Table.from_pylist(rows, schema))
        writer.commit()
    rows_ = read(spark, "shop.t", home)
    assert len(rows_.inputFiles()) == len(names)
    assert rows_.dtypes == [("dt", "string"), ("hour", "int"), ("id", "bigint")]
    assert sorted((str(row.dt), row.hour, row.id) for row in rows_.collect()) == wanted
    assert rows_.where("dt = '007'").count() == 2


@pytest.mark.interop
def test_a_missing_file_raises_and_never_loses_rows(spark: SparkSession, table: tidelake.Table, home: str) -> None:
    rows = read(spark, "shop.t", home)
    (path,) = [Path(name.removeprefix("file://")) for name in rows.inputFiles()]
    path.unlink()
    for setting in ("false", "true"):
        spark.conf.set("spark.sql.files.ignoreMissingFiles", setting)
        try:
            with pytest.raises(Exception, match="FILE_NOT_EXIST"):
                rows.collect()
            with pytest.raises(CorruptFile, match="a data file that a snapshot references"):
                read(spark, "shop.t", home)
        finally:
            spark.conf.unset("spark.sql.files.ignoreMissingFiles")


@pytest.mark.interop
def test_a_snapshot_that_expired_before_the_read_raises_snapshot_expired(
    spark: SparkSession, table: tidelake.Table, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelake.spark import table_read  # noqa: PLC0415

    def late(*arguments: Any) -> Any:
        for path in Path(home, "shop.db", "t").rglob("*.parquet"):
            path.unlink()
        Path(home, "shop.db", "t", "snapshot", "snapshot-4").rename(Path(home, "gone"))
        return frame_of(*arguments)

    frame_of = parquet_frame
    monkeypatch.setattr(table_read, "parquet_frame", late)
    with pytest.raises(SnapshotExpired):
        read(spark, "shop.t", home)


@pytest.mark.interop
def test_many_files_are_not_listed_one_task_each(spark: SparkSession, lake: tidelake.Catalog, home: str) -> None:
    made = lake.create_table("shop.many", SCHEMA)
    for number in range(40):  # from 33 on Spark lists them in a job
        put(made, range(number * 2, number * 2 + 2))
    before = spark.conf.get(PARALLELISM)
    tracker = spark.sparkContext.statusTracker()
    jobs = set(tracker.getJobIdsForGroup())
    rows = read(spark, "shop.many", home)
    (job,) = set(tracker.getJobIdsForGroup()) - jobs
    info = tracker.getJobInfo(job)
    assert info is not None
    stage = tracker.getStageInfo(info.stageIds[0])
    assert stage is not None
    assert stage.numTasks <= 8
    assert spark.conf.get(PARALLELISM) == before
    assert len(rows.inputFiles()) == 40
    assert pairs(rows) == [(i, i) for i in range(80)]


# ---------------------------------------------------------------- values and filters

MOMENT: Final = datetime(2026, 5, 1, 12, 30, 15, 123000)
MILLIS: Final = [datetime(1900, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999000), MOMENT]
VALUES: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "flag": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, 0, 127]),
    "small": (pa.int16(), [-(2**15), 5, 2**15 - 1]),
    "big": (pa.int64(), [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1]),
    "real": (pa.float64(), [-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan]),
    "single": (pa.float32(), [-math.inf, -1.5, -0.0, 0.0, 2.5, math.nan]),
    "price": (pa.decimal128(10, 2), [Decimal("-1.00"), Decimal("0.10"), Decimal("99999999.99")]),
    "sum": (pa.decimal128(38, 18), [Decimal("-12345678901234567890.5"), Decimal("0.000000000000000001")]),
    "name": (pa.string(), ["", "a", "A", "ab", "é", "\U0001f600", "￿"]),
    "raw": (pa.binary(), [b"", b"a", b"\xff", b"\x00"]),
    "day": (pa.date32(), [date(1, 1, 1), date(1582, 10, 10), date(1970, 1, 1), date(9999, 12, 31)]),
    "at_second": (pa.timestamp("s"), [moment.replace(microsecond=0) for moment in MILLIS]),
    "at": (pa.timestamp("ms"), MILLIS),
    "at_micro": (pa.timestamp("us"), [datetime(1, 1, 1), MOMENT.replace(microsecond=123456)]),
    "zoned_second": (pa.timestamp("s", "UTC"), [moment.replace(microsecond=0, tzinfo=UTC) for moment in MILLIS]),
    "zoned": (pa.timestamp("ms", "UTC"), [moment.replace(tzinfo=UTC) for moment in MILLIS]),
    "zoned_micro": (pa.timestamp("us", "UTC"), [MOMENT.replace(microsecond=123456, tzinfo=UTC)]),
    "parts": (pa.struct([("n", pa.int32()), ("s", pa.string())]), [{"n": 1, "s": "a"}, {"n": None, "s": None}]),
    "list": (pa.list_(pa.float64()), [[], [1.0, None, math.nan], [-0.0]]),
    "map": (pa.map_(pa.string(), pa.timestamp("ms")), [[], [("a", MOMENT), ("b", None)]]),
    "a.b `c`": (pa.int32(), [1, 2]),
}
COLUMNS: Final = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in VALUES.items())])


def literal(name: str, value: Any, micros: int = 0) -> str:
    """As Spark's SQL says it."""
    kind = VALUES[name][0]
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None, microsecond=value.microsecond + micros).isoformat(" ")
        return f"{'timestamp_ntz' if kind.tz is None else 'timestamp'}'{text}'"
    if isinstance(value, float):
        return f"{'float' if pa.types.is_float32(kind) else 'double'}('{value}')"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, date):
        return f"date'{value.isoformat()}'"
    if isinstance(value, str):
        return f"'{value}'"
    return (
        f"CAST('{value}' AS {'decimal(38, 18)' if isinstance(value, Decimal) else 'bigint'})"
        if not isinstance(value, bool)
        else str(value)
    )


def conditions() -> Iterator[str]:
    for name, (kind, values) in VALUES.items():
        column = "`{}`".format(name.replace("`", "``"))
        yield f"{column} is null"
        yield f"{column} is not null"
        if pa.types.is_nested(kind):
            continue
        for value in values:
            for micros in (0, 400) if pa.types.is_timestamp(kind) else (0,):
                given = literal(name, value, micros)
                yield from (f"{column} {sign} {given}" for sign in ("=", "!=", "<", "<=", ">", ">=", "<=>"))
                yield f"not {column} in ({given}, {literal(name, values[0])})"
                yield f"{column} in ({given}, null)"
    yield from ("name like 'a%'", "name not like 'a%'", "isnan(real)", "not isnan(single)", "parts.n = 1")
    yield from ("parts.s is null", "big > 0.5", "tiny < 300", "price < 0.105", "size(list) > 1", "day > '1582-10-10'")


def written(lake: tidelake.Catalog) -> tidelake.Table:
    """Files of few values each, so that filters can skip them."""
    made = lake.create_table("shop.values", COLUMNS)
    number = 0
    for turn in range(9):
        rows = []
        for position in (turn, turn, turn + 1)[: 3 if turn % 2 else 2]:
            row = {name: values[position % len(values)] for name, (_, values) in VALUES.items()}
            rows.append({"id": number, **row})
            number += 1
        if turn == 8:
            rows.append({"id": number})
        with made.writer() as writer:
            writer.write(pa.Table.from_pylist(rows, COLUMNS))
            writer.commit()
    return made


HOSTILE: Final = {
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "America/Los_Angeles",
}
OTHER_READERS: Final = {
    "vectorized": {},
    "row by row": {"spark.sql.parquet.enableVectorizedReader": "false"},
    "nested row by row": {"spark.sql.parquet.enableNestedColumnVectorizedReader": "false"},
    "second version": {
        "spark.sql.sources.useV1SourceList": "",
        "spark.sql.parquet.aggregatePushdown": "true",
    },
}


@pytest.mark.interop
@pytest.mark.parametrize("reader", OTHER_READERS)
def test_values_do_not_depend_on_session_settings(
    spark: SparkSession, lake: tidelake.Catalog, home: str, reader: str
) -> None:
    written(lake)
    wanted = frame(spark, Path(home), "shop.values").toArrow().sort_by("id")
    settings = {**HOSTILE, **OTHER_READERS[reader]}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        rows = read(spark, "shop.values", home)
        assert len(rows.inputFiles()) == 9
        found = rows.toArrow().sort_by("id")
        counted = rows.selectExpr("count(*)", "max(real)", "min(zoned)", "count(name)").collect()
    finally:
        for key in settings:
            spark.conf.unset(key)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert str(found.cast(wanted.schema).to_pylist()) == str(wanted.to_pylist())
    assert math.isnan(counted[0][1])
    assert (counted[0][0], counted[0][3]) == (wanted.num_rows, wanted.num_rows - 1)


@pytest.mark.interop
@pytest.mark.sampled
def test_pushed_filters_do_not_change_the_result(spark: SparkSession, lake: tidelake.Catalog, home: str) -> None:
    """Each condition is a column of all rows, which nothing skips; and a filter of the native read."""
    written(lake)
    chosen = sample(list(conditions()))
    everything = frame(spark, Path(home), "shop.values")
    answers = everything.select("id", *(expr(condition) for condition in chosen)).toArrow().sort_by("id")
    names = [f"c{number}" for number in range(len(chosen))]
    answers = answers.rename_columns(["id", *names])
    native = read(spark, "shop.values", home)
    for start in range(0, len(chosen), 25):
        part = chosen[start : start + 25]
        found: DataFrame | None = None
        for condition in part:
            one = native.where(condition).select(lit(condition).alias("condition"), "id")
            found = one if found is None else found.union(one)
        assert found is not None
        rows = found.collect()
        for number, condition in enumerate(part, start):
            wanted = answers.filter(answers[names[number]].fill_null(False)).column("id").to_pylist()
            assert sorted(row.id for row in rows if row.condition == condition) == wanted, condition


@pytest.mark.interop
def test_columns_that_spark_reads_differently_are_read_by_tidelake(
    spark: SparkSession, lake: tidelake.Catalog, home: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("t", pa.time32("ms")), ("nanos", pa.timestamp("ns"))])
    made = lake.create_table("shop.times", schema)
    with made.writer() as writer:
        writer.write(pa.table({"id": [1, 2], "t": [time(1, 2, 3, 4000), None], "nanos": [MOMENT, None]}, schema))
        writer.commit()
    assert read(spark, "shop.times", home).inputFiles() == []
    assert collected(read(spark, "shop.times", home)).to_pylist() == [
        {"id": 1, "t": time(1, 2, 3, 4000), "nanos": MOMENT},
        {"id": 2, "t": None, "nanos": None},
    ]
    assert len(read(spark, "shop.times", home, columns=["id"]).inputFiles()) == 1


@pytest.mark.interop
def test_columns_whose_names_differ_in_case_only_keep_their_values(
    spark: SparkSession, lake: tidelake.Catalog, home: str
) -> None:
    schema = pa.schema([("a", pa.int64()), ("A", pa.int64())])
    made = lake.create_table("shop.cases", schema)
    with made.writer() as writer:
        writer.write(pa.table([[1, 2], [3, 4]], schema=schema))
        writer.commit()
    assert sorted(tuple(row) for row in read(spark, "shop.cases", home).collect()) == [(1, 3), (2, 4)]
    assert sorted(row.A for row in read(spark, "shop.cases", home, columns=["A"]).collect()) == [3, 4]


def plan_of(rows: DataFrame) -> str:
    execution: Any = rows._jdf.queryExecution()
    return str(execution.executedPlan().toString())
