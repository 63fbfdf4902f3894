"""`tidelake table alter`: typed changes, and the same command in messages."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelake
from tests.support.command_line import Call
from tests.tidelake.cli.test_arguments import leaves
from tidelake.cli.parser import build_parser, parse
from tidelake.cli.schema_texts import OPTIONS, parse_change
from tidelake.storage.ddl.schema_changes import AddColumn, SetOption, UpdateColumnType
from tidelake.storage.model.messages import add_column, alter_command, path_text, set_option, set_type
from tidelake.storage.model.types import BIGINT, STRING, DataType, parse_type

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("amount", pa.decimal128(10, 2)),
        ("address", pa.struct([("city", pa.string())])),
        ("sizes", pa.map_(pa.string(), pa.int32())),
    ]
)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    catalog.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "2"}, comment="Orders")
    return tmp_path / "lake"


def columns(lake: Path) -> list[str]:
    fields = tidelake.open_catalog(str(lake)).table("shop.orders").context.schema.fields
    return [f"{field.name} {field.type}" for field in fields]


def test_changes_are_made_in_command_line_order(call: Call, lake: Path) -> None:
    result = call(
        "table", "alter", "shop.orders", "-w", lake,
        "--add-column", "note STRING COMMENT 'it''s new' AFTER id",
        "--rename", "note=remark",
        "--add-column", "note:INT",
        "--set-type", "amount=DECIMAL(18,2)",
        "--add-column", "address.zip INT",
        "--set-type", "sizes.value BIGINT",
        "--comment-column", "amount=in euros",
        "--move", "address FIRST",
        "--set", "snapshot.time-retained=2 h",
        "--comment", "All orders",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert columns(lake) == [
        "address ROW<`city` STRING, `zip` INT>",
        "id BIGINT NOT NULL",
        "remark STRING",
        "amount DECIMAL(18, 2)",
        "sizes MAP<STRING NOT NULL, BIGINT>",
        "note INT",
    ]
    schema = tidelake.open_catalog(str(lake)).table("shop.orders").context.schema
    assert {f.name: f.description for f in schema.fields if f.description} == {
        "remark": "it's new",
        "amount": "in euros",
    }
    assert schema.options == {"bucket": "2", "snapshot.time-retained": "2 h"}
    assert (schema.id, schema.comment) == (1, "All orders")
    assert result.out.splitlines() == [
        "~ column address ROW<`city` STRING> → address ROW<`city` STRING, `zip` INT>",
        "+ column remark STRING COMMENT 'it's new'",
        "~ column amount DECIMAL(10, 2) → amount DECIMAL(18, 2) COMMENT 'in euros'",
        "~ column sizes MAP<STRING NOT NULL, INT> → sizes MAP<STRING NOT NULL, BIGINT>",
        "+ column note INT",
        "~ order of columns: address, id, remark, amount, sizes, note",
        "+ option snapshot.time-retained = 2 h",
        "~ comment 'Orders' → 'All orders'",
    ]
    back = call(
        "table", "alter", "shop.orders", "-w", lake, "--unset", "snapshot.time-retained", "--drop", "remark",
        "--comment", "", "--comment-column", "amount=", "--set-default", "note=7",
    )  # fmt: skip
    assert back.code == 0, back.err
    schema = tidelake.open_catalog(str(lake)).table("shop.orders").context.schema
    assert (schema.options, schema.comment, schema.by_name["note"].default) == ({"bucket": "2"}, None, "7")
    assert "remark" not in schema.names


def test_a_dry_run_and_json_show_the_resulting_table(call: Call, lake: Path) -> None:
    command = ("table", "alter", "shop.orders", "-w", lake, "--add-column", "note STRING", "--json")
    planned = call(*command, "--dry-run").document
    assert (planned["altered"], planned["schema_id"], planned["differences"]) == (False, 0, ["+ column note STRING"])
    assert planned["columns"][-1] == {
        "id": 5, "name": "note", "type": "STRING", "description": None, "default": None,
    }  # fmt: skip
    assert len(columns(lake)) == 4
    done = call(*command).document
    assert (done["altered"], done["schema_id"], done["columns"]) == (True, 1, planned["columns"])
    nothing = call("table", "alter", "shop.orders", "-w", lake, "--set", "bucket=2")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == "shop.orders already has these values; nothing was changed\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param([], 2, "no change given", id="nothing"),
        pytest.param(["--add-column", "note"], 2, "write --add-column 'NAME TYPE", id="no type"),
        pytest.param(
            ["--add-column", "note TEXT"], 2, "--add-column 'note TEXT': not a column type", id="no such type"
        ),
        pytest.param(["--set-type", "amount DOUBLE FIRST"], 2, "write --set-type 'COLUMN TYPE'", id="a type and more"),
        pytest.param(["--rename", "amount"], 2, "write --rename COLUMN=NAME", id="no new name"),
        pytest.param(["--move", "amount LAST"], 2, "write --move", id="no such place"),
        pytest.param(["--drop", "amuont"], 1, "no column 'amuont'", id="no such column"),
        pytest.param(["--drop", "id"], 1, "column 'id' can't be dropped", id="a key"),
        pytest.param(["--add-column", "a INT", "--drop", "x"], 1, "no column 'x'", id="one of two"),
    ],
)
def test_impossible_changes_are_refused_with_the_reason(
    call: Call, lake: Path, arguments: list[str], code: int, message: str
) -> None:
    result = call("table", "alter", "shop.orders", "-w", lake, *arguments)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert len(columns(lake)) == 4


def test_every_documented_change_is_parsed() -> None:
    verb = dict(leaves(build_parser()))["table", "alter"]
    offered = {option for action in verb._actions if action.dest == "changes" for option in action.option_strings}
    assert offered == set(OPTIONS)


_NAMES = st.text(min_size=1, max_size=8).filter(lambda name: "\0" not in name)
_TYPES = st.sampled_from([STRING, BIGINT, parse_type("DECIMAL(18,2)"), parse_type("MAP<STRING NOT NULL, ARRAY<INT>>")])


_KEYS = st.from_regex(r"[a-z][a-z0-9 .'-]*[a-z]", fullmatch=True)
_TABLES = st.from_regex(r"\w+\.\w+(\$branch_\w+)?", fullmatch=True)


@given(path=st.lists(_NAMES, min_size=1, max_size=3), data_type=_TYPES, key=_KEYS, table=_TABLES)
def test_changes_in_messages_are_parsed_by_the_command(
    path: list[str], data_type: DataType, key: str, table: str
) -> None:
    command = alter_command(
        table, "/a lake/shop.db/t",
        add_column(path, data_type), set_type(path, data_type), set_option(key, "v = 1"),
    )  # fmt: skip
    invocation = parse(shlex.split(command)[1:])
    assert invocation.options["name"] == table
    assert invocation.options["catalog"].warehouse == "/a lake"
    assert [parse_change(*change) for change in invocation.options["changes"]] == [
        AddColumn(tuple(path), data_type),
        UpdateColumnType(tuple(path), data_type),
        SetOption(key, "v = 1"),
    ]


def test_a_plain_name_needs_no_quotes() -> None:
    assert path_text(["address", "zip_code"]) == "address.zip_code"
    assert path_text("größe") == "größe"
    assert path_text(["a.b", "c d"]) == "`a.b`.`c d`"


def test_a_pipeline_stopped_by_a_new_column_continues_after_the_command_in_its_message(
    call: Call, tmp_path: Path
) -> None:
    def record(offset: int, row: dict[str, object]) -> str:
        source = {"db": "shop", "schema": "public", "table": "orders", "connector": "postgresql"}
        value = {"before": None, "after": row, "op": "c", "ts_ms": 1, "source": source}
        record = {"topic": "orders", "partition": 0, "offset": offset, "timestamp_ms": 1, "headers": []}
        return json.dumps({**record, "key": json.dumps({"id": row["id"]}), "value": json.dumps(value)}) + "\n"

    changes = tmp_path / "changes"
    changes.mkdir()
    (changes / "orders-0.jsonl").write_text(record(0, {"id": 1}) + record(1, {"id": 2, "note text": "new"}))
    config = tmp_path / "shop.yaml"
    config.write_text(
        f"warehouse: {tmp_path}/my lake\n"
        f"source: {{type: change-log-folder, path: {changes}, until: end}}\n"
        "tables: [{name: shop.orders}]\nschema_evolution: {mode: exception}\n"
    )
    stopped = call("ingest", "run", config, "--log-level", "error")
    assert stopped.code == 1
    command = stopped.err.partition("`")[2].partition("STRING'`")[0] + "STRING'"
    assert command == f"tidelake table alter shop.orders -w '{tmp_path}/my lake' --add-column '`note text` STRING'"
    assert call(*shlex.split(command)[1:]).code == 0
    assert call("ingest", "run", config, "--log-level", "error").code == 0
    rows = tidelake.open_catalog(f"{tmp_path}/my lake").table("shop.orders").scan().to_arrow()
    assert sorted(rows.to_pylist(), key=lambda row: row["id"]) == [
        {"id": "1", "note text": None},
        {"id": "2", "note text": "new"},
    ]


def test_refusals_of_a_writer_name_the_command(lake: Path) -> None:
    table = tidelake.open_catalog(str(lake)).table("shop.orders")
    with table.writer() as writer:
        with pytest.raises(tidelake.BadInput, match=rf"alter shop\.orders -w {lake} --add-column 'nr INT'"):
            writer.write(pa.table({"id": [1], "nr": pa.array([1], pa.int32())}))
        with pytest.raises(tidelake.BadInput, match=r"--set-type 'amount DECIMAL\(12, 4\)'"):
            writer.write(pa.table({"id": [1], "amount": pa.array(["1.2345"]).cast(pa.decimal128(12, 4))}))
