"""`tidelake table …`: its arguments, its output, and its effects."""

from __future__ import annotations

import io
import threading
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import tidelake
from tests.support.command_line import Call
from tests.support.local_zone import MoveTo
from tidelake.cli import main
from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.commands.reading import follow
from tidelake.cli.output import CommandOutput
from tidelake.cli.rendering import lsm_view
from tidelake.cli.rendering.rows import print_changes
from tidelake.storage.base.clock import epoch_ms

COLUMNS = ("id:BIGINT NOT NULL", "region:STRING", "amount:DECIMAL(10,2)", "tags:MAP<STRING,INT>")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("region", pa.string(), nullable=False),
        ("amount", pa.decimal128(10, 2)),
        ("tags", pa.map_(pa.string(), pa.int32())),
    ]
)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def rows(*values: tuple[int, str, str | None], kind: int = 0) -> pa.Table:
    ids, regions, amounts = zip(*values, strict=True)
    return pa.table(
        {
            "id": ids,
            "region": regions,
            "amount": pa.array([None if a is None else Decimal(a) for a in amounts], pa.decimal128(10, 2)),
            "tags": pa.array([[("n", i)] for i in ids], SCHEMA.field("tags").type),
            "_VALUE_KIND": pa.array([kind] * len(ids), pa.int8()),
        }
    )


@pytest.fixture
def orders(warehouse: Path) -> tidelake.Table:
    """Two partitions of two buckets, three snapshots, a tag; the changelog is the input."""
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop")
    table = catalog.create_table(
        "shop.orders",
        SCHEMA,
        primary_key=["region", "id"],
        partition_by=["region"],
        options={"bucket": "2", "changelog-producer": "input"},
        comment="Orders of the shop",
    )
    with table.writer(commit_user="etl") as writer:
        writer.write(rows((1, "eu", "1.50"), (2, "eu", None), (3, "us", "20.00")))
        writer.commit(identifier=7)
        writer.write(rows((1, "eu", "2.50"), kind=2))
        writer.commit(identifier=8)
        writer.write(rows((3, "us", "20.00"), kind=3))
        writer.commit(identifier=9)
    return table


# ---------------------------------------------------------------- create, list, drop


def test_a_table_is_created_with_its_database(call: Call, warehouse: Path) -> None:
    columns = [part for column in COLUMNS for part in ("--column", column)]
    keys = ("--primary-key", "region,id", "--partition-by", "region")
    options = ("--option", "bucket=4", "--option", "changelog-producer=input", "--comment", "Orders")
    result = call("table", "create", "shop.orders", "-w", warehouse, *columns, *keys, *options)
    assert result.code == 0
    assert result.out == f"shop.orders at {warehouse}/shop.db/orders\n"
    assert result.err == "created database shop\n"
    table = tidelake.open_catalog(str(warehouse)).table("shop.orders")
    assert table.schema == SCHEMA
    assert table.primary_key == ("region", "id")
    assert table.partition_by == ("region",)
    assert dict(table.options) == {"bucket": "4", "changelog-producer": "input"}
    again = call("table", "create", "shop.orders", "-w", warehouse, *columns)
    assert (again.code, again.out) == (1, "")
    assert "already exists" in again.err
    assert call("table", "create", "shop.orders", "-w", warehouse, *columns, "--if-not-exists", "--json").code == 0


