"""A folder of files becomes a table: which files are accepted, what remains of the source, and the state after
a crash.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import tidelake
import tidelake.migration
from tests.support.command_line import Call
from tidelake.spark import procedures
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.maintenance.migration import migration

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("at", pa.timestamp("us")), ("x", pa.float64())])
DAYS = ("2026-05-01", "2026-05-02", "__HIVE_DEFAULT_PARTITION__")


def rows(first: int, count: int = 3, schema: pa.Schema = SCHEMA) -> pa.Table:
    found = [{"id": first + n, "v": f"v{n}" if n else None, "at": n or None, "x": n / 2} for n in range(count)]
    return pa.Table.from_pylist(found).cast(schema)


def write(path: Path, table: pa.Table, file_format: str = "parquet") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if file_format == "parquet":
        pq.write_table(table, path)
    else:
        orc.write_table(table, str(path))
    return path


@pytest.fixture
def lake(tmp_path: Path) -> tidelake.Catalog:
    lake = tidelake.open_catalog(str(tmp_path / "lake"))
    lake.create_database("shop")
    return lake


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three partitions by day, each with a file named as in Hive, and files that jobs leave behind."""
    for n, day in enumerate(DAYS):
        write(tmp_path / "hive" / f"day={day}" / "000000_0", rows(10 * n))
    (tmp_path / "hive" / "_SUCCESS").touch()
    return tmp_path / "hive"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "_SUCCESS")


def ids(table: tidelake.Table, condition: Any = None) -> list[int]:
    return sorted(table.scan(filter=condition).to_arrow().column("id").to_pylist())


def test_rows_of_partitions_get_the_values_of_their_directories(lake: tidelake.Catalog, folder: Path) -> None:
    done = lake.migrate_table(str(folder), "shop.visits", partition_types={"day": "DATE"})
    assert (done.files, done.partitions, done.rows, done.snapshot_id) == (3, 3, 9, 1)
    assert dict(done.columns) == {"id": "BIGINT", "v": "STRING", "at": "TIMESTAMP(6)", "x": "DOUBLE", "day": "DATE"}
    table = lake.table("shop.visits")
    assert ids(table, tidelake.col("day") == date(2026, 5, 2)) == [10, 11, 12]
    assert ids(table, tidelake.col("day").is_null()) == [20, 21, 22]
    assert files(folder) == []
    assert [path.name for path in folder.iterdir()] == ["_SUCCESS"]


def test_the_table_is_written_and_compacted_like_any_other(lake: tidelake.Catalog, folder: Path) -> None:
    lake.migrate_table(str(folder), "shop.visits", options={"compaction.min.file-num": "2"})
    table = lake.table("shop.visits")
    with table.writer() as writer:
        writer.write(rows(90).append_column("day", pa.array(["2026-05-01"] * 3)))
        writer.commit()
    before = table.scan().to_arrow().sort_by("id")
    table.compact(full=True)
    assert table.scan().to_arrow().sort_by("id").equals(before)
    assert ids(table) == [0, 1, 2, 10, 11, 12, 20, 21, 22, 90, 91, 92]


def test_bounds_from_footers_skip_files(lake: tidelake.Catalog, tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path / "hive" / f"{n}.parquet", rows(100 * n))
    lake.migrate_table(str(tmp_path / "hive"), "shop.visits")
    explained = lake.table("shop.visits").scan(filter=tidelake.col("id") == 101).explain()
    assert sorted(file.file_name for file in explained if file.left_out is None) == ["1.parquet"]


def test_kept_files_are_hard_linked(lake: tidelake.Catalog, folder: Path) -> None:
    before = {path: path.read_bytes() for path in files(folder)}
    lake.migrate_table(str(folder), "shop.visits", keep_source=True)
    assert {path: path.read_bytes() for path in files(folder)} == before
    assert ids(lake.table("shop.visits")) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_files_are_copied_where_links_can_t_be_made(
    lake: tidelake.Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "os", SimpleNamespace(link=_no_link, makedirs=os.makedirs, path=os.path))
    lake.migrate_table(str(folder), "shop.visits")
    assert ids(lake.table("shop.visits")) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert files(folder) == []


def _no_link(*_: object) -> None:
    raise OSError(18, "another device")


def test_a_dry_run_changes_nothing(lake: tidelake.Catalog, folder: Path) -> None:
    done = lake.migrate_table(str(folder), "shop.visits", dry_run=True)
    assert (done.files, done.rows, done.snapshot_id) == (3, 9, None)
    assert (lake.list_tables("shop"), len(files(folder))) == ([], 3)


