"""Rows that Spark writes, changes and deletes, compared with the same changes of a list of rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.commit_races import before_publishing
from tests.support.java_oracle import JavaOracle
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.spark import delete, merge, update, write
from tidelake.storage.model.format import CommitKind, RowKind

pytestmark = pytest.mark.interop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("amount", pa.int32())])
COLUMNS = "id long, name string, amount int"


@pytest.fixture
def lake(tmp_path: Path) -> str:
    tidelake.open_catalog(str(tmp_path / "lake")).create_database("shop")
    return str(tmp_path / "lake")


def create(lake: str, **options: str) -> tidelake.Table:
    catalog = tidelake.open_catalog(lake)
    table = catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options={"bucket": "3", **options})
    with table.writer() as writer:
        ids = range(6)
        writer.write(pa.table({"id": ids, "name": [f"n{i}" for i in ids], "amount": [i * 10 for i in ids]}, SCHEMA))
        writer.commit()
    return table


def rows_of(table: tidelake.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def test_rows_are_written_changed_and_deleted_in_one_snapshot_each(
    spark: SparkSession, lake: str, java_oracle: JavaOracle
) -> None:
    table = create(lake)
    assert write(spark.createDataFrame([(5, "five", 5), (9, "nine", None)], COLUMNS), "shop.t", lake) == 2
    assert delete(spark, "shop.t", lake, "amount < 15") == 3
    assert update(spark, "shop.t", lake, {"amount": "amount + id", "name": "upper(name)"}, "id in (2, 9)") == 4
    assert delete(spark, "shop.t", lake, "id > 100") is None
    expected = [(2, "N2", 22), (3, "n3", 30), (4, "n4", 40), (9, "NINE", None)]
    assert rows_of(table) == expected
    assert sorted((row["id"], row["name"], row["amount"]) for row in java_oracle.read(lake, "shop.t")) == expected
    assert not list((Path(lake) / "shop.db" / "t").glob("consumer/*"))  # they would never be removed


PARTED = pa.schema([pa.field("id", pa.int64(), False), pa.field("day", pa.string(), False), ("v", pa.int32())])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("overwrite", "left"),
    [
        pytest.param("dynamic", [(1, "a", 9), (2, "b", 0), (4, "c", 9)], id="the partitions that rows are written to"),
        pytest.param("static", [(1, "a", 9), (4, "c", 9)], id="of the whole table"),
    ],
)
@pytest.mark.parametrize("engine", ["deduplicate", "first-row"])
def test_overwriting_rows_replace_the_matching_ones(
    spark: SparkSession, lake: str, overwrite: Any, left: list[tuple[Any, ...]], engine: str
) -> None:
    catalog = tidelake.open_catalog(lake)
    table = catalog.create_table(
        "shop.p",
        PARTED,
        primary_key=["id", "day"],
        partition_by=["day"],
        options={"bucket": "2", "merge-engine": engine},
    )
    columns = "id long, day string, v int"
    old = spark.createDataFrame([(1, "a", 0), (3, "a", 0), (2, "b", 0)], columns)
    assert write(old, "shop.p", lake) is not None
    assert len(rows_of(table)) == 3
    assert write(spark.createDataFrame([(1, "a", 9), (4, "c", 9)], columns), "shop.p", lake, overwrite=overwrite)
    assert rows_of(table) == left
    assert table.snapshots()[-1].commit_kind in (CommitKind.OVERWRITE, CommitKind.COMPACT)
    outside = spark.createDataFrame([(1, "a", 8)], columns)
    with pytest.raises(BadInput, match="outside of the partition"):
        write(outside, "shop.p", lake, overwrite={"day": "b"})
    assert write(outside, "shop.p", lake, overwrite={"day": "a"}) is not None
    assert rows_of(table)[0] == (1, "a", 8)
    with pytest.raises(BadInput, match="replaces all rows"):
        write(outside, "shop.p", lake, overwrite="all")  # type: ignore[arg-type]


def test_a_table_without_partitions_can_only_be_overwritten_completely(spark: SparkSession, lake: str) -> None:
    table = create(lake)
    rows = spark.createDataFrame([(7, "seven", 7)], COLUMNS)
    with pytest.raises(BadInput, match="has no partitions"):
        write(rows, "shop.t", lake, overwrite="dynamic")
    assert write(rows, "shop.t", lake, overwrite="static") is not None
    assert rows_of(table) == [(7, "seven", 7)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("producer", ["input", "none"])
def test_merge_updates_deletes_and_inserts(spark: SparkSession, lake: str, producer: str) -> None:
    table = create(lake, **{"changelog-producer": producer})
    source = spark.createDataFrame([(1, "one", 1), (2, None, -1), (7, "seven", 7), (3, "x", None)], COLUMNS)
    made = merge(
        source,
        "shop.t",
        lake,
        matched_update={"name": "source.name", "amount": "coalesce(target.amount + source.amount, 0)"},
        matched_delete="source.amount < 0",
        not_matched_insert="*",
    )
    assert rows_of(table) == [
        (0, "n0", 0),
        (1, "one", 11),
        (3, "x", 0),
        (4, "n4", 40),
        (5, "n5", 50),
        (7, "seven", 7),
    ]
    if producer == "input":
        assert made is not None
        changes = [row for part in table.changes(start=made) for row in part.rows.to_pylist()]
        reported = {(row["id"], RowKind(row["_VALUE_KIND"]).symbol, row["amount"]) for row in changes}
        assert reported == {
            (1, "-U", 10), (1, "+U", 11), (2, "-D", 20), (3, "-U", 30), (3, "+U", 0), (7, "+I", 7),
        }  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"changelog-producer": "input"}, id="old rows come with new ones"),
        pytest.param({}, id="new rows alone"),
        pytest.param({"sequence.field": "amount"}, id="a sequence says which row is newer"),
    ],
)
def test_a_row_matched_by_two_source_rows_is_refused(spark: SparkSession, lake: str, options: dict[str, str]) -> None:
    table = create(lake, **options)
    source = spark.createDataFrame([(1, "a", 11), (1, "b", 12)], COLUMNS)
    with pytest.raises(tidelake.BadInput, match=r"key \{'id': 1\}"):
        merge(source, "shop.t", lake, matched_update="*")
    assert len(table.snapshots()) == 1


@pytest.mark.interop
def test_a_change_that_lost_a_race_is_recomputed(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its row would be lost: 30 was read, and 31 would have become 130 instead of 131."""
    table = create(lake)

    def write() -> None:
        with table.writer() as writer:
            writer.write(pa.table({"id": [3], "name": ["other"], "amount": [31]}, SCHEMA))
            writer.commit()

    before_publishing(monkeypatch, write)
    update(spark, "shop.t", lake, {"amount": "amount + 100"}, "id = 3")
    assert (3, "other", 131) in rows_of(table)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "values", "message"),
    [
        pytest.param({}, {"nam": "1"}, "no column 'nam'; did you mean 'name'", id="a column that is none"),
        pytest.param({}, {"id": "1"}, "'id' is a column of the primary key", id="a column of the key"),
        pytest.param(
            {"merge-engine": "first-row"}, {"name": "1"}, "merge-engine = first-row", id="another merge engine"
        ),
        pytest.param({"sequence.field": "amount"}, {"amount": "1"}, "ordered by it", id="a column of the sequence"),
        pytest.param({}, {}, "names the columns to change", id="no column"),
    ],
)
def test_invalid_updates_are_refused(
    spark: SparkSession, lake: str, options: dict[str, str], values: dict[str, str], message: str
) -> None:
    create(lake, **options)
    with pytest.raises(tidelake.TidelakeError, match=message):
        update(spark, "shop.t", lake, values)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"merge-engine": "first-row"}, "merge-engine = first-row", id="the first row wins"),
        pytest.param({"merge-engine": "partial-update"}, "remove-record-on-delete = true", id="rows are merged"),
        pytest.param({"merge-engine": "aggregation"}, "remove-record-on-delete = true", id="values are aggregated"),
        pytest.param({"ignore-delete": "true"}, "ignores deletes", id="deletes are ignored"),
        pytest.param({"rowkind.field": "name"}, "rowkind.field", id="a column is the row kind"),
    ],
)
def test_a_delete_that_would_leave_the_row_is_refused(
    spark: SparkSession, lake: str, options: dict[str, str], said: str
) -> None:
    catalog = tidelake.open_catalog(lake)
    catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options={"bucket": "1", **options})
    with pytest.raises(tidelake.TidelakeError, match=said):
        delete(spark, "shop.t", lake, "id = 1")


