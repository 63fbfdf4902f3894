"""`Catalog.clone_table` and `tidelake table clone`: another table with the rows of a snapshot."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.cases import golden_table
from tests.support.command_line import Call
from tidelake import AddColumn, BadInput, UnsupportedFeature, aio
from tidelake.errors import CorruptFile
from tidelake.storage.maintenance.verify.inspection import verify

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
KINDS = {"+I": 0, "-D": 3}


@pytest.fixture
def lake(tmp_path: Path) -> tidelake.Catalog:
    """db.t with a primary key: three commits, one compaction; a column came with the third."""
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("db")
    catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "2", "write-only": "true"})
    write(catalog.table("db.t"), dict.fromkeys(range(100), "one"))
    write(catalog.table("db.t"), dict.fromkeys(range(50, 60), "two"))
    catalog.table("db.t").compact(full=True)
    catalog.table("db.t").create_tag("before")
    catalog.alter_table("db.t", [AddColumn("more", pa.int32())])
    write(catalog.table("db.t"), dict.fromkeys(range(95, 100)), kind="-D")
    return catalog


def write(table: tidelake.Table, values: dict[int, str | None], kind: str = "+I") -> None:
    kinds = pa.array([KINDS[kind]] * len(values), pa.int8())
    with table.writer() as writer:
        writer.write(pa.table({"id": list(values), "v": pa.array(values.values(), pa.string()), "_VALUE_KIND": kinds}))
        writer.commit()


def rows(table: tidelake.Table) -> list[dict[str, object]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def test_a_clone_has_the_rows_the_schemas_and_one_snapshot(lake: tidelake.Catalog) -> None:
    source = lake.table("db.t")
    clone = lake.clone_table(source, "db.clone")
    assert rows(clone) == rows(source)
    assert len(rows(clone)) == 95
    assert clone.context.schemas.ids() == source.context.schemas.ids()
    assert [snapshot.id for snapshot in clone.context.snapshots.all()] == [1]
    assert not clone.tags()
    assert verify(clone.context, deep=True) == []


def test_the_clone_and_the_original_are_independent(lake: tidelake.Catalog) -> None:
    clone = lake.clone_table(lake.table("db.t"), "db.clone")
    before = rows(lake.table("db.t"))
    write(clone, {7: "clone"})
    clone.compact(full=True)
    assert rows(lake.table("db.t")) == before
    assert {row["id"]: row["v"] for row in rows(clone)}[7] == "clone"
    lake.drop_table("db.t")
    assert len(rows(clone)) == 95


@pytest.mark.parametrize(("asked", "found"), [({"tag": "before"}, 100), ({"snapshot": 1}, 100), ({}, 95)])
def test_a_clone_may_use_an_older_snapshot(asked: dict[str, object], found: int, lake: tidelake.Catalog) -> None:
    clone = lake.clone_table(lake.table("db.t"), "db.clone", **asked)  # type: ignore[arg-type]
    assert len(rows(clone)) == found


def test_a_clone_may_be_in_another_store(lake: tidelake.Catalog) -> None:
    other = tidelake.open_catalog("memory://clones/lake")
    other.create_database("db", if_not_exists=True)
    clone = other.clone_table(lake.table("db.t"), "db.t")
    assert rows(clone) == rows(lake.table("db.t"))
    other.drop_table("db.t")


@pytest.mark.parametrize(
    "options", [{}, {"bucket": "1", "deletion-vectors.enabled": "true"}], ids=["append", "vectors"]
)
def test_deleted_rows_stay_deleted_in_a_clone(options: dict[str, str], lake: tidelake.Catalog) -> None:
    key = ["id"] if "deletion-vectors.enabled" in options else []
    options = {"deletion-vectors.enabled": "true", **options}
    table = lake.create_table("db.v", SCHEMA, primary_key=key, options=options)
    write(table, dict.fromkeys(range(10), "v"))
    if key:
        write(table, {3: None}, kind="-D")
        table.compact()
    else:
        table.delete(tidelake.col("id") == 3)
    clone = lake.clone_table(table, "db.clone")
    assert [row["id"] for row in rows(clone)] == [0, 1, 2, *range(4, 10)]
    assert verify(clone.context, deep=True) == []


def test_a_table_without_rows_has_a_clone_without_rows(lake: tidelake.Catalog) -> None:
    lake.create_table("db.empty", SCHEMA)
    clone = lake.clone_table(lake.table("db.empty"), "db.clone")
    assert rows(clone) == []
    assert clone.context.snapshots.latest() is None


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("db.t", {}, "db.t already exists"),
        ("nowhere.t", {}, "no database 'nowhere'"),
        ("db.clone", {"snapshot": 99}, "has no snapshot 99: its snapshots are 1 to"),
        ("db.clone", {"tag": "never"}, "never"),
        ("db.clone", {"tag": "before", "snapshot": 1}, "at most one of snapshot and tag"),
    ],
)
def test_a_refused_clone_leaves_no_files(
    name: str, asked: dict[str, object], message: str, lake: tidelake.Catalog
) -> None:
    with pytest.raises(BadInput, match=message):
        lake.clone_table(lake.table("db.t"), name, **asked)  # type: ignore[arg-type]
    assert lake.list_tables("db") == ["t"]


def test_tables_with_row_ids_cannot_be_cloned(tmp_path: Path) -> None:
    golden = golden_table("java/row_tracking")
    catalog = tidelake.open_catalog(str(golden.unpack(tmp_path)))
    with pytest.raises(UnsupportedFeature, match=r"row-tracking\.enabled"):
        catalog.clone_table(catalog.table(golden.identifier), "golden.clone")
    assert catalog.list_tables("golden") == [golden.name]


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_failed_clone_is_dropped(damage: str, lake: tidelake.Catalog, tmp_path: Path) -> None:
    newest = max((tmp_path / "lake/db.db/t").rglob("data-*"), key=lambda path: path.stat().st_mtime_ns)
    newest.unlink() if damage == "gone" else newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(CorruptFile, match=newest.name):
        lake.clone_table(lake.table("db.t"), "db.clone")
    assert lake.list_tables("db") == ["t"]
    assert not (tmp_path / "lake/db.db/clone").exists()


async def test_a_clone_is_made_without_blocking_the_loop(lake: tidelake.Catalog, tmp_path: Path) -> None:
    catalog = await aio.open_catalog(str(tmp_path / "lake"))
    clone = await catalog.clone_table(await catalog.table("db.t"), "db.clone")
    assert clone.name == "db.clone"
    assert len(await (await clone.scan()).to_arrow()) == 95


def test_the_command_reports_the_clone(lake: tidelake.Catalog, tmp_path: Path, call: Call) -> None:
    where = ("-w", tmp_path / "lake")
    result = call("table", "clone", "db.t", "db.clone", *where)
    assert "db.clone is a clone of db.t, with 105 rows in its files" in result.err
    other = tidelake.open_catalog(str(tmp_path / "other"))
    other.create_database("db")
    reported = call(
        "table", "clone", "db.t", "db.t", *where, "--to", tmp_path / "other", "--tag", "before", "--json"
    ).document
    assert reported["rows_in_files"] == 100
    assert len(rows(other.table("db.t"))) == 100
    assert call("table", "clone", "db.t", "db.x", *where, "--to-catalog-option", "a=b").code == 2
