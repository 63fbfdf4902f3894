"""`tidelake table explain`, `tidelake table verify --changelog` and `tidelake table changes --follow`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelake
from tests.support.command_line import Call

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("db")
    options = {"bucket": "1", "changelog-producer": "input", "write-only": "true"}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=options)
    write(table, 1, "a")
    write(table, 1, "b")
    return table


def write(table: tidelake.Table, key: int, value: str) -> None:
    with table.writer(commit_user="etl") as writer:
        writer.write(pa.table({"id": [key], "v": [value]}, SCHEMA))
        writer.commit(len(table.snapshots()) + 1)


def test_a_row_is_explained_as_text_and_as_json(call: Call, tmp_path: Path, table: tidelake.Table) -> None:
    command = ("table", "explain", "db.t", "-w", tmp_path / "lake", "--key", "id=1")
    text = call(*command).out
    assert "id=1 of db.t at snapshot 2:\n  id=1 v=b\n  deduplicate of 2 rows: the newest wins" in text
    assert "* #1 +I id=1 v=a\n     sequence 0, level 0, bucket 0, data-" in text
    document = call(*command, "--json").document
    assert document["visible"] == {"id": 1, "v": "b"}
    assert [(v["snapshot"], v["live"], v["madeBy"]) for v in document["versions"]] == [
        (1, True, "append of etl"),
        (2, True, "append of etl"),
    ]
    assert call("table", "explain", "db.t", "-w", tmp_path / "lake", "--key", "v=1").code == 1
    assert call("table", "explain", "db.t", "-w", tmp_path / "lake", "--key", "id=x").code == 1


def test_a_key_that_no_file_holds_has_no_list_of_versions(call: Call, tmp_path: Path, table: tidelake.Table) -> None:
    text = call("table", "explain", "db.t", "-w", tmp_path / "lake", "--key", "id=404").out
    assert "  no row\n" in text
    assert "versions in files" not in text


def test_long_values_are_shortened_as_text_and_complete_as_json(
    call: Call, tmp_path: Path, table: tidelake.Table
) -> None:
    write(table, 2, "é\u2028" * 5_000)
    command = ("table", "explain", "db.t", "-w", tmp_path / "lake", "--key", "id=2")
    assert max(map(len, call(*command).out.splitlines())) < 200
    assert call(*command, "--json").document["visible"]["v"] == "é\u2028" * 5_000


def test_a_changelog_that_equals_the_table_passes(call: Call, tmp_path: Path, table: tidelake.Table) -> None:
    command = ("table", "verify", "db.t", "-w", tmp_path / "lake", "--changelog")
    assert call(*command).out.endswith("table and 2 changes, compared with snapshot 2 of db.t: 1 keys\nsound\n")
    document = call(*command, "--start", "1", "--json").document
    assert (document["sound"], document["start"], document["changes"]) == (True, 1, 1)


def test_a_changelog_that_differs_from_the_table_fails_with_the_key_and_its_history(
    call: Call, tmp_path: Path, table: tidelake.Table
) -> None:
    write(tidelake.Table(table.context.with_options({"changelog-producer": "none"})), 1, "c")
    command = ("table", "verify", "db.t", "-w", tmp_path / "lake", "--changelog")
    result = call(*command)
    text = result.out
    assert result.code == 1
    assert "WRONG  1 keys whose row differs" in text
    assert "first: id=1\n  replayed   id=1 v=b\n  the table  id=1 v=c\n" in text
    assert "* #3 +I id=1 v=c" in text
    document = call(*command, "--json").document
    assert document["first"] == {"key": {"id": 1}, "folded": {"id": 1, "v": "b"}, "there": {"id": 1, "v": "c"}}
    assert len(document["history"]["changes"]) == 2


def test_a_manipulated_changelog_fails_with_the_first_key_its_versions_and_its_changes(
    call: Call, tmp_path: Path, table: tidelake.Table
) -> None:
    with table.writer(commit_user="etl") as writer:
        writer.write(pa.table({"id": range(2, 9), "v": ["x"] * 7}, SCHEMA))
        writer.commit(3)
    (path,) = (path for path in tmp_path.rglob("changelog-*") if pq.read_metadata(path).num_rows == 7)
    rows = pq.read_table(path)
    values = ["doctored" if key.as_py() in (5, 7) else "x" for key in rows["id"]]
    at = rows.schema.get_field_index("v")
    pq.write_table(rows.set_column(at, rows.schema.field(at), pa.array(values)), path)
    command = ("table", "verify", "db.t", "-w", tmp_path / "lake", "--changelog")
    result = call(*command)
    assert result.code == 1
    assert "WRONG  2 keys whose row differs from the replayed changelog" in result.out
    assert "first: id=5\n  replayed   id=5 v=doctored\n  the table  id=5 v=x\n" in result.out
    assert "versions in files, oldest first; *: merged by a read of this snapshot\n* #3 +I id=5 v=x\n" in result.out
    assert "changelog, oldest first\n  #3 +I id=5 v=doctored\n" in result.out
    document = call(*command, "--json").document
    assert document["first"]["key"] == {"id": 5}
    assert document["history"]["changes"] == [{"snapshot": 3, "kind": "+I", "row": {"id": 5, "v": "doctored"}}]


def test_changes_are_followed_to_an_end_snapshot(call: Call, tmp_path: Path, table: tidelake.Table) -> None:
    command = ("table", "changes", "db.t", "-w", tmp_path / "lake", "--follow", "--end", "2")
    assert call(*command, "--start", "earliest").out == "#1 +I id=1 v=a\n#2 +I id=1 v=b\n"
    lines = call(*command, "--start", "latest-full", "--consumer", "c", "--json").lines
    assert lines == [{"snapshot": 2, "kind": "+I", "row": {"id": 1, "v": "b"}}]


def test_a_range_of_changes_is_given_by_its_two_snapshots(call: Call, tmp_path: Path, table: tidelake.Table) -> None:
    command = ("table", "changes", "db.t", "-w", tmp_path / "lake")
    assert call(*command, "--between", "1,2").out == "#2 +I id=1 v=b\n"
    assert call(*command, "--diff", "1,2").out == "#2 -U id=1 v=a\n#2 +U id=1 v=b\n"
    assert call(*command, "--between", "1").code == 2
    assert call(*command, "--between", "1,2", "--follow").code == 2
    assert call(*command, "--start", "latest").code == 2


def test_system_tables_are_scanned_by_name(call: Call, tmp_path: Path, table: tidelake.Table) -> None:
    lines = call("table", "scan", "db.t$audit_log", "-w", tmp_path / "lake", "--json").lines
    assert lines == [{"rowkind": "+I", "id": 1, "v": "b"}]