def test_a_delete_is_told_in_a_changelog_of_the_input(spark: SparkSession, lake: str) -> None:
    table = create(lake, **{"changelog-producer": "input"})
    made = delete(spark, "shop.t", lake, "id in (1, 4)")
    assert made is not None
    changes = [row for part in table.changes(start=made) for row in part.rows.to_pylist()]
    assert sorted((row["id"], RowKind(row["_VALUE_KIND"]).symbol) for row in changes) == [(1, "-D"), (4, "-D")]
    assert [row[0] for row in rows_of(table)] == [0, 2, 3, 5]


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("producer", ["input", "none"])
def test_an_update_of_a_merge_that_is_older_than_the_row_leaves_it(
    spark: SparkSession, lake: str, producer: str, order: str
) -> None:
    """Its old row, with kind -U, would be the newest of the key, and the row would be gone."""
    sequence = {"sequence.field": "amount,name", "sequence.field.sort-order": order}
    table = create(lake, **sequence, **{"changelog-producer": producer})
    source = [(1, "lower", 9), (2, "greater", 21), (3, "null", None), (4, "n3", 40), (5, "o", 50)]
    merge(spark.createDataFrame(source, COLUMNS), "shop.t", lake, matched_update="*")
    newer = {1: (1, "lower", 9), 4: (4, "n3", 40)} if order == "descending" else {2: source[1], 5: source[4]}
    assert rows_of(table) == [newer.get(i, (i, f"n{i}", i * 10)) for i in range(6)]


