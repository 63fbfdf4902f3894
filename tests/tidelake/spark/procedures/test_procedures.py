"""Paimon's procedures: their effects on a table, called from Python and from the command line."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import tidelake
from tests.support.command_line import Call
from tidelake.errors import BadInput
from tidelake.spark import procedures
from tidelake.spark.procedures import compaction
from tidelake.spark.procedures.repairs import UNSUPPORTED_PROCEDURES
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import CommitKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYED = pa.schema([pa.field("id", pa.int64(), False), pa.field("day", pa.string(), False), ("v", pa.int64())])
LOG = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> str:
    tidelake.open_catalog(str(tmp_path / "lake")).create_database("shop")
    return str(tmp_path / "lake")


def keyed(lake: str, name: str = "t", commits: int = 3) -> tidelake.Table:
    options = {"bucket": "2", "write-only": "true"}
    catalog = tidelake.open_catalog(lake)
    table = catalog.create_table(
        f"shop.{name}", KEYED, primary_key=["id", "day"], partition_by=["day"], options=options
    )
    for v in range(commits):
        with table.writer() as writer:
            ids = range(v * 10, v * 10 + 40)
            rows = {"id": ids, "day": [f"d{i % 2}" for i in ids], "v": [v] * 40}
            writer.write(pa.table(rows, KEYED))
            writer.commit()
    return table


def rows_of(table: tidelake.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def files_of(table: tidelake.Table) -> int:
    return sum(len(split.files) for split in table.scan().splits())


@pytest.mark.interop
def test_tasks_compact_buckets_and_one_commit_publishes_all(spark: SparkSession, lake: str) -> None:
    table = keyed(lake)
    before = rows_of(table)
    report = procedures.compact(spark, "shop.t", lake)
    assert len(report.buckets) == 4
    assert [snapshot.commit_kind for snapshot in table.snapshots()][3:] == [CommitKind.COMPACT]
    assert rows_of(table) == before
    assert files_of(table) == 4
    assert not procedures.compact(spark, "shop.t", lake).snapshot_ids  # nothing is left to do
    assert procedures.remove_orphan_files("shop.*", lake, older_than=soon()).deleted_file_count == 0


@pytest.mark.interop
def test_without_a_barrier_stage_tasks_run_in_a_query(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Spark Connect."""
    monkeypatch.setattr(compaction, "_run_in_rdd", compaction._run_in_dataframe)
    table = keyed(lake)
    before = rows_of(table)
    assert len(procedures.compact(spark, "shop.t", lake).buckets) == 4
    assert (rows_of(table), files_of(table)) == (before, 4)