def crash_while_linking(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    link, left = migration._link_or_copy, iter(range(after))

    def some(*arguments: Any) -> None:
        if next(left, None) is None:
            raise InterruptedError
        link(*arguments)

    monkeypatch.setattr(migration, "_link_or_copy", some)


def crash_before_the_commit(_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(migration, "TableCommit", none)


def crash_while_names_go(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    delete = LocalFileIO.delete_all

    def some(self: LocalFileIO, paths: Any) -> None:
        delete(self, list(paths)[:after])
        raise InterruptedError

    monkeypatch.setattr(LocalFileIO, "delete_all", some)


@pytest.mark.parametrize(
    ("crash", "after"),
    [
        (crash_while_linking, 0),
        (crash_while_linking, 2),
        (crash_before_the_commit, 0),
        (crash_while_names_go, 0),
        (crash_while_names_go, 2),
    ],
)
def test_after_a_crash_no_row_is_lost_and_the_same_call_continues(
    crash: Callable[[int, pytest.MonkeyPatch], None],
    after: int,
    lake: tidelake.Catalog,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything = {0, 1, 2, 10, 11, 12, 20, 21, 22}
    with monkeypatch.context() as crashing:
        crash(after, crashing)
        with pytest.raises(InterruptedError):
            lake.migrate_table(str(folder), "shop.visits")
    in_source = {n for path in files(folder) for n in pq.read_table(path)["id"].to_pylist()}
    assert {*ids(lake.table("shop.visits")), *in_source} == everything
    lake.migrate_table(str(folder), "shop.visits")
    table = lake.table("shop.visits")
    assert ids(table) == sorted(everything)
    assert (files(folder), len(table.snapshots())) == ([], 1)


def test_files_added_after_the_migration_are_not_deleted(lake: tidelake.Catalog, folder: Path) -> None:
    lake.migrate_table(str(folder), "shop.visits")
    late = write(folder / "day=2026-05-01" / "000000_0", rows(700))
    with pytest.raises(tidelake.BadInput, match=r"was already migrated, but .*000000_0 was added later"):
        lake.migrate_table(str(folder), "shop.visits")
    assert late.exists()


def test_a_target_table_with_rows_is_refused(lake: tidelake.Catalog, folder: Path) -> None:
    table = lake.create_table("shop.visits", SCHEMA)
    with table.writer() as writer:
        writer.write(rows(1))
        writer.commit()
    with pytest.raises(tidelake.BadInput, match="already exists, and is not an unfinished migration"):
        lake.migrate_table(str(folder), "shop.visits")
    assert len(files(folder)) == 3


def narrow(file: Path) -> Path:
    return write(file, rows(1).set_column(0, "id", pa.array([1, 2, 3], pa.int32())))


DAY = "day=2026-05-01"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        pytest.param(
            lambda f: write(f / DAY / "b", rows(1).drop_columns("x")), "'x' is .* missing", id="a column less"
        ),
        pytest.param(lambda f: narrow(f / DAY / "b"), "'id' is BIGINT in .* INT", id="another type"),
        pytest.param(lambda f: (f / DAY / "b").write_text("no"), "a file in parquet", id="no parquet file"),
        pytest.param(lambda f: write(f / "a.parquet", rows(1)), "where directories day=", id="beside partitions"),
        pytest.param(lambda f: write(f / "hour=1" / "a", rows(1)), "where directories day=", id="other directories"),
        pytest.param(
            lambda f: write(f / DAY / "deep" / "a", rows(1)), "not a partition", id="in a partition's directory"
        ),
        pytest.param(lambda f: write(f / DAY / "000000_0.parquet", rows(1)), "two files", id="two names become one"),
    ],
)
def test_files_with_incompatible_schemas_are_refused_without_changes(
    broken: Any, reason: str, lake: tidelake.Catalog, folder: Path
) -> None:
    broken(folder)
    before = files(folder)
    with pytest.raises(tidelake.TidelakeError, match=reason):
        lake.migrate_table(str(folder), "shop.visits")
    assert files(folder) == before
    assert all(not ids(lake.table(f"shop.{name}")) for name in lake.list_tables("shop"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param({"file_format": "avro"}, "migration of avro files", id="avro"),
        pytest.param({"file_format": "csv"}, "migration of csv files", id="csv"),
        pytest.param({"partition_types": {"hour": "INT"}}, "no directories hour=", id="no such partition column"),
        pytest.param(
            {"partition_types": {"day": "INT"}}, "a value of partition column 'day'", id="no value of the type"
        ),
        pytest.param({"options": {"bucket-key": "id"}}, "have no buckets", id="buckets"),
    ],
)
def test_a_folder_that_cannot_be_a_table_is_refused(
    arguments: dict[str, Any], reason: str, lake: tidelake.Catalog, folder: Path
) -> None:
    with pytest.raises(tidelake.TidelakeError, match=reason):
        lake.migrate_table(str(folder), "shop.visits", **arguments)
    assert lake.list_tables("shop") == []


def test_the_command_reports_its_result(lake: tidelake.Catalog, folder: Path, tmp_path: Path, call: Call) -> None:
    result = call("table", "migrate", "shop.visits", "--from", folder, "-w", tmp_path / "lake", "--dry-run")
    assert "would be created from 3 files in 3 partitions with 9 rows: id BIGINT" in result.err
    result = call("table", "migrate", "shop.visits", "--from", folder, "-w", tmp_path / "lake", "--json")
    assert result.document["rows"] == 9
    assert ids(lake.table("shop.visits")) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


# ---------------------------------------------------------------- a whole database


@pytest.fixture
def database(folder: Path, tmp_path: Path) -> Path:
    """visits, partitioned by day, and two tables without partitions."""
    place = tmp_path / "shop.db"
    place.mkdir()
    folder.rename(place / "visits")
    write(place / "orders" / "000000_0", rows(100))
    write(place / "users" / "000000_0", rows(200))
    (place / "_staging").mkdir()
    return place


def test_each_folder_of_a_database_becomes_a_table(lake: tidelake.Catalog, database: Path) -> None:
    planned = lake.migrate_database(str(database), "archive", partition_types={"day": "DATE"}, dry_run=True)
    assert "archive" not in lake.list_databases()
    done = lake.migrate_database(str(database), "archive", partition_types={"day": "DATE"})
    assert [(one.table, one.rows) for one in done] == [(one.table, one.rows) for one in planned]
    assert [(one.table, one.rows) for one in done] == [
        ("archive.orders", 3),
        ("archive.users", 3),
        ("archive.visits", 9),
    ]
    assert ids(lake.table("archive.users")) == [200, 201, 202]
    assert dict(done[2].columns)["day"] == "DATE"
    assert files(database) == []
    assert lake.migrate_database(str(database), "archive") == []  # all of it was done


def test_a_database_with_an_unsuitable_folder_is_not_changed(lake: tidelake.Catalog, database: Path) -> None:
    write(database / "users" / "000001_0", rows(1).drop_columns(["v"]))
    before = files(database)
    with pytest.raises(tidelake.BadInput, match="users/"):
        lake.migrate_database(str(database), "archive")
    assert files(database) == before
    assert "archive" not in lake.list_databases()
    done = lake.migrate_database(str(database), "archive", tables=["orders", "visits"])
    assert [one.table for one in done] == ["archive.orders", "archive.visits"]


def test_an_interrupted_database_migration_continues_with_the_next_table(
    lake: tidelake.Catalog, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        whole = migration.migrate

        def full_disk_at_users(plan: Any, target: Any, **how: Any) -> Any:
            if target.name == "archive.users":
                raise OSError("no space")
            return whole(plan, target, **how)

        patch.setattr(tidelake.migration, "migrate", full_disk_at_users)
        with pytest.raises(OSError, match="no space"):
            lake.migrate_database(str(database), "archive")
    done = lake.migrate_database(str(database), "archive")
    assert [one.table for one in done] == ["archive.users", "archive.visits"]
    assert [ids(lake.table(f"archive.{name}"))[0] for name in ("orders", "users", "visits")] == [100, 200, 0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"tables": ["user"]}, "holds no table 'user'; its tables are orders, users, visits"),
        ({"source": "visits"}, "is not the folder of a table; to migrate one table"),
        ({"source": "_staging"}, "holds no tables"),
    ],
    ids=["a table that is none", "the folder of a table", "an empty folder"],
)
def test_a_path_that_is_no_database_is_refused(
    lake: tidelake.Catalog, database: Path, arguments: dict[str, Any], says: str
) -> None:
    source = str(database / arguments.pop("source", ""))
    with pytest.raises(tidelake.BadInput, match=says):
        lake.migrate_database(source, "archive", **arguments)


