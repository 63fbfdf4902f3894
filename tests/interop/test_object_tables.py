"""Object tables in Java and Tidelake: created by one, listed by the other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tests.support.java_oracle import JavaOracle
from tests.support.rest_catalog import RestCatalogServer

NAME = "shop.pictures"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for n, name in enumerate(("a.png", "deep/er/b.png", "deep/.hidden", "z/ü 1.txt")):
        path = tmp_path / "objects" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * n)
        os.utime(path, ns=(0, (1_700_000_000_000 + n) * 1_000_000))
    return tmp_path / "objects"


@pytest.fixture(params=["jdbc", "rest"])
def options(request: pytest.FixtureRequest, tmp_path: Path, rest_catalog: RestCatalogServer) -> dict[str, str]:
    if request.param == "rest":
        return {**rest_catalog.options, "warehouse": "lake"}
    return {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db", "warehouse": f"{tmp_path}/lake"}


def opened(options: dict[str, str]) -> tidelake.Catalog:
    lake = tidelake.open_catalog(**options)
    lake.create_database("shop", if_not_exists=True)
    return lake


def by_path(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["path"]))


def test_both_list_the_same_files(options: dict[str, str], folder: Path, java_oracle: JavaOracle) -> None:
    lake, java = opened(options), json.dumps(options)
    ours = lake.create_table(NAME, pa.schema([]), options={"type": "object-table", "path": str(folder)})
    java_oracle.create(java, "shop.theirs", [], options={"type": "object-table", "path": str(folder)})
    expected = [
        {
            "path": path,
            "name": path.rpartition("/")[2],
            "length": n,
            "mtime": 1_700_000_000_000 + n,
            "atime": 0,
            "owner": None,
        }
        for n, path in enumerate(("a.png", "deep/er/b.png", "deep/.hidden", "z/ü 1.txt"))
    ]
    for name in (NAME, "shop.theirs"):
        assert by_path(java_oracle.read(java, name)) == by_path(expected)
        assert by_path(lake.table(name).scan().to_arrow().to_pylist()) == by_path(expected)
    (folder / "new").touch()
    found = ours.scan(columns=["path"], filter=tidelake.col("length") == 0).to_arrow().column("path").to_pylist()
    assert found == ["a.png", "new"]
    assert lake.list_tables("shop") == ["pictures", "theirs"]
    for name in (NAME, "shop.theirs"):
        lake.drop_table(name)
    assert (folder / "a.png").exists()
    assert lake.list_tables("shop") == []


def test_an_object_table_is_only_read(options: dict[str, str], folder: Path) -> None:
    lake = opened(options)
    table = lake.create_table(NAME, pa.schema([]), options={"type": "object-table", "path": str(folder)})
    assert table.location == str(folder)
    with pytest.raises(tidelake.BadInput, match="is an object table"):
        table.writer()
    with pytest.raises(tidelake.BadInput, match="is an object table"):
        lake.alter_table(NAME, [tidelake.AddColumn("x", pa.int32())])


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        pytest.param({}, "needs option path", id="no folder"),
        pytest.param({"object-location": "/data"}, "look at option path instead", id="the option of older releases"),
        pytest.param({"path": "/data", "bucket": "2"}, "option bucket does not apply", id="an option of tables"),
    ],
)
def test_options_without_effect_are_refused(wanted: dict[str, str], reason: str, options: dict[str, str]) -> None:
    lake = opened(options)
    with pytest.raises(tidelake.TidelakeError, match=reason):
        lake.create_table(NAME, pa.schema([]), options={"type": "object-table", **wanted})
    with pytest.raises(tidelake.BadInput, match="columns of an object table are always path, name"):
        lake.create_table(NAME, pa.schema([("a", pa.int32())]), options={"type": "object-table", "path": "/data"})


def test_the_command_creates_and_reads_an_object_table(folder: Path, tmp_path: Path, call: Call) -> None:
    catalog = ["-w", f"{tmp_path}/lake", "--catalog-option", "metastore=jdbc"]
    catalog += ["--catalog-option", f"uri=jdbc:sqlite:{tmp_path}/c.db"]
    wanted = ["--option", "type=object-table", "--option", f"path={folder}"]
    assert call("table", "create", NAME, *wanted, *catalog).code == 0
    result = call("table", "scan", NAME, "--where", "length > 1", "--columns", "path", *catalog, "--json")
    assert result.lines == [{"path": "deep/.hidden"}, {"path": "z/ü 1.txt"}]
    assert call("table", "show", NAME, *catalog).code == 0
