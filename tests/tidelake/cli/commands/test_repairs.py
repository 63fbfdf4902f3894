"""`tidelake table analyze`, `remove-missing-files`, `remove-missing-manifests`, `purge` and `branch merge`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """shop.t with two snapshots of a row each."""
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    add(catalog.create_table("shop.t", COLUMNS, options={"bucket": "-1", "write-only": "true"}), 1)
    add(opened(tmp_path / "lake"), 2)
    return tmp_path / "lake"


def opened(lake: Path, name: str = "shop.t") -> tidelake.Table:
    return tidelake.open_catalog(str(lake)).table(name)


def add(table: tidelake.Table, number: int) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": [number], "name": ["n"]}, schema=COLUMNS))
        writer.commit()


def test_an_analysis_prints_its_counts(lake: Path, call: Call) -> None:
    result = call("table", "analyze", "shop.t", "-w", lake)
    assert "2 rows and 2 columns of shop.t were analyzed: snapshot 3" in result.out
    reported = call("table", "analyze", "shop.t", "-w", lake, "--columns", "id", "--json").document
    assert (reported["rows"], list(reported["columns"])) == (2, ["id"])
    assert call("table", "analyze", "shop.t", "-w", lake, "--rows-only", "--json").document["columns"] == {}


def test_a_table_without_rows_has_nothing_to_analyze(lake: Path, call: Call) -> None:
    tidelake.open_catalog(str(lake)).create_table("shop.empty", COLUMNS)
    assert "has no snapshot" in call("table", "analyze", "shop.empty", "-w", lake).out


def test_missing_files_are_named_before_they_are_removed(lake: Path, call: Call) -> None:
    lost = next(Path(lake).rglob("data-*.parquet"))
    lost.unlink()
    command = ("table", "remove-missing-files", "shop.t", "-w", lake)
    result = call(*command, "--dry-run")
    assert "1 missing data files of shop.t would be removed from the metadata" in result.out
    assert call(*command, "--json").document == {"missing": [str(lost)]}
    assert "no data files of shop.t are missing" in call(*command).out
    assert len(opened(lake).scan().to_arrow()) == 1


def test_missing_manifests_are_removed(lake: Path, call: Call) -> None:
    lost = next(path for path in lake.rglob("manifest-*") if "list" not in path.name)
    lost.unlink()
    command = ("table", "remove-missing-manifests", "shop.t", "-w", lake)
    assert call(*command, "--json").document == {"missing": [lost.name]}
    assert "no manifests of shop.t are missing" in call(*command).out
    assert len(opened(lake).scan().to_arrow()) == 1


def test_a_purge_asks_for_confirmation(lake: Path, call: Call) -> None:
    result = call("table", "purge", "shop.t", "-w", lake)
    assert (result.code, len(opened(lake).snapshots())) == (3, 2)
    assert "with 2 snapshots, 0 tags, 0 branches?" in result.err
    assert call("table", "purge", "shop.t", "-w", lake, "--yes").code == 0
    assert len(opened(lake).scan().to_arrow()) == 0


def test_a_branch_is_merged(lake: Path, call: Call) -> None:
    opened(lake).create_branch("dev", snapshot=2)
    add(opened(lake, "shop.t$branch_dev"), 3)
    merge = ("table", "branch", "merge", "shop.t", "dev", "-w", lake)
    assert "were appended: snapshot 3 of shop.t" in call(*merge).out
    assert call(*merge, "--json").document == {"snapshot": None}
    assert len(opened(lake).scan().to_arrow()) == 3
