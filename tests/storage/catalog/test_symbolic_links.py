"""Tables, databases and warehouses behind a symbolic link."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False)])


@pytest.fixture
def catalog(tmp_path: Path) -> tidelake.Catalog:
    """With tables `db.t` and `db.other`, a row each."""
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("db")
    for name in ("db.t", "db.other"):
        with catalog.create_table(name, COLUMNS, primary_key=["id"]).writer() as writer:
            writer.write(pa.table({"id": [1]}))
            writer.commit()
    return catalog


def files_below(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def table_place(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "db.db" / "t"


@pytest.mark.parametrize("part", ["", "schema", "bucket-0"], ids=["the table", "its schemas", "a bucket"])
def test_a_table_behind_a_link_is_refused_before_anything_of_it_is_dropped(
    catalog: tidelake.Catalog, tmp_path: Path, part: str
) -> None:
    link = table_place(tmp_path) / part
    elsewhere = tmp_path / "elsewhere"
    link.rename(elsewhere)
    link.symlink_to(elsewhere)
    before = files_below(tmp_path)
    drops: list[Callable[[], None]] = [
        lambda: catalog.drop_table("db.t"),
        lambda: catalog.drop_database("db", cascade=True),
    ]
    for drop in drops:
        with pytest.raises(tidelake.UnsupportedFeature, match=rf"table db\.t: {link} is a symbolic link.*nothing was"):
            drop()
        assert files_below(tmp_path) == before
    for name in ("db.t", "db.other"):
        assert catalog.table(name).scan().to_arrow().num_rows == 1


def test_a_database_behind_a_link_is_refused_before_anything_of_it_is_dropped(
    catalog: tidelake.Catalog, tmp_path: Path
) -> None:
    (tmp_path / "lake" / "db.db").rename(tmp_path / "elsewhere")
    (tmp_path / "lake" / "db.db").symlink_to(tmp_path / "elsewhere")
    before = files_below(tmp_path)
    with pytest.raises(tidelake.UnsupportedFeature, match=r"database db: .*/db\.db is a symbolic link"):
        catalog.drop_database("db", cascade=True)
    assert files_below(tmp_path) == before
    catalog.drop_table("db.t")  # its own directory is none
    assert catalog.list_tables("db") == ["other"]


def test_a_warehouse_behind_a_link_is_like_any_other(catalog: tidelake.Catalog, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    linked = tidelake.open_catalog(str(tmp_path / "link"))
    linked.drop_table("db.t")
    assert catalog.list_tables("db") == ["other"]
    linked.drop_database("db", cascade=True)
    assert catalog.list_databases() == []
