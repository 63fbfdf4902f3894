"""A table that PyIceberg writes becomes a table without being rewritten, or is refused by what it has."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimeType, UUIDType

import tidelake
from tests.support.command_line import Call
from tidelake import BadInput, UnsupportedFeature
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.maintenance.verify import verify

ALL: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("ok", pa.bool_()),
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("text", pa.string()),
        ("data", pa.binary()),
        ("price", pa.decimal128(20, 3)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("instant", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("address", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
    ]
)
ROWS: Final = [
    {
        "id": 1,
        "ok": True,
        "i": -1,
        "f": 0.5,
        "d": float("inf"),
        "text": "é",
        "data": b"\0",
        "price": Decimal("12345678901234567.125"),
        "day": date(2026, 5, 1),
        "at": datetime(1969, 12, 31, 23, 59, 59, 1),
        "instant": datetime(2026, 5, 1, 12, tzinfo=UTC),
        "tags": ["a", None],
        "counts": [("x", 1)],
        "address": {"city": "Berlin", "zip": 10115},
    },
    {"id": 2},
]
PAIRS: Final = pa.schema([pa.field("id", pa.int64()), ("city", pa.string())])


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergCatalog:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/iceberg.sqlite", warehouse=f"file://{tmp_path}/iceberg")
    catalog.create_namespace("db")
    return catalog


@pytest.fixture
def lake(tmp_path: Path) -> tidelake.Catalog:
    lake = tidelake.open_catalog(str(tmp_path / "lake"))
    lake.create_database("shop")
    return lake


def pairs(iceberg: IcebergCatalog, **arguments: Any) -> IcebergTable:
    table = iceberg.create_table("db.t", PAIRS, **arguments)
    for start in (0, 10):
        table.append(pa.table({"id": range(start, start + 3), "city": ["a", "b", None]}, PAIRS))
    return table


def metadata_file(table: IcebergTable) -> str:
    return table.metadata_location.removeprefix("file://")


@pytest.mark.parametrize("format_version", ["1", "2"])
def test_all_types_are_read_as_iceberg_reads_them(
    iceberg: IcebergCatalog, lake: tidelake.Catalog, format_version: str
) -> None:
    source = iceberg.create_table("db.t", ALL, properties={"format-version": format_version})
    source.append(pa.Table.from_pylist(ROWS, ALL))
    expected = source.scan().to_arrow().to_pylist()
    done = lake.migrate_table(metadata_file(source), "shop.t")
    table = lake.table("shop.t")
    assert table.scan().to_arrow().to_pylist() == expected
    assert (done.rows, done.files, done.snapshot_id) == (2, 1, 1)
    assert table.schema.field("id").nullable is False
    assert table.scan(filter="id = 2 or i = -1").count() == 2
    assert not verify(table.context, deep=True)
    table.append(pa.Table.from_pylist([{"id": 3}], ALL))
    assert table.scan().count() == 3


def test_files_are_moved_and_none_is_rewritten(iceberg: IcebergCatalog, lake: tidelake.Catalog) -> None:
    source = pairs(iceberg)
    files = {Path(task.file.file_path.removeprefix("file://")) for task in source.scan().plan_files()}
    inodes = {path.stat().st_ino for path in files}
    lake.migrate_table(metadata_file(source), "shop.t")
    here = list(Path(lake.table("shop.t").context.location).rglob("*.parquet"))
    assert {path.stat().st_ino for path in here} == inodes
    assert not any(path.exists() for path in files)


def test_the_source_stays_if_asked_for(iceberg: IcebergCatalog, lake: tidelake.Catalog) -> None:
    source = pairs(iceberg)
    lake.migrate_table(metadata_file(source), "shop.t", keep_source=True)
    assert source.scan().to_arrow().num_rows == lake.table("shop.t").scan().count() == 6


def test_partitions_keep_their_values(iceberg: IcebergCatalog, lake: tidelake.Catalog) -> None:
    columns = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "city", StringType()), NestedField(3, "shop", IntegerType())
    )
    spec = PartitionSpec(
        PartitionField(3, 1000, IdentityTransform(), "shop"), PartitionField(2, 1001, IdentityTransform(), "city")
    )
    source = iceberg.create_table("db.t", columns, partition_spec=spec)
    rows = {"id": [1, 2, 3, 4], "city": ["a b/é", None, "x", "x"], "shop": [1, 1, 2, None]}
    source.append(pa.table(rows, source.schema().as_arrow()))
    done = lake.migrate_table(metadata_file(source), "shop.t")
    table = lake.table("shop.t")
    assert (done.partition_by, done.partitions) == (("shop", "city"), 4)
    got = table.scan(columns=["id", "city", "shop"]).to_arrow().sort_by("id").to_pydict()
    assert got == rows
    assert table.scan(filter="city = 'a b/é'").to_arrow()["id"].to_pylist() == [1]


def test_deleted_files_and_older_snapshots_stay_behind(iceberg: IcebergCatalog, lake: tidelake.Catalog) -> None:
    source = pairs(iceberg)
    source.delete("id >= 11")  # copies one file
    expected = sorted(source.scan().to_arrow()["id"].to_pylist())
    lake.migrate_table(metadata_file(source), "shop.t")
    assert sorted(lake.table("shop.t").scan().to_arrow()["id"].to_pylist()) == expected == [0, 1, 2, 10]


def test_a_hadoop_catalog_is_named_by_its_folder(iceberg: IcebergCatalog, lake: tidelake.Catalog) -> None:
    source = pairs(iceberg)
    folder = Path(metadata_file(source)).parent
    (folder / "v7.metadata.json").write_bytes(Path(metadata_file(source)).read_bytes())
    (folder / "version-hint.text").write_text("7")
    assert lake.migrate_table(str(folder.parent), "shop.t", dry_run=True).rows == 6
    assert not lake.list_tables("shop")


def test_our_own_iceberg_metadata_is_migrated(lake: tidelake.Catalog) -> None:
    options = {"metadata.iceberg.storage": "table-location"}
    own = lake.create_table("shop.own", PAIRS, options=options, partition_by=["city"])
    own.append([{"id": 1, "city": "a"}, {"id": 2, "city": None}])
    lake.migrate_table(own.context.location, "shop.t", keep_source=True)
    assert (
        lake.table("shop.t").scan().to_arrow().sort_by("id").to_pylist()
        == own.scan().to_arrow().sort_by("id").to_pylist()
    )


def test_a_call_that_crashed_is_repeated(
    iceberg: IcebergCatalog, lake: tidelake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pairs(iceberg)
    commit = TableCommit.commit

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError("the disk is full")

    monkeypatch.setattr(TableCommit, "commit", fails)
    with pytest.raises(OSError, match="full"):
        lake.migrate_table(metadata_file(source), "shop.t")
    assert source.scan().to_arrow().num_rows == 6
    monkeypatch.setattr(TableCommit, "commit", commit)
    assert lake.migrate_table(metadata_file(source), "shop.t").snapshot_id == 1
    assert lake.migrate_table(metadata_file(source), "shop.t").snapshot_id is None, "the files are gone, and committed"
    assert lake.table("shop.t").scan().count() == 6


# ---------------------------------------------------------------- refused


def renamed(iceberg: IcebergCatalog) -> IcebergTable:
    table = pairs(iceberg)
    with table.update_schema() as update:
        update.rename_column("city", "town")
    return table


def swapped(iceberg: IcebergCatalog) -> IcebergTable:
    table = iceberg.create_table("db.t", pa.schema([("a", pa.string()), ("b", pa.string())]))
    table.append(pa.table({"a": ["1"], "b": ["2"]}))
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    return table


def added(iceberg: IcebergCatalog) -> IcebergTable:
    table = pairs(iceberg)
    with table.update_schema() as update:
        update.add_column("note", StringType())
    return table


def added_again(iceberg: IcebergCatalog) -> IcebergTable:
    table = pairs(iceberg)
    with table.update_schema() as update:
        update.delete_column("city")
    with table.update_schema() as update:
        update.add_column("city", StringType())
    return table


def widened(iceberg: IcebergCatalog) -> IcebergTable:
    table = iceberg.create_table("db.t", pa.schema([("n", pa.int32())]))
    table.append(pa.table({"n": pa.array([1], pa.int32())}))
    with table.update_schema() as update:
        update.update_column("n", LongType())
    return table


def nested_rename(iceberg: IcebergCatalog) -> IcebergTable:
    columns = pa.schema([("a", pa.struct([("x", pa.int64())]))])
    table = iceberg.create_table("db.t", columns)
    table.append(pa.table({"a": [{"x": 1}]}, columns))
    with table.update_schema() as update:
        update.rename_column("a.x", "y")
    return table


def bucketed(iceberg: IcebergCatalog) -> IcebergTable:
    columns = Schema(NestedField(1, "id", LongType()), NestedField(2, "city", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"))
    return iceberg.create_table("db.t", columns, partition_spec=spec)


def other_spec(iceberg: IcebergCatalog) -> IcebergTable:
    table = pairs(iceberg)
    with table.update_spec() as update:
        update.add_identity("city")
    return table


def of_type(kind: Any) -> Callable[[IcebergCatalog], IcebergTable]:
    return lambda iceberg: iceberg.create_table("db.t", Schema(NestedField(1, "x", kind)))


@pytest.mark.parametrize(
    ("made", "feature", "reason"),
    [
        (renamed, "column 'town'", "it was renamed, .* under the name 'city'"),
        (swapped, "column 'b'", "it was renamed, .* under the name 'a'"),
        (added, "column 'note'", "added later"),
        (added_again, "column 'city'", "dropped and added again"),
        (widened, "column 'n' is BIGINT", "it was altered, .* has INT"),
        (nested_rename, r"column 'a\.y'", "it was renamed, .* under the name 'x'"),
        (bucketed, r"partition field id_bucket = bucket\[4\]", "by columns themselves"),
        (other_spec, "files of an older partition spec", "partitioned alike"),
        (of_type(TimeType()), "column 'x' of type time", "microseconds"),
        (of_type(UUIDType()), "column 'x' of type uuid", "no such type"),
    ],
)
def test_what_readers_of_a_table_would_not_read_alike_is_refused(
    iceberg: IcebergCatalog,
    lake: tidelake.Catalog,
    made: Callable[[IcebergCatalog], IcebergTable],
    feature: str,
    reason: str,
) -> None:
    source = made(iceberg)
    with pytest.raises(UnsupportedFeature, match=f"{feature}[^;]*{reason}|{feature}.*{reason}") as refused:
        lake.migrate_table(metadata_file(source), "shop.t")
    assert "rewrite" in str(refused.value).lower() or "write them into a table" in str(refused.value)
    assert not lake.list_tables("shop"), "nothing was changed"


def test_deletes_and_later_format_versions_are_refused(tmp_path: Path, lake: tidelake.Catalog) -> None:
    options = {
        "metadata.iceberg.storage": "table-location",
        "metadata.iceberg.format-version": "3",
        "deletion-vectors.bitmap64": "true",
        "deletion-vectors.enabled": "true",
    }
    own = lake.create_table("shop.own", PAIRS, options=options)
    own.append([{"id": i, "city": "a"} for i in range(10)])
    own.delete("id = 3")
    with pytest.raises(UnsupportedFeature, match="format version 3"):
        lake.migrate_table(own.context.location, "shop.t")
    newest = Path(own.publish_iceberg_metadata() or "")
    older = newest.parent / "00001-x.metadata.json"
    older.write_text(json.dumps({**json.loads(newest.read_text()), "format-version": 2}))
    with pytest.raises(UnsupportedFeature, match="delete files"):
        lake.migrate_table(str(older), "shop.t")


def test_what_is_not_there_is_named(iceberg: IcebergCatalog, lake: tidelake.Catalog, tmp_path: Path) -> None:
    source = pairs(iceberg)
    with pytest.raises(
        BadInput, match=r"only its catalog knows which one is current; name it, such as .*metadata\.json"
    ):
        lake.migrate_table(str(Path(metadata_file(source)).parents[1]), "shop.t")
    with pytest.raises(BadInput, match=r"none\.metadata\.json does not exist"):
        lake.migrate_table(str(tmp_path / "none.metadata.json"), "shop.t")
    with pytest.raises(BadInput, match="whose metadata has the formats and the partitions"):
        lake.migrate_table(metadata_file(source), "shop.t", file_format="orc")
    next(Path(tmp_path / "iceberg").rglob("*.parquet")).unlink()
    with pytest.raises(BadInput, match="the table was moved, or this is not its current metadata file"):
        lake.migrate_table(metadata_file(source), "shop.t")
    empty = iceberg.create_table("db.empty", PAIRS)
    with pytest.raises(BadInput, match="has no rows; create the table"):
        lake.migrate_table(metadata_file(empty), "shop.t")


def test_files_that_were_added_without_ids_are_found_by_the_name_mapping(
    iceberg: IcebergCatalog, lake: tidelake.Catalog, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [7], "city": ["z"]}, PAIRS), tmp_path / "plain.parquet")
    source = pairs(iceberg)
    source.add_files([f"file://{tmp_path}/plain.parquet"])
    lake.migrate_table(metadata_file(source), "shop.t")
    assert sorted(lake.table("shop.t").scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 7, 10, 11, 12]


def test_files_are_added_to_an_existing_table(iceberg: IcebergCatalog, lake: tidelake.Catalog) -> None:
    table = lake.create_table("shop.t", PAIRS)
    table.append([{"id": 100, "city": "here"}])
    lake.migrate_files(metadata_file(pairs(iceberg)), "shop.t")
    assert lake.table("shop.t").scan().count() == 7


def test_the_command_migrates(iceberg: IcebergCatalog, lake: tidelake.Catalog, call: Call, tmp_path: Path) -> None:
    source = metadata_file(pairs(iceberg))
    said = call("table", "migrate", "shop.t", "--from", source, "-w", str(tmp_path / "lake"), "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["rows"] == 6