def test_the_command_migrates_a_database(call: Call, database: Path, tmp_path: Path) -> None:
    arguments = ("database", "migrate", "archive", "--from", database, "-w", tmp_path / "lake")
    result = call(*arguments, "--table", "users", "--dry-run")
    assert result.err.startswith("archive.users would be created from 1 files in 1 partitions with 3 rows: id BIGINT")
    document = call(*arguments, "--keep-source", "--json").document
    assert [one["table"] for one in document] == ["archive.orders", "archive.users", "archive.visits"]
    assert len(files(database)) == 5


# ---------------------------------------------------------------- into a table that has rows


@pytest.fixture
def visits(lake: tidelake.Catalog, folder: Path) -> tidelake.Table:
    lake.migrate_table(str(folder), "shop.visits", partition_types={"day": "DATE"})
    return lake.table("shop.visits")


def test_files_may_be_added_to_a_table_repeatedly(
    lake: tidelake.Catalog, visits: tidelake.Table, tmp_path: Path
) -> None:
    for number in (300, 400):  # of the same names, in the same folder
        write(tmp_path / "more" / "day=2026-05-02" / "000000_0", rows(number))
        done = lake.migrate_files(str(tmp_path / "more"), "shop.visits")
        assert (done.files, done.rows) == (1, 3)
        assert files(tmp_path / "more") == []
    assert ids(visits, tidelake.col("day") == date(2026, 5, 2)) == [10, 11, 12, 300, 301, 302, 400, 401, 402]
    assert len(ids(visits)) == 15
    visits.compact(full=True)
    assert len(ids(visits)) == 15