def test_columns_may_come_from_a_parquet_file(call: Call, warehouse: Path, tmp_path: Path) -> None:
    pa.parquet.write_table(rows((1, "eu", "1.50")).drop_columns(["_VALUE_KIND"]), tmp_path / "orders.parquet")
    result = call("table", "create", "shop.t", "-w", warehouse, "--schema-from", tmp_path / "orders.parquet", "--json")
    assert result.code == 0
    types = [(column["name"], column["type"]) for column in result.document["columns"]]
    assert types[2:] == [("amount", "DECIMAL(10, 2)"), ("tags", "MAP<STRING NOT NULL, INT>")]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param([], 2, "usage: pass the columns with either --column or --schema-from", id="no columns"),
        pytest.param(["--column", "id"], 2, "usage: --column 'id': write NAME:TYPE", id="a column without type"),
        pytest.param(["--column", "id:NUMBER"], 2, "usage: --column 'id:NUMBER': ", id="no such type"),
        pytest.param(["--column", "id:INT", "--primary-key", "nr"], 1, "nr", id="a key that is no column"),
        pytest.param(["--schema-from", "nowhere.parquet"], 1, "nowhere.parquet", id="no such file"),
        pytest.param(["--schema-from", __file__], 1, "is not a Parquet file", id="another kind of file"),
    ],
)
def test_an_invalid_table_is_refused_with_the_reason(
    call: Call, warehouse: Path, arguments: list[str], code: int, message: str
) -> None:
    result = call("table", "create", "shop.t", "-w", warehouse, *arguments)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert "Traceback" not in result.err
    assert tidelake.open_catalog(str(warehouse)).list_databases() == []


def test_names_are_listed_one_a_line(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    tidelake.open_catalog(str(warehouse)).create_database("empty")
    assert call("table", "list", "-w", warehouse).out == "shop.orders\n"
    assert call("table", "list", "shop", "-w", warehouse, "--json").document == ["shop.orders"]
    nothing = call("table", "list", "empty", "-w", warehouse)
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "no tables in database empty\n")


