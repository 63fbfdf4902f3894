"""`tidelake sql`: queries, earlier states and system tables, what is refused, files, and the shell."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelake
from tests.support.command_line import Call
from tests.tidelake.cli.test_terminal import on_a_terminal
from tidelake import BadInput
from tidelake.cli.rendering.grids import columns_that_fit
from tidelake.schema import AddColumn, RenameColumn, UpdateColumnType
from tidelake.sql import Session


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64()), ("status", pa.string())]))
    for start in (0, 10, 20):
        table.append([{"id": i, "status": "new" if i % 2 else "paid"} for i in range(start, start + 10)])
    table.create_tag("first", snapshot=1)
    table.create_tag("3", snapshot=2)
    table.create_tag("it's me@home", snapshot=2)
    return tmp_path / "lake"


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select count(*) as n from shop.orders", [{"n": 30}]),
        (
            "select status, max(id) as id from shop.orders group by 1 order by 1",
            [{"status": "new", "id": 29}, {"status": "paid", "id": 28}],
        ),
        ("select count(*) as n from shop.orders@2", [{"n": 20}]),
        ("select count(*) as n from shop.orders@'first'", [{"n": 10}]),
        ("select count(*) as n from shop.orders@3", [{"n": 30}]),
        ("select count(*) as n from shop.orders@'3'", [{"n": 20}]),
        ("select count(*) as n from shop.orders@'1'", [{"n": 10}]),
        ("select count(*) as n from shop.orders@'it''s me@home'", [{"n": 20}]),
        ("select count(*) as n from shop.orders@'2999-01-01T00:00:00'", [{"n": 30}]),
        (
            "select a.id from shop.orders a anti join shop.orders@1 b on a.id = b.id where a.id < 12 order by 1",
            [{"id": 10}, {"id": 11}],
        ),
        ("select max(snapshot_id) as id from shop.orders$snapshots", [{"id": 3}]),
        ('select max(snapshot_id) as id from "shop"."orders$snapshots" -- shop.orders@9', [{"id": 3}]),
        ("select 'shop.orders@5' as t, 1 as \"shop.orders$x\"", [{"t": "shop.orders@5", "shop.orders$x": 1}]),
        ("set threads = 1; from shop.orders@1 select min(id) as id", [{"id": 0}]),
        ("select 'x;y' as a; select 2 as a", [{"a": "x;y"}, {"a": 2}]),
        ("select count(*) as n from shop.orders@1 join shop.orders b using (id)", [{"n": 10}]),
        ("select count(*) as n from shop.orders a natural join shop.orders@'first' b", [{"n": 10}]),
        ("select count(*) as n from (unpivot (select status from shop.orders) on status)", [{"n": 30}]),
        ("pivot (select status from shop.orders@1) on status using count(*)", [{"new": 5, "paid": 5}]),
        (
            "-- both\n with p as (pivot shop.orders on status using max(id)) from p",
            [{"new": 29, "paid": 28}],
        ),
    ],
)
def test_a_query_reads_tables(query: str, rows: list[object], call: Call, lake: Path) -> None:
    said = call("sql", query, "-w", lake, "--json")
    assert (said.code, said.lines) == (0, rows), said.err


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("create table x as pivot shop.orders on status using count(*)", "only reads"),
        ("select a.nope from shop.orders a join shop.orders b using (id)", "nope"),
        ("select * from shop.nope a join shop.orders b using (id)", "nope does not exist"),
        ("insert into shop.orders values (1, 'x')", "only reads, but this is INSERT"),
        ("create table t as select 1", "only reads, but this is CREATE"),
        ("copy (select 1) to 'x.csv'", "only reads, but this is COPY"),
        ("select * from 'somewhere.csv'", "disabled"),
        ("select * from shop.nothing", "no table shop.nothing"),
        ("select nope from shop.orders", 'Referenced column "nope" not found'),
        ("select * from shop.orders@7", "7"),
        ("select * from shop.orders@'someday'", "write a snapshot id, a tag of the table, or a time"),
        ("selct 1", "the query can't be read"),
        ("  ", "there is no statement"),
        ("select * from orders", "orders"),
    ],
)
def test_what_a_query_may_not_do_is_said(query: str, says: str, call: Call, lake: Path) -> None:
    said = call("sql", query, "-w", lake)
    assert said.code == 1
    assert says in said.err
    assert "Traceback" not in said.err


def test_an_explanation_counts_files_and_reads_no_rows(call: Call, lake: Path) -> None:
    said = call("sql", "explain select id from shop.orders where id > 15", "-w", lake)
    assert "PYTHON_ARROW_SCAN" in said.out
    assert 'filter="id > 15"' in said.out
    assert "reads 2 of 3 files, skips 1" in said.out
    assert call("sql", "explain select id from shop.orders", "-w", lake, "--json").document["reads"][0]["files"] == 3


def test_rows_go_into_a_new_file(call: Call, lake: Path, tmp_path: Path) -> None:
    query = "select id from shop.orders order by 1"
    parquet, csv = tmp_path / "rows.parquet", tmp_path / "rows.csv"
    assert call("sql", query, "-w", lake, "--output", parquet).code == 0
    assert pq.read_table(parquet).column("id").to_pylist() == list(range(30))
    assert call("sql", query, "-w", lake, "--output", csv, "--limit", "2").code == 0
    assert csv.read_text().split() == ['"id"', "0", "1"]
    assert "the file exists" in call("sql", query, "-w", lake, "--output", csv).err
    assert "--output writes" in call("sql", query, "-w", lake, "--output", tmp_path / "rows.txt").err
    failed = tmp_path / "failed.json"
    assert call("sql", "select 1/0, error('stop')", "-w", lake, "--output", failed).code == 1
    assert not failed.exists()


def test_columns_of_the_result_are_chosen(call: Call, lake: Path) -> None:
    query = "select id, status, 1 as one from shop.orders where id = 7"
    assert call("sql", query, "-w", lake, "--json", "--columns", "one,id").lines == [{"one": 1, "id": 7}]
    assert "no column 'two'" in call("sql", query, "-w", lake, "--columns", "two").err
    assert call("sql", query, "-w", lake, "--vertical").out.splitlines()[1:] == [
        "id      7",
        "status  new",
        "one     1",
    ]


# ---------------------------------------------------------------- wide tables


@pytest.mark.parametrize(
    ("widths", "width", "shown"),
    [
        pytest.param([5, 5, 5], 100, [0, 1, 2], id="all fit"),
        pytest.param([5] * 40, None, list(range(40)), id="a pipe is as wide as needed"),
        pytest.param([20] * 10, 80, [0, 1, 9], id="columns of the middle are left out"),
        pytest.param([5, 5, 5], 21, [0, 1, 2], id="all fit exactly"),
        pytest.param([5, 5, 5], 20, [0], id="one blank is missing"),
        pytest.param([500, 500, 500], 66, [0, 1, 2], id="long values are folded"),
        pytest.param([20] * 10, 5, [0], id="one column is always shown"),
        pytest.param([], 80, [], id="no columns"),
    ],
)
def test_the_outer_columns_are_shown(widths: list[int], width: int | None, shown: list[int]) -> None:
    assert columns_that_fit(widths, width) == shown


def test_a_wide_table_says_what_it_leaves_out(call: Call, lake: Path) -> None:
    said = call("table", "scan", "shop.orders$files", "-w", lake, "--limit", "1")
    assert "… 14 more" in said.out
    assert max(map(len, said.out.splitlines())) <= 100
    assert "without file_format, schema_id, level," in said.err
    whole = call("table", "scan", "shop.orders$files", "-w", lake, "--limit", "1", "--vertical")
    assert "min_sequence_number" in whole.out
    assert "more" not in whole.out


def test_titles_are_not_folded_while_there_is_space(call: Call, lake: Path) -> None:
    said = call("sql", "select 1 as a, 2 as the_longest_title_of_all, 3 as another_title", "-w", lake)
    assert said.out.splitlines()[0].split() == ["a", "the_longest_title_of_all", "another_title"]


def test_an_error_of_duckdb_is_readable(call: Call, lake: Path) -> None:
    said = call("sql", "select sum(status) from shop.orders", "-w", lake)
    assert said.err.startswith("error: Binder Error: No function matches")
    assert "\\t" not in said.err
    assert "\n    Candidate functions:\n" in said.err


# ---------------------------------------------------------------- shell


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        pytest.param("select 1 from orders", "the name of its database before it: shop.orders", id="no database"),
        pytest.param(
            'select 1 from "shop.orders$files"', "without quotes around the whole: shop.orders$files", id="quotes"
        ),
        pytest.param("select 1 from nothing", "Write database.table; `\\d` in the shell", id="no table"),
        pytest.param("select 1 from shop.ordres", "did you mean 'shop.orders'?", id="misspelt"),
    ],
)
def test_a_name_that_no_table_has_is_answered_with_the_one_that_is_meant(
    query: str, hint: str, call: Call, lake: Path
) -> None:
    result = call("sql", query, "-w", lake)
    assert result.code == 1
    assert hint in result.err
    assert "duckdb_" not in result.err  # a table of DuckDB itself is never meant


def test_a_shell_runs_statements_and_commands(lake: Path, tmp_path: Path) -> None:
    typed = (
        "\\d\n\\d shop.orders;\nselect count(*)\nfrom shop.orders;\n\\x\nselect 7 as seven;\n"
        "select nope;\n\\nothing\n\\?\n\\q\n"
    )
    code, shown = on_a_terminal("sql", "-w", lake, typed=typed, XDG_STATE_HOME=str(tmp_path), PAGER="cat", NO_COLOR="1")
    assert code == 0
    for part in ("shop.orders", "status  string", "30", "vertical is on", "seven", "  7", "no command", "Ctrl-C stops"):
        assert part in shown, part
    assert "error: Binder Error" in shown
    assert "select 7 as seven;" in (tmp_path / "tidelake" / "sql_history").read_text()


def test_a_pipe_takes_statements_and_commands(call: Call, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = (
        "\\d shop.orders\n-- how many\n\\x\nselect count(*) as n\nfrom shop.orders;\n"
        "select 1 as one;\n\\q\nselect nope;\n"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    said = call("sql", "-w", lake)
    assert said.code == 0, said.err
    for part in ("status  string", "n  30", "one  1"):
        assert part in said.out


@pytest.mark.parametrize(
    ("typed", "says"), [("\\dt\nselect 1;\n", "\\dt is no command"), ("", "no statement"), (" ;\n", "no statement")]
)
def test_the_first_error_ends_a_pipe(
    typed: str, says: str, call: Call, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    said = call("sql", "-w", lake)
    assert said.code != 0
    assert says in said.err
    assert "1 row" not in said.out


def test_a_session_follows_changes_of_its_tables(tmp_path: Path) -> None:
    """A shell stays open for hours, beside pipelines that add and widen columns."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", pa.schema([("v", pa.int32()), ("w", pa.string())]))
    table.append([{"v": 1, "w": "a"}])
    session = Session(catalog)

    def rows(query: str) -> object:
        (statement,) = session.statements(query)
        found = session.run(statement)
        return None if found is None else found.read_all().to_pylist()

    assert rows("select * from shop.t") == [{"v": 1, "w": "a"}]
    catalog.alter_table("shop.t", [UpdateColumnType("v", "BIGINT"), AddColumn("n", "INT")]).append([{"v": 2**40}])
    assert rows("select * from shop.t order by v") == [
        {"v": 1, "w": "a", "n": None},
        {"v": 2**40, "w": None, "n": None},
    ]
    catalog.alter_table("shop.t", [RenameColumn("w", "x")])
    assert rows("select x from shop.t where v = 1") == [{"x": "a"}]
    catalog.drop_table("shop.t")
    with pytest.raises(BadInput, match=r"no table shop\.t"):
        rows("select * from shop.t")
    assert rows("select 1 as one") == [{"one": 1}]
    catalog.create_table("shop.t", pa.schema([("z", pa.string())]))
    assert rows("select * from shop.t") == []
    session.close()