@pytest.mark.interop
def test_an_error_of_a_task_ends_the_job_with_its_message(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed(lake)
    way = compaction._run_in_rdd
    monkeypatch.setattr(compaction, "_run_in_rdd", lambda spark, shares, payloads: way(spark, shares, [b"?"] * 4))
    with pytest.raises(Exception, match="UnpicklingError"):
        procedures.compact(spark, "shop.t", lake)


@pytest.mark.interop
def test_only_selected_partitions_are_compacted(spark: SparkSession, lake: str) -> None:
    keyed(lake)
    with pytest.raises(tidelake.BadInput, match="condition"):
        procedures.compact(spark, "shop.t", lake, where="day == = 'd1'")
    report = procedures.compact(spark, "shop.t", lake, where="day = 'd1'")
    assert {bucket.partition["day"] for bucket in report.buckets} == {"d1"}


@pytest.mark.interop
def test_rows_of_append_tables_are_sorted_by_columns(spark: SparkSession, lake: str) -> None:
    table = tidelake.open_catalog(lake).create_table("shop.log", LOG)
    for start in range(4):
        with table.writer() as writer:
            writer.write(pa.table({"id": range(start, 400, 4), "v": range(100)}, LOG))
            writer.commit()
    report = procedures.compact(spark, "shop.log", lake, order_strategy="order", order_by="id")
    assert len(report.snapshot_ids) == 1
    assert table.scan().to_arrow()["id"].to_pylist() == list(range(400))


@pytest.mark.interop
def test_a_damaged_file_is_named_and_other_buckets_are_compacted(spark: SparkSession, lake: str) -> None:
    table = keyed(lake)
    before = files_of(table)
    next(iter((Path(lake) / "shop.db" / "t" / "day=d0" / "bucket-0").glob("data-*"))).write_bytes(b"PAR1")
    with pytest.raises(tidelake.CorruptFile, match=r"bucket-0/data-.*Other buckets were compacted"):
        procedures.compact(spark, "shop.t", lake)
    assert files_of(table) < before


@pytest.mark.interop
def test_tables_of_a_database_are_compacted_by_name(spark: SparkSession, lake: str) -> None:
    for name in ("a", "b", "other"):
        keyed(lake, name, commits=6)
    found = procedures.compact_database(spark, lake, including_tables=r"shop\..", excluding_tables=r".*b")
    assert list(found) == ["shop.a"]
    assert found["shop.a"].snapshot_ids


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"compact_strategy": "all"}, "compact_strategy must be one of full, minor, not 'all'", id="a strategy"
        ),
        pytest.param({"order_by": "id"}, "order_strategy and order_by need each other", id="columns alone"),
    ],
)
def test_invalid_arguments_are_refused(lake: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        procedures.compact(None, "shop.t", lake, **arguments)  # type: ignore[arg-type]


def soon() -> str:
    return (datetime.now() + timedelta(minutes=1)).isoformat(sep=" ")


def test_procedures_manage_tags_branches_snapshots_and_consumers(lake: str) -> None:
    table = keyed(lake)
    procedures.create_tag("shop.t", lake, "a", snapshot=1, time_retained="7 d")
    procedures.create_tag("shop.t", lake, "b")
    procedures.rename_tag("shop.t", lake, "a", "c")
    procedures.replace_tag("shop.t", lake, "b", snapshot=2)
    assert {name: tag.id for name, tag in table.tags().items()} == {"b": 2, "c": 1}
    procedures.create_branch("shop.t", lake, "dev", tag="b")
    assert table.branches() == ["dev"]
    procedures.delete_branch("shop.t", lake, "dev")
    procedures.delete_tag("shop.t", lake, "b, c")
    assert table.tags() == {}
    assert table.branches() == []
    assert procedures.rollback("shop.t", lake, version="2") == (3, 2)
    procedures.reset_consumer("shop.t", lake, "reader", next_snapshot_id=2)
    assert procedures.clear_consumers("shop.t", lake, excluding_consumers="other.*") == ["reader"]
    assert procedures.expire_snapshots("shop.t", lake, retain_max=1, retain_min=1) == 1


def test_procedures_tag_the_first_snapshot_since_a_time_and_rename_a_branch(lake: str) -> None:
    table = keyed(lake)
    second = table.snapshots()[1]
    assert procedures.create_tag_from_timestamp("shop.t", lake, "then", timestamp=second.time_ms)[:2] == ("then", 2)
    with pytest.raises(BadInput, match="no snapshot that was committed at"):
        procedures.create_tag_from_timestamp("shop.t", lake, "later", timestamp=second.time_ms + 10**9)
    procedures.create_branch("shop.t", lake, "dev", tag="then")
    procedures.rename_branch("shop.t", lake, "dev", "test")
    assert table.branches() == ["test"]


def test_partitions_are_rescaled_marked_and_expire(lake: str) -> None:
    table = keyed(lake, commits=1)
    before = rows_of(table)
    assert procedures.rescale("shop.t", lake, bucket_num=3, partitions="day=d0") == ["day=d0"]
    assert procedures.rescale("shop.t", lake) == ["day=d1"]  # to what the option says now
    assert rows_of(tidelake.open_catalog(lake).table("shop.t")) == before
    assert procedures.mark_partition_done("shop.t", lake, "day=d0;day=d1") == ["day=d0", "day=d1"]
    assert (Path(lake) / "shop.db" / "t" / "day=d0" / "_SUCCESS").is_file()
    with pytest.raises(BadInput, match="write partitions as"):
        procedures.mark_partition_done("shop.t", lake, "d0")
    options = {"expiration_time": "1 h", "expire_strategy": "update-time"}
    assert procedures.expire_partitions("shop.t", lake, **options) == []  # type: ignore[arg-type]
    catalog = tidelake.open_catalog(lake)
    dated = catalog.create_table("shop.dated", KEYED, primary_key=["id", "day"], partition_by=["day"])
    with dated.writer() as writer:
        writer.write(pa.table({"id": [1, 2, 3], "day": ["20200101", "20200102", "99990101"], "v": [0] * 3}, KEYED))
        writer.commit()
    gone = procedures.expire_partitions(
        "shop.dated",
        lake,
        expiration_time="7 d",
        timestamp_formatter="yyyyMMdd",
        timestamp_pattern="$day",
        expire_strategy="values-time",
        max_expires=1,
    )
    assert gone == ["day=20200101"]
    assert [day for _, day, _ in rows_of(dated)] == ["20200102", "99990101"]


def test_procedures_analyze_repair_merge_and_purge(lake: str) -> None:
    table = keyed(lake)
    procedures.analyze("shop.t", lake, columns="v")
    assert table.statistics() is not None
    lost = next(iter((Path(lake) / "shop.db" / "t" / "day=d0" / "bucket-0").glob("data-*")))
    lost.unlink()
    assert procedures.remove_unexisting_files("shop.t", lake, dry_run=True) != []
    assert [Path(path).name for path in procedures.remove_unexisting_files("shop.t", lake)] == [lost.name]
    assert rows_of(table)
    log = tidelake.open_catalog(lake).create_table("shop.log", LOG)
    rows = pa.table({"id": [1], "v": [2]}, LOG)
    with log.writer() as writer:
        writer.write(rows)
        writer.commit()
    procedures.create_tag("shop.log", lake, "a")
    procedures.create_branch("shop.log", lake, "dev", tag="a")
    with tidelake.open_catalog(lake).table("shop.log$branch_dev").writer() as writer:
        writer.write(rows)
        writer.commit()
    assert procedures.merge_branch("shop.log", lake, "dev") == 2
    assert len(rows_of(log)) == 2
    assert procedures.purge_files("shop.log", lake).deleted_file_count > 0
    assert rows_of(log) == []


def test_due_tags_are_made_for_a_table_without_commits(lake: str) -> None:
    table = keyed(lake)
    with pytest.raises(BadInput, match="no automatic tags"):
        procedures.trigger_tag_automatic_creation("shop.t", lake)
    options = {"tag.automatic-creation": "process-time", "tag.creation-period": "daily"}
    changes = [tidelake.SetOption(name, value) for name, value in options.items()]
    tidelake.open_catalog(lake).alter_table("shop.t", changes)
    (made,) = procedures.trigger_tag_automatic_creation("shop.t", lake)
    assert list(table.tags()) == [made]
    assert procedures.trigger_tag_automatic_creation("shop.t", lake) == []


def test_files_of_crashed_attempts_are_deleted(lake: str) -> None:
    table = keyed(lake)
    bucket = Path(lake) / "shop.db" / "t" / "day=d0" / "bucket-0"
    (bucket / "data-00000000-0000-0000-0000-000000000000-0.parquet").write_bytes(b"12345")
    assert procedures.remove_orphan_files("shop.t", lake) == (0, 0)  # it may belong to a commit under way
    assert procedures.remove_orphan_files("shop.*", lake, older_than=soon(), dry_run=True) == (1, 5)
    assert procedures.remove_orphan_files("shop.*", lake, older_than=soon()) == (1, 5)
    assert len(rows_of(table)) == 60


def test_manifests_are_joined_once_and_rows_stay(lake: str) -> None:
    table = keyed(lake, commits=4)
    before = rows_of(table)
    assert procedures.compact_manifest("shop.t", lake, dry_run=True) == (4, 4, None)
    assert procedures.compact_manifest("shop.t", lake) == (4, 1, 5)
    assert procedures.compact_manifest("shop.t", lake) == (1, 1, None)
    assert [snapshot.commit_kind for snapshot in table.snapshots()][4:] == [CommitKind.COMPACT]
    assert rows_of(table) == before
    assert verify(table.context) == []


def test_history_starts_after_lost_snapshots(lake: str) -> None:
    keyed(lake, commits=5)
    for lost in (2, 3):
        (Path(lake) / "shop.db" / "t" / "snapshot" / f"snapshot-{lost}").unlink()
    with pytest.raises(BadInput, match=r"as 3 is missing after it\. Begin with 4"):
        procedures.repair_earliest_snapshot("shop.t", lake, 1)
    with pytest.raises(BadInput, match="no snapshot 7; its snapshots are 1 to 5"):
        procedures.repair_earliest_snapshot("shop.t", lake, 7)
    assert procedures.repair_earliest_snapshot("shop.t", lake, 4) == (1, 4)
    again = tidelake.open_catalog(lake).table("shop.t")
    assert again.context.snapshots.earliest_id() == 4
    assert len(rows_of(again)) == 80


def test_procedures_copy_a_table_and_repair_a_catalog(lake: str, tmp_path: Path) -> None:
    before = rows_of(keyed(lake))
    procedures.copy("shop.t", "shop.t2", lake)
    assert rows_of(tidelake.open_catalog(lake).table("shop.t2")) == before
    names = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/names.db"}
    assert sorted(procedures.repair(lake, catalog_options=names)) == ["shop.t", "shop.t2"]
    assert procedures.repair(lake, database_or_table="shop.t, shop.t2", catalog_options=names) == []
    assert tidelake.open_catalog(lake, **names).list_tables("shop") == ["t", "t2"]


def test_lost_manifests_are_removed(lake: str) -> None:
    table = keyed(lake, commits=2)
    lost = sorted((Path(lake) / "shop.db" / "t" / "manifest").glob("manifest-????????-*"))[0]
    lost.unlink()
    again = tidelake.open_catalog(lake)
    assert procedures.remove_unexisting_manifests("shop.t", lake) == [lost.name]
    assert len(rows_of(again.table("shop.t"))) < 50
    assert len(table.snapshots()) == 3


@pytest.fixture
def iceberg_warehouse(tmp_path: Path) -> Path:
    """A Hadoop catalog with the table `shop.visits`."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/iceberg.sqlite", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    location = tmp_path / "iceberg" / "shop" / "visits"
    table = catalog.create_table("shop.visits", LOG, location=f"file://{location}")
    table.append(pa.table({"id": [1, 2], "v": [3, None]}, LOG))
    Path(table.metadata_location.removeprefix("file://")).rename(location / "metadata" / "v2.metadata.json")
    (location / "metadata" / "version-hint.text").write_text("2")
    return tmp_path / "iceberg"


def test_a_table_of_an_iceberg_catalog_is_migrated(lake: str, iceberg_warehouse: Path, call: Call) -> None:
    given = f"iceberg_options=metadata.iceberg.storage=hadoop-catalog,iceberg_warehouse={iceberg_warehouse}"
    done = call(
        *("spark", "call", "migrate_iceberg_table", "source_table=shop.visits", given),
        *("options=snapshot.num-retained.min=3,write-only=true", "parallelism=2", "-w", lake),
    )
    assert done.code == 0, done.err
    table = tidelake.open_catalog(lake).table("shop.visits")
    assert rows_of(table) == [(1, 3), (2, None)]
    assert table.options["write-only"] == "true"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("metadata.iceberg.storage=hive-catalog,uri=thrift://h", "metadata.iceberg.storage = hive-catalog"),
        ("iceberg_warehouse=/i", "metadata.iceberg.storage = unset"),
        ("metadata.iceberg.storage=hadoop-catalog", "needs iceberg_warehouse="),
        ("metadata.iceberg.storage=hadoop-catalog,iceberg_warehouse=/i,x=y", "x is no option of iceberg_options"),
        ("metadata.iceberg.storage=hadoop-catalog,iceberg_warehouse=/none", "/none/shop/visits"),
    ],
)
def test_an_iceberg_table_that_cannot_be_found_is_refused(lake: str, call: Call, options: str, message: str) -> None:
    arguments = ("source_table=shop.visits", f"iceberg_options={options}", "-w", lake)
    found = call("spark", "call", "migrate_iceberg_table", *arguments)
    assert found.code != 0
    assert message in " ".join(found.err.split())


def test_unsupported_procedures_are_refused_with_the_reason(lake: str, call: Call) -> None:
    assert not {*UNSUPPORTED_PROCEDURES} & {*procedures.__all__}
    for name, reason in UNSUPPORTED_PROCEDURES.items():
        result = call("spark", "call", name, "table=shop.t", "-w", lake)
        assert result.code != 0
        assert name in result.err
        assert " ".join(reason.split()[:4]) in " ".join(result.err.split())
        assert "paimon-spark" in result.err


def test_the_command_line_calls_them(lake: str, call: Call) -> None:
    table = keyed(lake)
    result = call("spark", "call", "create_tag", "table=shop.t", "tag=kept", "snapshot=2", "-w", lake)
    assert result.code == 0, result.err
    assert {name: tag.id for name, tag in table.tags().items()} == {"kept": 2}
    result = call("spark", "call", "rollback", "table=shop.t", "tag=kept", "-w", lake, "--json")
    assert result.document == {
        "procedure": "rollback",
        "result": {"previous_snapshot_id": 3, "current_snapshot_id": 2},
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["compakt"], "procedure 'compakt' does not exist; did you mean 'compact'", id="a procedure that is none"
        ),
        pytest.param(["rollback", "tabel=x.y"], "no argument 'tabel'; did you mean 'table'", id="an argument"),
        pytest.param(["rollback"], "rollback needs table=", id="one that is missing"),
        pytest.param(["rollback", "table=x.y", "snapshot=two"], "snapshot is a whole number, not 'two'", id="a number"),
        pytest.param(
            ["remove_orphan_files", "table=x.y", "dry_run=yes"], "dry_run is true or false, not 'yes'", id="a choice"
        ),
    ],
)
def test_the_command_line_prints_the_error(lake: str, call: Call, arguments: list[str], message: str) -> None:
    found = call("spark", "call", *arguments, "-w", lake)
    assert found.code == 2
    assert message in found.err