def test_truncating_requires_a_confirmation(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    result = call("table", "truncate", "shop.orders", "-w", warehouse)
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith("refused: Remove all rows from shop.orders")
    assert orders.scan().to_arrow().num_rows == 2
    by_partition = ("--partition", "region=us", "--yes", "--json")
    assert (
        call("table", "truncate", "shop.orders", "-w", warehouse, *by_partition).document["truncated"] == "shop.orders"
    )
    assert orders.scan().to_arrow().num_rows == 2
    assert call("table", "truncate", "shop.orders", "-w", warehouse, "--yes").err.startswith("removed all rows")
    assert orders.scan().to_arrow().num_rows == 0


def test_dropping_requires_a_confirmation(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    result = call("table", "drop", "shop.orders", "-w", warehouse, "--json")
    assert (result.code, result.out) == (3, "")
    assert "Pass --yes" in result.err
    assert call("table", "list", "-w", warehouse).out == "shop.orders\n"
    assert call("table", "drop", "shop.orders", "-w", warehouse, "--yes", "--json").document == {
        "dropped": "shop.orders"
    }
    assert call("table", "drop", "shop.orders", "-w", warehouse, "--yes").code == 1
    assert call("table", "drop", "shop.orders", "-w", warehouse, "--yes", "--if-exists").code == 0


# ---------------------------------------------------------------- show, snapshots


def test_a_table_is_shown_on_one_page(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    (snapshot,) = [snapshot for snapshot in orders.snapshots() if snapshot.id == 3]
    when = datetime.fromtimestamp(snapshot.time_ms / 1000, UTC)
    result = call("table", "show", "shop.orders", "-w", warehouse)
    assert result.err == ""
    shown = "\n".join(line.rstrip() for line in result.out.splitlines())
    picture, _, rest = shown.partition("\n\npartition")
    buckets, _, trees = rest.partition("\n\nregion=")
    assert (
        picture
        == f"""\
shop.orders
{warehouse}/shop.db/orders
Orders of the shop

column   type
───────────────────────────────────────────────────────────
id       BIGINT NOT NULL             primary key
region   STRING NOT NULL             primary key, partition
amount   DECIMAL(10, 2)
tags     MAP<STRING NOT NULL, INT>

keys       primary key region, id · partitioned by region · 2 buckets by id
schema     version 0
options    bucket = 2
           changelog-producer = input
snapshot   3 · APPEND · {when:%Y-%m-%d %H:%M:%S} UTC
           by etl
           5 rows in files before merging, +1 by this snapshot
           oldest snapshot: 1"""
    )
    header, _, *lines = (line.split()[:-2] for line in buckets.splitlines())  # without sizes
    assert header == ["bucket", "L0", "files"]
    assert lines == [["region=eu", "0", "2", "3"], ["region=us", "1", "2", "2"], [], ["all", "4", "5"]]
    assert trees.endswith(
        "\n\nno compactions in the last 3 snapshots · write amplification 1.00\n"
        "files put for each commit: 2.7 of data, 7.0 of metadata"
    )


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_the_age_of_a_file_is_correct_in_every_time_zone(
    call: Call,
    warehouse: Path,
    local_zone: MoveTo,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    zone: str,
) -> None:
    local_zone(zone)
    before_ms = epoch_ms()
    request.getfixturevalue("orders")
    after_ms = epoch_ms()
    monkeypatch.setattr(lsm_view, "epoch_ms", lambda: after_ms + 5_000)
    (run, *_) = call("table", "show", "shop.orders", "-w", warehouse, "--json").document["trees"][0]["runs"]
    assert 5_000 <= run["youngest_ms"] <= run["oldest_ms"] <= after_ms + 5_001 - before_ms  # 1: of rounding


def test_a_table_is_shown_as_json(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    picture = call("table", "show", "shop.orders", "-w", warehouse, "--json").document
    assert picture["columns"][2] == {"id": 2, "name": "amount", "type": "DECIMAL(10, 2)", "description": None}
    assert picture["primary_key"] == ["region", "id"]
    assert picture["buckets"] == {"mode": "fixed", "count": 2, "key": ["id"]}
    assert picture["options"] == {"bucket": "2", "changelog-producer": "input"}
    assert picture["snapshot"]["id"] == 3
    assert picture["snapshot"]["commit_identifier"] == 9
    assert picture["snapshot"]["next_offsets"] is None
    assert picture["earliest_snapshot"] == 1
    assert {entry["partition"]["region"] for entry in picture["files"]} == {"eu", "us"}
    assert {entry["level"] for entry in picture["files"]} == {0}
    assert sum(entry["rows"] for entry in picture["files"]) == 5
    assert sum(entry["files"] for entry in picture["files"]) == 4


def test_the_files_that_commits_put_are_those_that_are_found(
    call: Call, warehouse: Path, orders: tidelake.Table
) -> None:
    """Each commit also replaces the hint `LATEST`."""
    history = call("table", "show", "shop.orders", "-w", warehouse, "--json").document["history"]
    directory = warehouse / "shop.db" / "orders"
    data = sum("bucket-" in str(path.parent) for path in directory.rglob("*") if path.is_file())
    metadata = sum(path.is_file() and path.name[0].islower() for path in directory.glob("[ms][an]*/*"))
    assert (history["commits"], history["data_puts"], history["metadata_puts"]) == (3, data, metadata + 3)


def test_an_empty_table_can_be_shown(call: Call, warehouse: Path) -> None:
    call("table", "create", "shop.log", "-w", warehouse, "--column", "line:STRING")
    result = call("table", "show", "shop.log", "-w", warehouse)
    assert "no primary key: rows are only added · buckets: unaware" in result.out
    assert "none yet: nothing was committed" in result.out
    assert call("table", "show", "shop.log", "-w", warehouse, "--json").document["snapshot"] is None
    assert call("table", "scan", "shop.log", "-w", warehouse, "--json").out == ""
    assert call("table", "snapshots", "shop.log", "-w", warehouse, "--json").out == ""
    nothing = call("table", "changes", "shop.log", "-w", warehouse)
    assert (nothing.code, nothing.out) == (0, "")


def test_many_buckets_are_summarized(call: Call, warehouse: Path) -> None:
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = catalog.create_table("shop.t", schema, primary_key=["id"], options={"bucket": "50"})
    with table.writer() as writer:
        writer.write(pa.table({"id": range(1000)}))
        writer.commit()
    some = call("table", "show", "shop.t", "-w", warehouse).out.splitlines()
    every = call("table", "show", "shop.t", "-w", warehouse, "--all-buckets").out.splitlines()
    assert [line.split()[:2] for line in some if line.strip().startswith("+")] == [["+", "30"]]
    assert len(every) == len(some) + 29
    assert [line.split()[:3] for line in some if line.strip().startswith("all")] == [["all", "50", "1,000"]]
    assert some[-2:] == [
        "no compactions in the one snapshot · write amplification 1.00",
        "files put for each commit: 50.0 of data, 5.0 of metadata",
    ]


def test_snapshots_are_listed_newest_first(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    listed = call("table", "snapshots", "shop.orders", "-w", warehouse, "--json").lines
    assert [(s["id"], s["commitIdentifier"], s["commitUser"]) for s in listed] == [
        (3, 9, "etl"),
        (2, 8, "etl"),
        (1, 7, "etl"),
    ]
    result = call("table", "snapshots", "shop.orders", "-w", warehouse, "--limit", "2")
    assert [line.split()[0] for line in result.out.splitlines()[2:]] == ["3", "2"]
    assert result.err == "showing the newest 2; --limit shows more\n"


# ---------------------------------------------------------------- scan


def test_a_scan_prints_json_lines(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    result = call("table", "scan", "shop.orders", "-w", warehouse, "--json")
    assert result.err == ""
    assert sorted(result.lines, key=lambda row: row["id"]) == [
        {"id": 1, "region": "eu", "amount": "2.50", "tags": [["n", 1]]},
        {"id": 2, "region": "eu", "amount": None, "tags": [["n", 2]]},
    ]


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        pytest.param(["--snapshot", "1"], [1, 2, 3], id="an older snapshot"),
        pytest.param(["--where", "amount > 2"], [1], id="a condition"),
        pytest.param(["--where", "region = 'us'", "--snapshot", "2"], [3], id="a condition on the partition"),
        pytest.param(["--limit", "1", "--where", "id = 2"], [2], id="a limit"),
        pytest.param(["--as-of", "2999-01-01T00:00:00Z"], [1, 2], id="a time"),
    ],
)
def test_a_scan_filters_rows(
    call: Call, warehouse: Path, orders: tidelake.Table, arguments: list[str], ids: list[int]
) -> None:
    result = call("table", "scan", "shop.orders", "-w", warehouse, "--json", "--columns", "id", *arguments)
    assert sorted(row["id"] for row in result.lines) == ids


def test_a_scan_prints_a_table(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    result = call("table", "scan", "shop.orders", "-w", warehouse, "--where", "id = 2")
    assert [line.rstrip() for line in result.out.splitlines()] == [
        "id   region   amount   tags",
        "────────────────────────────────",
        ' 2   eu         null   [["n",2]]',
    ]
    assert result.err == "1 row\n"


def test_a_printed_table_ends_after_a_hundred_rows(call: Call, warehouse: Path) -> None:
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", pa.schema([("id", pa.int64())]))
    with table.writer() as writer:
        writer.write(pa.table({"id": range(101)}))
        writer.commit()
    result = call("table", "scan", "shop.t", "-w", warehouse)
    assert len(result.out.splitlines()) == 2 + 100
    assert result.err.startswith("showing the first 100 rows")
    assert len(call("table", "scan", "shop.t", "-w", warehouse, "--limit", "101").out.splitlines()) == 2 + 101


def test_terminal_control_characters_are_escaped(call: Call, warehouse: Path) -> None:
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", pa.schema([("text", pa.string())]))
    with table.writer() as writer:
        writer.write(pa.table({"text": ["a\x1b[2Jb\n[bold]c"]}))
        writer.commit()
    assert call("table", "scan", "shop.t", "-w", warehouse).out.splitlines()[-1].strip() == r"a\x1b[2Jb\n[bold]c"


def test_a_scan_prints_csv(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    result = call("table", "scan", "shop.orders", "-w", warehouse, "--format", "csv", "--columns", "amount,id")
    read = pa.csv.read_csv(io.BytesIO(result.out.encode()))
    assert sorted(map(tuple, zip(*read.to_pydict().values(), strict=True)), key=str) == [(2.5, 1), (None, 2)]
    refused = call("table", "scan", "shop.orders", "-w", warehouse, "--format", "csv")
    assert refused.code == 1
    assert "CSV can't hold column tags" in refused.err


def test_a_scan_prints_arrow(warehouse: Path, orders: tidelake.Table, capfdbinary: Any, tmp_path: Path) -> None:
    assert main(["table", "scan", "shop.orders", "-w", str(warehouse), "--format", "arrow"]) == 0
    with pa.ipc.open_stream(capfdbinary.readouterr().out) as stream:
        assert stream.read_all().sort_by("id") == orders.scan().to_arrow().sort_by("id")


def test_missing_columns_and_snapshots_are_named(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    for arguments, message in (
        (["--columns", "price"], "no column 'price'"),
        (["--where", "price > 3"], "names column 'price'"),
        (["--snapshot", "9"], "has no snapshot 9: its snapshots are 1 to 3"),
        (["--tag", "v1"], "has no tag 'v1'"),
        (["--as-of", "2001-01-01"], "has no snapshot that was committed at"),
    ):
        result = call("table", "scan", "shop.orders", "-w", warehouse, *arguments)
        assert (result.code, result.out) == (1, "")
        assert message in result.err
    assert call("table", "scan", "shop.orders", "-w", warehouse, "--as-of", "soon").code == 2
    assert "no table shop.order" in call("table", "scan", "shop.order", "-w", warehouse).err


# ---------------------------------------------------------------- changes, follow


def test_changes_are_printed_as_lines(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    result = call("table", "changes", "shop.orders", "-w", warehouse, "--start", "2", "--columns", "id,amount")
    assert result.out == "#2 +U id=1 amount=2.50\n#3 -D id=3 amount=20.00\n"
    assert result.err == ""
    arguments = ("--end", "2", "--where", "id = 1", "--columns", "amount", "--json")
    assert call("table", "changes", "shop.orders", "-w", warehouse, *arguments).lines == [
        {"snapshot": 1, "kind": "+I", "row": {"amount": "1.50"}},
        {"snapshot": 2, "kind": "+U", "row": {"amount": "2.50"}},
    ]
    gone = call("table", "changes", "shop.orders", "-w", warehouse, "--start", "3", "--end", "5")
    assert gone.code == 1
    assert "has no snapshot 5 yet (the latest is 3)" in gone.err


def test_following_shows_new_commits(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    def write_one_more() -> None:
        with orders.writer(commit_user="other") as writer:
            writer.write(rows((4, "us", None)))
            writer.commit(identifier=1)

    other = threading.Thread(target=write_one_more)
    other.start()
    result = call(
        "table", "follow", "shop.orders", "-w", warehouse, "--start", "3", "--until", "4", "--columns", "id", "--json"
    )
    other.join()
    assert result.lines == [
        {"snapshot": 3, "kind": "-D", "row": {"id": 3}},
        {"snapshot": 4, "kind": "+I", "row": {"id": 4}},
    ]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("changes",), id="changes"),
        pytest.param(("changes", "--follow", "--start", "earliest"), id="changes --follow"),
        pytest.param(("follow", "--start", "earliest"), id="follow"),
    ],
)
@pytest.mark.parametrize("limit", [1, 2, 4])
def test_a_limit_ends_the_output_after_that_many_changes(
    call: Call, warehouse: Path, orders: tidelake.Table, command: tuple[str, ...], limit: int
) -> None:
    verb, *options = command
    all_of_them = call("table", "changes", "shop.orders", "-w", warehouse, "--json").lines
    assert len(all_of_them) == 5  # of three snapshots
    result = call("table", verb, "shop.orders", "-w", warehouse, *options, "--limit", str(limit), "--json")
    assert (result.code, result.lines) == (0, all_of_them[:limit])


def test_a_limit_counts_only_matching_changes(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    arguments = ("-w", warehouse, "--follow", "--start", "earliest", "--where", "id = 1", "--limit", "2")
    result = call("table", "changes", "shop.orders", *arguments, "--columns", "amount")
    assert result.out == "#1 +I amount=1.50\n#2 +U amount=2.50\n"


def test_a_limit_together_with_a_consumer_is_refused(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    for verb in (("follow",), ("changes", "--follow")):
        result = call("table", verb[0], "shop.orders", "-w", warehouse, *verb[1:], "--consumer", "c", "--limit", "1")
        assert (result.code, result.out) == (2, "")
        assert "--limit may end within a snapshot" in result.err


def test_a_consumer_continues_at_its_position(call: Call, warehouse: Path, orders: tidelake.Table) -> None:
    command = ("table", "follow", "shop.orders", "-w", warehouse, "--consumer", "c", "--json", "--start", "earliest")
    first = call(*command, "--until", "2")
    second = call(*command, "--until", "3")
    assert {change["snapshot"] for change in first.lines} == {1, 2}
    assert {change["snapshot"] for change in second.lines} == {3}


def test_following_ends_normally_with_ctrl_c(
    warehouse: Path, orders: tidelake.Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tidelake.storage.read.follow._wait", interrupt)
    follow(
        CommandOutput(is_json=False),
        name="shop.orders",
        catalog=CatalogAddress(str(warehouse)),
        columns=["id"],
        where=None,
        start=3,
        consumer=None,
        until=None,
        share=None,
        bucket=None,
        limit=None,
    )
    assert capsys.readouterr().out == "#3 -D id=3\n"


def test_readers_can_share_buckets_or_read_one(call: Call, warehouse: Path) -> None:
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop", if_not_exists=True)
    options = {"bucket": "3", "changelog-producer": "input"}
    ids_only = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = catalog.create_table("shop.buckets", ids_only, primary_key=["id"], options=options)
    with table.writer() as writer:
        writer.write(pa.table({"id": range(30)}, ids_only))
        writer.commit()
    where = ("shop.buckets", "-w", warehouse, "--columns", "id", "--json")

    def ids(*command: Any) -> list[int]:
        return [line.get("row", line)["id"] for line in call("table", *command).lines]

    one_each = [sorted(ids("scan", *where, "--bucket", number)) for number in range(3)]
    assert all(one_each)
    assert sorted(chain.from_iterable(one_each)) == list(range(30))
    for number, of_bucket in enumerate(one_each):
        assert sorted(ids("changes", *where, "--bucket", number)) == of_bucket
        follow = ("follow", *where, "--start", "earliest", "--until", "1")
        assert sorted(ids(*follow, "--bucket", number)) == of_bucket
        assert sorted(ids(*follow, "--share", f"{number + 1}/3")) in one_each
        both = ("changes", *where, "--follow", "--start", "earliest", "--end", "1")
        assert sorted(ids(*both, "--share", f"{number + 1}/3")) in one_each
    assert ids("scan", *where, "--bucket", "3") == []
    assert call("table", "changes", *where, "--share", "1/3").code == 2  # without --follow
    assert call("table", "follow", *where, "--share", "4/3").code == 2


def test_an_overwrite_is_printed_as_a_break(capsys: pytest.CaptureFixture[str]) -> None:
    change = tidelake.ChangeBatch(
        5, pa.RecordBatch.from_pylist([], pa.schema([("_VALUE_KIND", pa.int8())])), is_break=True
    )
    print_changes(CommandOutput(is_json=True), [change])
    print_changes(CommandOutput(is_json=False), [change])
    assert capsys.readouterr().out == (
        '{"snapshot":5,"break":true}\n#5 rows were overwritten: a copy must read the table again\n'
    )
