"""`tidelake table delete` and `update`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call

COLUMNS = pa.schema([("id", pa.int64()), ("status", pa.string()), ("amount", pa.decimal128(9, 2))])


@pytest.fixture(params=["append", "primary key"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """shop.t with ids 0 to 4."""
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    given: dict[str, Any] = {"options": {"bucket": "-1", "deletion-vectors.enabled": "true"}}
    table = catalog.create_table("shop.t", COLUMNS, **(given if request.param == "append" else {"primary_key": ["id"]}))
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist([{"id": number, "status": "nwe"} for number in range(5)], COLUMNS))
        writer.commit()
    return tmp_path / "lake"


def rows(lake: Path) -> list[tuple[int, str | None, str]]:
    found = tidelake.open_catalog(str(lake)).table("shop.t").scan().to_arrow().to_pylist()
    return [(row["id"], row["status"], str(row["amount"])) for row in sorted(found, key=lambda row: row["id"])]


def test_rows_that_match_the_condition_are_deleted(lake: Path, call: Call) -> None:
    arguments = ("table", "delete", "shop.t", "-w", lake, "--where", "id >= 3 or id = 0")
    assert call(*arguments, "--dry-run").out.strip() == "3 rows of shop.t would be deleted"
    assert call(*arguments, "--dry-run", "--json").document == {"rows": 3, "snapshot": None}
    assert len(rows(lake)) == 5
    assert call(*arguments).out.strip() == "deleted in snapshot 2 of shop.t"
    assert [id_ for id_, _, _ in rows(lake)] == [1, 2]
    assert "no row of shop.t matches the condition" in call(*arguments).out
    assert call(*arguments, "--json").document == {"snapshot": None}


def test_rows_that_match_the_condition_are_updated(lake: Path, call: Call) -> None:
    values = ("--set", "status = 'it''s new'", "--set", "amount=3.5")
    arguments = ("table", "update", "shop.t", "-w", lake, *values, "--where", "id > 3")
    assert call(*arguments, "--dry-run").out.strip() == "1 row of shop.t would be updated"
    assert call(*arguments, "--json").document == {"snapshot": 2}
    assert rows(lake)[3:] == [(3, "nwe", "None"), (4, "it's new", "3.50")]
    assert call("table", "update", "shop.t", "-w", lake, "--set", "status=NULL", "--where", "id=4").code == 0
    assert rows(lake)[4] == (4, None, "3.50")


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("delete", "--where", "nme = 1"), 1, "nme"),
        (("delete", "--where", "id ="), 1, "expected a value"),
        (("delete",), 2, "--where"),
        (("update", "--where", "id = 1"), 2, "--set"),
        (("update", "--where", "id = 1", "--set", "status=new"), 1, "strings are written in single quotes"),
        (("update", "--where", "id = 1", "--set", "status='a', id=1"), 1, "repeat --set for another column"),
        (("update", "--where", "id = 1", "--set", "status='a'", "--set", "status='b'"), 2, "column status twice"),
        (("update", "--where", "id = 1", "--set", "amount='much'"), 1, "amount"),
        (("update", "--where", "id = 1", "--set", "x=1"), 1, "no column 'x'"),
    ],
)
def test_invalid_values_are_refused_without_changes(
    lake: Path, call: Call, arguments: tuple[str, ...], code: int, message: str, dry_run: tuple[str, ...]
) -> None:
    verb, *others = arguments
    result = call("table", verb, "shop.t", "-w", lake, *others, *dry_run)
    assert (result.code, message in result.err) == (code, True), result.err
    assert len(tidelake.open_catalog(str(lake)).table("shop.t").snapshots()) == 1