def test_rows_of_a_branch_are_written_and_changed_there(spark: SparkSession, lake: str) -> None:
    table = create(lake)
    before = rows_of(table)
    catalog = tidelake.open_catalog(lake)
    table.create_branch("dev")
    branch = catalog.table("shop.t$branch_dev")
    write(spark.createDataFrame([(8, "b", 1), (9, "b", 1)], COLUMNS), "shop.t$branch_dev", lake)
    update(spark, "shop.t$branch_dev", lake, {"amount": "7"}, "id = 8")
    delete(spark, "shop.t$branch_dev", lake, "id = 9")
    assert rows_of(branch) == [(8, "b", 7)]
    assert rows_of(table) == before


def test_rows_that_readers_don_t_see_before_a_compaction_are_changed_too(spark: SparkSession, lake: str) -> None:
    """With deletion vectors a read leaves out level 0. Computed from older rows, a change would take them back."""
    table = create(lake, **{"deletion-vectors.enabled": "true", "write-only": "true"})
    table.compact(full=True)
    with table.writer() as writer:
        writer.write(pa.table({"id": [3], "name": ["newer"], "amount": [31]}, SCHEMA))
        writer.commit()
    update(spark, "shop.t", lake, {"amount": "amount + 100"}, "id in (2, 3)")
    table.compact(full=True)
    assert rows_of(table)[2:4] == [(2, "n2", 120), (3, "newer", 131)]


def test_columns_are_found_whatever_they_are_called(spark: SparkSession, lake: str) -> None:
    names = ["a.b", "c`d", "_step", "_matched"]
    columns = pa.schema([pa.field(names[0], pa.int64(), False), *((name, pa.int32()) for name in names[1:])])
    options = {"bucket": "1", "changelog-producer": "input"}
    table = tidelake.open_catalog(lake).create_table("shop.t", columns, primary_key=names[:1], options=options)
    spelled = "`a.b` long, `c``d` int, _step int, _matched int"
    write(spark.createDataFrame([(1, 1, 1, 1), (2, 2, 2, 2)], spelled), "shop.t", lake)
    update(spark, "shop.t", lake, {"c`d": "`c``d` + 10"}, "`a.b` = 2")
    merge(
        spark.createDataFrame([(1, 5, 6, 7), (3, 3, 3, 3)], spelled),
        "shop.t",
        lake,
        matched_update="*",
        not_matched_insert="*",
    )
    assert rows_of(table) == [(1, 5, 6, 7), (2, 12, 2, 2), (3, 3, 3, 3)]