def test_files_that_were_added_under_an_older_schema_have_nulls_in_new_columns(
    lake: tidelake.Catalog, visits: tidelake.Table, tmp_path: Path
) -> None:
    altered = lake.alter_table("shop.visits", [tidelake.AddColumn("w", "INT")])
    old = write(tmp_path / "more" / "day=2026-05-02" / "000000_0", rows(300))
    with pytest.raises(tidelake.BadInput, match=r"column 'w' is missing in .*more and INT in shop\.visits"):
        lake.migrate_files(str(tmp_path / "more"), "shop.visits")
    write(old, rows(300).append_column("w", pa.array([7, 8, 9], pa.int32())))
    lake.migrate_files(str(tmp_path / "more"), "shop.visits")
    found = altered.scan().to_arrow().select(["id", "w"]).to_pylist()
    assert {row["id"]: row["w"] for row in found if row["w"]} == {300: 7, 301: 8, 302: 9}


def test_a_call_that_failed_before_its_commit_can_be_repeated(
    lake: tidelake.Catalog, visits: tidelake.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "more" / "day=2026-05-02" / "000000_0", rows(300))
    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", full_disk)
        with pytest.raises(OSError, match="no space"):
            lake.migrate_files(str(tmp_path / "more"), "shop.visits")
    assert len(files(tmp_path / "more")) == 1
    assert len(ids(visits)) == 9
    lake.migrate_files(str(tmp_path / "more"), "shop.visits", keep_source=True)
    assert lake.migrate_files(str(tmp_path / "more"), "shop.visits").snapshot_id is None  # committed already
    assert files(tmp_path / "more") == []
    assert len(ids(visits)) == 12


def full_disk(*_: Any) -> Any:
    raise OSError("no space")


@pytest.mark.parametrize(
    ("options", "primary_key", "says"),
    [
        ({}, ["id"], "have no buckets"),
        ({"bucket": "2", "bucket-key": "id"}, [], "have no buckets"),
        ({"row-tracking.enabled": "true"}, [], "each row gets an id"),
    ],
    ids=["a primary key", "buckets", "row ids"],
)
def test_tables_that_cannot_take_added_files_are_refused(
    lake: tidelake.Catalog, tmp_path: Path, options: dict[str, str], primary_key: list[str], says: str
) -> None:
    lake.create_table("shop.t", SCHEMA, primary_key=primary_key, options=options)
    write(tmp_path / "more" / "000000_0", rows(1))
    with pytest.raises(tidelake.UnsupportedFeature, match=says):
        lake.migrate_files(str(tmp_path / "more"), "shop.t")


def test_added_files_must_have_the_partitions_of_the_table(
    lake: tidelake.Catalog, visits: tidelake.Table, tmp_path: Path
) -> None:
    write(tmp_path / "more" / "000000_0", rows(1))
    with pytest.raises(tidelake.BadInput, match="no directories day="):
        lake.migrate_files(str(tmp_path / "more"), "shop.visits")


def test_the_command_adds_files(call: Call, visits: tidelake.Table, tmp_path: Path) -> None:
    write(tmp_path / "more" / "day=2026-05-02" / "000000_0", rows(300))
    arguments = ("table", "migrate", "shop.visits", "--add", "--from", tmp_path / "more", "-w", tmp_path / "lake")
    assert call(*arguments, "--option", "a=b").code == 2
    assert call(*arguments).err == "shop.visits got 1 more files with 3 rows\n"
    assert len(ids(visits)) == 12


def test_the_paimon_procedures_migrate_too(lake: tidelake.Catalog, database: Path, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "lake")
    procedures.migrate_table(str(database / "orders"), warehouse, target_table="shop.orders")
    write(database / "orders" / "000000_0", rows(500))
    assert procedures.migrate_file(str(database / "orders"), "shop.orders", warehouse).rows == 3
    assert ids(lake.table("shop.orders")) == [100, 101, 102, 500, 501, 502]
    (database / "orders").rmdir()
    done = procedures.migrate_database(str(database), warehouse, target_database="archive")
    assert [one.table for one in done] == ["archive.users", "archive.visits"]
    with pytest.raises(tidelake.UnsupportedFeature, match="iceberg"):
        procedures.migrate_file("a.b", "shop.orders", warehouse, source_type="iceberg")