def test_rows_that_are_read_from_another_branch_are_not_changed(spark: SparkSession, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    catalog = tidelake.open_catalog(lake)
    catalog.create_database("d")
    columns = pa.schema([("id", pa.int64()), ("dt", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    options = {"bucket": "1"}
    table = catalog.create_table("d.t", columns, primary_key=["id", "dt"], partition_by=["dt"], options=options)
    one, two = (datetime(2026, 1, day, 3, tzinfo=UTC) for day in (1, 2))
    table.append([{"id": 2, "dt": one, "v": 20}])
    table.create_branch("hist")
    catalog.table("d.t$branch_hist").append([{"id": 1, "dt": two, "v": 10}, {"id": 5, "dt": one, "v": 50}])
    catalog.alter_table("d.t", [tidelake.SetOption("scan.fallback-branch", "hist")])
    source = spark.createDataFrame([(1, 11), (2, 22)], "id long, v long")
    changes: tuple[Callable[[], object], ...] = (
        lambda: delete(spark, "d.t", lake, "id = 1"),
        lambda: update(spark, "d.t", lake, {"v": "99"}, "id < 2"),
        lambda: merge(source, "d.t", lake, on="source.id = target.id", matched_update={"v": "source.v"}),
    )
    for change in changes:
        with pytest.raises(UnsupportedFeature, match="which is read from branch hist"):
            change()
    assert delete(spark, "d.t", lake, "id = 5") is None, "its partition is read from the opened branch"
    update(spark, "d.t", lake, {"v": "v + 1"}, "id = 2")
    found = {row["id"]: row["v"] for row in catalog.table("d.t").scan().to_arrow().to_pylist()}
    assert found == {1: 10, 2: 21}


@pytest.mark.parametrize("change", ["update", "merge"])
def test_a_row_that_moves_to_another_partition_is_retracted_once(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    lake = str(tmp_path / "lake")
    catalog = tidelake.open_catalog(lake)
    catalog.create_database("d")
    columns = pa.schema([("id", pa.int64()), ("region", pa.string()), ("v", pa.int64())])
    options = {"changelog-producer": "input"}
    table = catalog.create_table("d.t", columns, primary_key=["id"], partition_by=["region"], options=options)
    table.append([{"id": 1, "region": "north", "v": 10}, {"id": 2, "region": "north", "v": 20}])
    if change == "update":
        update(spark, "d.t", lake, {"region": "'south'", "v": "v + 1"}, "id = 1")
    else:
        source = spark.createDataFrame([(1, "south", 11)], "id long, region string, v long")
        merge(source, "d.t", lake, matched_update="*")
    rows = [row for one in catalog.table("d.t").changes(start=2) for row in one.rows.to_pylist()]
    found = sorted((row["_VALUE_KIND"], row["id"], row["region"], row["v"]) for row in rows)
    assert found == [(1, 1, "north", 10), (2, 1, "south", 11)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("producer", ["none", "lookup", "input"])
def test_a_partial_update_is_updated_but_not_to_null(
    spark: SparkSession, lake: str, java_oracle: JavaOracle, producer: str
) -> None:
    table = create(lake, **{"merge-engine": "partial-update", "changelog-producer": producer})
    update(spark, "shop.t", lake, {"amount": "amount + 1", "name": "upper(name)"}, "id < 2")
    source = spark.createDataFrame([(2, "two", 2), (9, None, 9)], COLUMNS)
    merge(source, "shop.t", lake, matched_update="*", not_matched_insert="*")
    expected = [(0, "N0", 1), (1, "N1", 11), (2, "two", 2), *((i, f"n{i}", i * 10) for i in (3, 4, 5)), (9, None, 9)]
    assert rows_of(table) == expected
    assert sorted((row["id"], row["name"], row["amount"]) for row in java_oracle.read(lake, "shop.t")) == expected
    update(spark, "shop.t", lake, {"name": "null"}, "id = 9")  # it is null
    refusal = r"can't set \w+ to NULL"
    with pytest.raises(tidelake.UnsupportedFeature, match=refusal):
        update(spark, "shop.t", lake, {"amount": "nullif(amount, 30)"})
    with pytest.raises(tidelake.UnsupportedFeature, match=refusal):
        merge(spark.createDataFrame([(3, None, 3)], COLUMNS), "shop.t", lake, matched_update="*")
    assert rows_of(table) == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ["first-row", "aggregation", "partial-update"])
def test_a_delete_by_partition_columns_alone_removes_partitions(
    spark: SparkSession, lake: str, java_oracle: JavaOracle, engine: str
) -> None:
    """The merge engine takes no deletes. A condition that only Spark can read is refused as one on other columns."""
    catalog = tidelake.open_catalog(lake)
    options = {"bucket": "1", "merge-engine": engine}
    table = catalog.create_table("shop.p", PARTED, primary_key=["id", "day"], partition_by=["day"], options=options)
    table.append(pa.table({"id": [1, 2, 3], "day": ["a", "b", "c"], "v": [1, 2, 3]}, PARTED))
    for refused in ("day = 'a' and v = 1", "v > 0", "substring(day, 1, 1) = 'a'"):
        with pytest.raises(tidelake.UnsupportedFeature, match="does not remove a row"):
            delete(spark, "shop.p", lake, refused)
    assert delete(spark, "shop.p", lake, "day in ('a', 'c')") is not None
    assert delete(spark, "shop.p", lake, "day = 'z'") is None
    assert rows_of(table) == [(2, "b", 2)]
    assert [row["id"] for row in java_oracle.read(lake, "shop.p")] == [2]


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}], ids=["copies files", "vectors"])
def test_rows_of_an_append_table_are_changed_as_the_refusal_says(
    spark: SparkSession, lake: str, options: dict[str, str]
) -> None:
    catalog = tidelake.open_catalog(lake)
    table = catalog.create_table("shop.a", SCHEMA, options={"bucket": "-1", **options})
    table.append(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "amount": [1, 2, 3]}, SCHEMA))
    with pytest.raises(tidelake.UnsupportedFeature, match=r"Use Table\.delete"):
        delete(spark, "shop.a", lake, "id = 1")
    with pytest.raises(tidelake.UnsupportedFeature, match=r"Use Table\.update"):
        update(spark, "shop.a", lake, {"amount": "0"}, "id = 2")
    table.delete("id = 1")
    table.update("id = 2", {"amount": 0})
    read = spark.read.format("tidelake").options(table="shop.a", warehouse=lake).load()
    assert sorted(tuple(row) for row in read.collect()) == [(2, "b", 0), (3, "c", 3)]
