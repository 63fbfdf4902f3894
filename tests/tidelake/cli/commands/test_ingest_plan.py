"""`tidelake ingest plan` shows what a run would do: the same errors, and each difference, in few lines."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tests.support.s3_server import S3Server
from tidelake.cli.commands.ingest_plan import _lag_text
from tidelake.doctor.checks import Status
from tidelake.doctor.warehouse import check_freshness
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.configured_source import with_short_limit
from tidelake.ingest.pipeline.freshness_plan import plan_freshness
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.storage.fileio.local import LocalFileIO

TABLES = 40


def write_config(tmp_path: Path, tables: str) -> Path:
    (tmp_path / "in").mkdir(exist_ok=True)
    path = tmp_path / "shop.yaml"
    source = f"{{type: change-log-folder, path: {tmp_path}/in, until: end}}"
    path.write_text(f"warehouse: {tmp_path}/lake\nsource: {source}\ntables: [{tables}]\n")
    return path


def test_plan_and_run_show_the_same_error(call: Call, tmp_path: Path) -> None:
    path = write_config(tmp_path, "{name: shop.t, options: {bukcet: 4}}")
    planned, ran = call("ingest", "plan", path), call("ingest", "run", path)
    assert (planned.code, planned.err) == (ran.code, ran.err)
    assert planned.code == 1
    assert "did you mean 'bucket'?" in planned.err
    assert not (tmp_path / "lake").exists()


def test_plan_says_where_lineage_goes_without_secrets(call: Call, tmp_path: Path) -> None:
    path = write_config(tmp_path, "{name: shop.t}")
    auth = "auth: {type: api_key, apiKey: never-shown}"
    path.write_text(
        f"{path.read_text()}lineage: {{transport: {{type: http, url: 'http://u:p-w@marquez:5000', {auth}}}}}\n"
    )
    planned, as_json = call("ingest", "plan", path), call("ingest", "plan", path, "--json")
    assert "OpenLineage, job shop, by http to http://marquez:5000" in planned.out
    assert "never-shown" not in planned.out + as_json.out
    assert "p-w" not in planned.out


def test_plan_shows_each_difference_and_run_refuses_them(call: Call, tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    catalog.create_table("shop.t", pa.schema([("id", pa.int64())]), primary_key=["id"], options={"bucket": "2"})
    path = write_config(
        tmp_path, "{name: shop.t, options: {bucket: 4, merge-engine: first-row, write-buffer-size: 8 mb}}"
    )
    planned, ran = call("ingest", "plan", path), call("ingest", "run", path)
    assert (planned.code, planned.err) == (ran.code, ran.err)
    assert planned.code == 1
    assert "shop.t: `options: bucket` is '4' in the configuration, but '2' in the table" in planned.err
    assert (
        "shop.t: `options: merge-engine` is 'first-row' in the configuration, but not set in the table"
    ) in planned.err


def test_a_difference_in_tuning_options_is_shown_with_the_command_to_apply_it(call: Call, tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    catalog.create_table("shop.t", pa.schema([("id", pa.int64())]), primary_key=["id"])
    path = write_config(tmp_path, "{name: shop.t, options: {write-buffer-size: 8 mb}}")
    planned = call("ingest", "plan", path, "--json")
    assert planned.code == 0
    [difference] = planned.document["differences"]
    assert difference["setting"] == "options: write-buffer-size"
    assert difference["command"].endswith("--set 'write-buffer-size=8 mb'")
    assert "write-buffer-size" in call("ingest", "plan", path).out
    assert "the table stays as it is" in call("ingest", "run", path).err


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Tables that each store a position of every topic."""
    path = write_config(tmp_path, ", ".join(f"{{name: shop.table_{n}}}" for n in range(TABLES)))
    lines = []
    for n in range(TABLES):
        source = {"db": "shop", "schema": "public", "table": f"table_{n}", "connector": "postgresql"}
        value = json.dumps({"before": None, "after": {"id": 1}, "op": "c", "source": source})
        record = {"topic": f"shop.public.table_{n}", "partition": 0, "offset": 0, "key": None, "value": value}
        lines.append(json.dumps(record))
    (tmp_path / "in" / "0.jsonl").write_text("\n".join(lines) + "\n")
    return path


def test_a_plan_of_many_tables_has_one_line_each_and_details_on_request(call: Call, many: Path) -> None:
    assert call("ingest", "run", many).code == 0
    planned = call("ingest", "plan", many)
    assert planned.code == 0
    assert len(planned.out.splitlines()) < 3 * TABLES + 20
    assert f"{TABLES} topics, {TABLES} partitions (--details)" in " ".join(planned.out.split())
    detailed = call("ingest", "plan", many, "--details")
    assert len(detailed.out.splitlines()) > TABLES * TABLES
    document = call("ingest", "plan", many, "--json").document
    assert all(len(table["next_offsets"]) == TABLES for table in document["tables"])


@pytest.mark.parametrize(
    ("lag", "message"),
    [
        pytest.param(None, "unknown: the source doesn't report where it ends, or has no records yet", id="a folder"),
        pytest.param({"a": {0: 0, 1: 0}}, "nothing to read", id="caught up"),
        pytest.param({"a": {0: 1_000}, "b": {0: 5}}, "at most 1,005 records to read", id="behind"),
    ],
)
def test_a_plan_shows_the_amount_to_read(lag: dict[str, dict[int, int]] | None, message: str) -> None:
    assert _lag_text(lag) == message


def write_steady_records(tmp_path: Path, tables: int, seconds: int, records_per_second: int) -> None:
    lines, offsets = [], dict.fromkeys(range(tables), 0)
    for number in range(tables * seconds * records_per_second):
        table, time_ms = number % tables, 1_700_000_000_000 + number * 1000 // (tables * records_per_second)
        source = {"db": "shop", "schema": "public", "table": f"table_{table}", "connector": "postgresql"}
        after = {"id": number, "note": f"note {number * 7919 % 10_007}"}
        value = json.dumps({"before": None, "after": after, "op": "c", "source": source})
        record = {"topic": f"shop.public.table_{table}", "partition": 0, "offset": offsets[table]}
        lines.append(json.dumps({**record, "timestamp_ms": time_ms, "key": json.dumps({"id": number}), "value": value}))
        offsets[table] += 1
    (tmp_path / "in" / "0.jsonl").write_text("\n".join(lines) + "\n")


def test_a_plan_extrapolates_a_sample_to_an_hour_and_writes_nothing(call: Call, tmp_path: Path) -> None:
    path = write_config(tmp_path, "{name: 'shop.{table}', options: {bucket: 2}}")
    write_steady_records(tmp_path, tables=2, seconds=60, records_per_second=5)
    planned = call("ingest", "plan", path, "--sample", "10000", "--json")
    assert planned.code == 0, planned.err
    estimates = planned.document["estimate"]
    assert [one["name"] for one in estimates] == ["shop.table_0", "shop.table_1"]
    for one in estimates:
        assert (one["rows"], one["buckets"]) == (300, 2)
        assert one["rows_an_hour"] == pytest.approx(5 * 3600, rel=0.02)
        assert one["commits"] == pytest.approx(360, rel=0.02)  # each 10 s
        assert 2 * 360 <= one["files"] <= 2 * 2 * 360
        assert 1 < one["write_amplification"] < 20
    assert "estimate for one hour" in call("ingest", "plan", path, "--sample", "10000").out
    assert not (tmp_path / "lake").exists()


def test_a_plan_for_an_object_store_estimates_requests_and_their_price(
    call: Call, tmp_path: Path, s3_server: S3Server
) -> None:
    path = write_config(tmp_path, "{name: 'shop.{table}', options: {bucket: 1, write-only: true}}")
    options = ", ".join(f"{key}: '{value}'" for key, value in s3_server.options.items())
    text = path.read_text().replace(f"{tmp_path}/lake", f"s3://{s3_server.new_bucket()}/lake")
    path.write_text(f"{text}warehouse_options: {{{options}}}\nrequest_prices: {{put_per_million: 10, currency: EUR}}\n")
    write_steady_records(tmp_path, tables=2, seconds=60, records_per_second=5)
    planned = call("ingest", "plan", path, "--sample", "10000", "--json")
    assert planned.code == 0, planned.err
    for one in planned.document["estimate"]:
        # A data file, a manifest, two lists, the snapshot and the hint; registered as a consumer each minute.
        assert one["puts"] == pytest.approx(6 * one["commits"] + 60, rel=0.01)
        assert one["gets"] == pytest.approx(3 * one["commits"] + 60, rel=0.01)
        assert one["price"] == pytest.approx((one["puts"] * 10 + one["gets"] * 0.4) / 1e6)
    shown = call("ingest", "plan", path, "--sample", "10000").out
    assert "EUR" in shown
    assert "these 2 together" in shown


def test_a_plan_for_a_local_disk_has_no_price(call: Call, tmp_path: Path) -> None:
    path = write_config(tmp_path, "{name: 'shop.{table}', options: {bucket: 1}}")
    write_steady_records(tmp_path, tables=1, seconds=60, records_per_second=5)
    [one] = call("ingest", "plan", path, "--sample", "10000", "--json").document["estimate"]
    assert (one["puts"], one["gets"], one["price"]) == (None, None, None)
    assert "requests" not in call("ingest", "plan", path, "--sample", "10000").out


@pytest.mark.parametrize("name", ["shop.{table}", "shop.table_0"])
def test_a_sample_includes_tables_with_computed_key_columns(call: Call, tmp_path: Path, name: str) -> None:
    """Of a table that would be made, and of the same once it is there."""
    derived = "computed_columns: {part: 'substring(id, 0, 1)'}, primary_key: [id, part], partition_by: [part]"
    path = write_config(tmp_path, f"{{name: '{name}', {derived}, options: {{bucket: 1}}}}")
    write_steady_records(tmp_path, tables=1, seconds=60, records_per_second=5)
    planned = call("ingest", "plan", path, "--sample", "10000", "--json").document["estimate"]
    assert [(one["name"], one["rows"]) for one in planned] == [("shop.table_0", 300)]
    assert call("ingest", "run", path).code == 0
    there = [{**one, "exists": True} for one in planned]
    assert call("ingest", "plan", path, "--sample", "10000", "--json").document["estimate"] == there


def write_changes(tmp_path: Path, *rows: tuple[str, dict[str, object] | str]) -> None:
    """Each change is a source table with a row, or with a text in place of a record."""
    lines = []
    for offset, (table, row) in enumerate(rows):
        source = {"db": "shop", "schema": "public", "table": table, "connector": "postgresql"}
        value = row if isinstance(row, str) else json.dumps({"before": None, "after": row, "op": "c", "source": source})
        record = {"topic": "shop", "partition": 0, "offset": offset, "timestamp_ms": 1_700_000_000_000 + offset}
        key = {"id": 1} if isinstance(row, str) else {"id": row["id"]}
        lines.append(json.dumps({**record, "key": json.dumps(key), "value": value}))
    (tmp_path / "in" / "0.jsonl").write_text("\n".join(lines) + "\n")


def test_a_sample_shows_the_columns_of_tables_to_be_created_or_altered(call: Call, tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    catalog.create_table("shop.old", pa.schema([("id", pa.int64()), ("n", pa.int32())]), primary_key=["id"])
    entries = "{name: shop.old}, {name: 'shop.{table}', source_tables: {including_tables: 'new|old'}}"
    path = write_config(tmp_path, entries)
    write_changes(
        tmp_path,
        ("old", {"id": 1, "n": 1}),
        ("old", {"id": 2, "n": 2**40, "note": "x"}),
        ("old", {"id": 3, "n": 3}),
        ("new", {"id": 1, "city": "Lyon"}),
        ("other", {"id": 1}),
    )
    document = call("ingest", "plan", path, "--sample", "100", "--json").document
    new, old = document["estimate"]
    assert (new["name"], new["exists"], new["primary_key"]) == ("shop.new", False, ["id"])
    assert new["columns"] == {"id": "STRING NOT NULL", "city": "STRING"}
    assert (old["name"], old["exists"], old["rows"]) == ("shop.old", True, 3)
    assert old["columns"] == {"id": "BIGINT NOT NULL", "n": "BIGINT", "note": "STRING"}
    assert sorted(old["changes"]) == ["add note STRING", "n from INT to BIGINT"]
    assert (document["obstacles"], document["passed_over"]) == ([], ["shop.public.other"])
    actual = call("ingest", "plan", path, "--sample", "100").out
    assert "shop.new would be created with id STRING NOT NULL, city STRING · primary key id" in actual
    assert "shop.old changes: " in actual
    assert "no table matches records of shop.public.other; they are skipped" in actual
    assert [field.name for field in catalog.table("shop.old").context.schema.fields] == ["id", "n"]  # as it was
    assert call("ingest", "run", path).code == 0
    ran = {name: catalog.table(name).context.schema.fields for name in ("shop.old", "shop.new")}
    columns = {name: {one.name: str(one.type) for one in fields} for name, fields in ran.items()}
    assert columns == {"shop.old": old["columns"], "shop.new": new["columns"]}


@pytest.mark.parametrize(
    ("entry", "rows", "actual"),
    [
        pytest.param(
            "{name: shop.t}",
            [("t", "{"), ("t", {"id": 1}), ("t", {"id": 2, "n": "many"})],
            [("shop", "BAD_RECORD", 1, "offset 0: not a JSON object"), ("shop.t", "BAD_RECORD", 1, "column n")],
            id="records that can't be decoded",
        ),
        pytest.param(
            "{name: shop.t, schema_evolution: {mode: exception}}",
            [("t", {"id": 1, "note": "x"})],
            [
                ("shop.t", "SCHEMA_CHANGE", 0, "add note STRING: `schema_evolution` is exception"),
                ("shop.t", "UNKNOWN_COLUMN", 1, "offset 0"),
            ],
            id="a change that stops it",
        ),
        pytest.param(
            "{name: shop.t}",
            [("t", {"id": 2**70})],
            [("shop.t", "NARROW_COLUMN", 1, "offset 0"), ("shop.t", "SCHEMA_CHANGE", 0, "changing values")],
            id="a change that can't be made",
        ),
        pytest.param(
            "{name: 'shop.{table}'}",
            [("a/b", {"id": 1})],
            [("shop.public.a/b", "NO_TABLE", 0, "a/b")],
            id="a name that no table can have",
        ),
        pytest.param(
            "{name: shop.u, match: u, primary_key: [code]}",
            [("u", {"id": 1})],
            [("shop.u", "NO_TABLE", 0, "code")],
            id="a table that can't be made",
        ),
    ],
)
def test_a_sample_shows_the_records_that_would_stop_a_run(
    call: Call,
    tmp_path: Path,
    entry: str,
    rows: list[tuple[str, dict[str, object] | str]],
    actual: list[tuple[str, str, int, str]],
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    catalog.create_table("shop.t", pa.schema([("id", pa.int64()), ("n", pa.int32())]), primary_key=["id"])
    path = write_config(tmp_path, entry)
    write_changes(tmp_path, *rows)
    planned = call("ingest", "plan", path, "--sample", "100", "--json")
    assert planned.code == 0, planned.err
    found = planned.document["obstacles"]
    assert [(one["table"], one["code"], one["records"]) for one in found] == [each[:3] for each in actual]
    for one, (*_, example) in zip(found, actual, strict=True):
        assert example in one["example"]
    shown = call("ingest", "plan", path, "--sample", "100").out
    assert all(one["code"] in shown for one in found)
    assert call("ingest", "run", path).code == 1  # as the plan says


def test_a_sample_without_a_rate_is_marked(call: Call, tmp_path: Path) -> None:
    path = write_config(tmp_path, "{name: shop.table_0}")
    write_steady_records(tmp_path, tables=1, seconds=1, records_per_second=1)
    assert call("ingest", "plan", path, "--sample", "10", "--json").document["estimate"][0]["commits"] is None
    assert "unknown" in call("ingest", "plan", path, "--sample", "10").out


def test_tables_without_an_entry_are_named_while_they_exist(call: Call, many: Path, tmp_path: Path) -> None:
    assert call("ingest", "run", many).code == 0
    path = write_config(tmp_path, "{name: 'shop.new_{table}'}, {name: shop.table_0}")
    left = sorted(f"shop.table_{n}" for n in range(1, TABLES))
    assert call("ingest", "plan", path, "--json").document["left_behind"] == left
    actual = call("ingest", "plan", path).out
    assert "shop.table_7: the pipeline wrote to it before, but no entry names it now" in actual.replace("\n", " ")
    ran = call("ingest", "run", path)
    assert ran.code == 0
    assert "no entry names any more" in ran.err
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.drop_table("shop.table_7")
    left.remove("shop.table_7")
    assert call("ingest", "plan", path, "--json").document["left_behind"] == left


@pytest.mark.parametrize(
    ("settings", "meaning"),
    [
        ("format: aws-dms-json", "are NULL (`omitted`, by default of aws-dms-json)"),
        ("format: canal-json", "are unchanged (`omitted`, by default of canal-json)"),
        ("format: canal-json\nformat_options: {omitted: 'null'}", "are NULL (`omitted` in `format_options`)"),
        ("format: json", ""),
    ],
    ids=["the default of DMS", "the default of Canal", "configured", "whole rows"],
)
def test_plan_says_what_columns_are_that_an_update_leaves_out(
    call: Call, tmp_path: Path, settings: str, meaning: str
) -> None:
    path = write_config(tmp_path, "{name: shop.t, primary_key: [id]}")
    path.write_text(f"{path.read_text()}{settings}\n")
    assert meaning in call("ingest", "plan", path, "--json").document["omitted"]
    shown = " ".join(call("ingest", "plan", path).out.split())
    assert ("columns that an update leaves out" in shown) == bool(meaning)


def test_plan_names_the_units_that_are_assumed_for_records_without_a_schema(call: Call, tmp_path: Path) -> None:
    columns = "columns: {id: INT, placed: TIMESTAMP, at: TIME, name: STRING}, source_types: {at: time us}"
    path = write_config(tmp_path, f"{{name: shop.t, primary_key: [id], {columns}}}")
    planned = call("ingest", "plan", path, "--json")
    (table,) = planned.document["tables"]
    assert list(table["assumed_without_schema"]) == ["placed"]
    assert table["assumed_without_schema"]["placed"].startswith("numbers count us since 1970")
    shown = " ".join(call("ingest", "plan", path).out.split())
    assert "shop.t, records without a schema: placed: numbers count us since 1970" in shown
    assert "'timestamp ms'" in shown


@pytest.mark.parametrize(
    "settings",
    [
        "deletes: soft, options: {bucket: 1}",
        "mode: scd2, options: {bucket: 1}",
        "mode: append",
        "metadata_columns: [op_ts]",
        "computed_columns: {day: 'cast(2026-05-01, DATE)'}",
    ],
)
def test_plan_assumes_nothing_about_columns_that_the_pipeline_makes(call: Call, tmp_path: Path, settings: str) -> None:
    path = write_config(tmp_path, f"{{name: shop.t, columns: {{placed: TIMESTAMP(3)}}, {settings}}}")
    value = {"source": {"connector": "mysql", "db": "d", "table": "t"}, "op": "c", "after": {"id": 1, "placed": 1}}
    record = {"topic": "t", "partition": 0, "offset": 0, "timestamp_ms": 1, "headers": []}
    keyed = {**record, "key": json.dumps({"id": 1}), "value": json.dumps(value)}
    (tmp_path / "in" / "1.jsonl").write_text(json.dumps(keyed) + "\n")
    assert call("ingest", "run", path).code == 0
    (table,) = call("ingest", "plan", path, "--json").document["tables"]
    assert list(table["assumed_without_schema"]) == ["placed"]


@pytest.mark.parametrize(("configured_ms", "limit_ms"), [(120_000, 5_000), (5_001, 5_000), (300, 300)])
def test_a_plan_waits_only_seconds_for_a_broker(configured_ms: int, limit_ms: int) -> None:
    """A run waits as long as configured; somebody who asks for a plan waits for the answer."""
    source = f"{{type: kafka, bootstrap_servers: 'localhost:9', topics: [a], unreachable_after_ms: {configured_ms}}}"
    config = parse_config(
        f"pipeline: p\nwarehouse: /lake\nsource: {source}\ntables: [{{name: d.t}}]\n", "p.yaml", (), {}
    )
    limited = with_short_limit(config).source
    assert isinstance(limited, KafkaSettings)
    assert limited.unreachable_after_ms == limit_ms


def test_a_plan_without_a_broker_says_so(call: Call, tmp_path: Path) -> None:
    config = tmp_path / "p.yaml"
    source = "{type: kafka, bootstrap_servers: 'localhost:9', topics: [a], unreachable_after_ms: 100}"
    config.write_text(f"warehouse: {tmp_path}/lake\nsource: {source}\ntables: [{{name: d.t}}]\n")
    result = call("ingest", "plan", config)
    assert (result.code, result.out) == (1, "")
    assert "error: Kafka at localhost:9: could not connect" in result.err


def test_plan_and_show_name_the_columns_that_late_rows_change(call: Call, tmp_path: Path) -> None:
    path = write_config(tmp_path, "{name: shop.t, primary_key: [id]}")
    warehouse = str(tmp_path / "lake")
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("shop", if_not_exists=True)
    columns = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("first", pa.string())])
    options = {
        "merge-engine": "aggregation",
        "sequence.field": "at",
        "fields.first.aggregate-function": "first_value",
    }
    catalog.create_table("shop.t", columns, primary_key=["id"], options=options)
    note = "first depends on when rows were merged if rows don't arrive in the order of at, as in Java"
    assert call("ingest", "plan", path, "--json").document["tables"][0]["late_rows"] == note
    assert f"shop.t, late rows: {note}" in " ".join(call("ingest", "plan", path).out.split())
    assert call("table", "show", "shop.t", "-w", warehouse, "--json").document["late_rows"] == note
    assert f"late rows {note}" in " ".join(call("table", "show", "shop.t", "-w", warehouse).out.split())


def test_a_plan_says_which_tables_take_a_snapshot_sorted(call: Call, tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    catalog.create_table("shop.empty", columns, primary_key=["id"])
    catalog.create_table("shop.full", columns, primary_key=["id"]).append(pa.table({"id": [1], "n": [1]}))
    catalog.create_table("shop.log", columns)
    tables = [
        "name: shop.new",
        "name: shop.empty",
        "name: shop.full",
        "name: shop.log",
        "name: shop.some, filter: n > 1",
    ]
    off = "name: shop.off, bootstrap: {enabled: false}"
    path = write_config(tmp_path, ", ".join(f"{{{table}}}" for table in (*tables, off)))
    path.write_text(f"{path.read_text()}bootstrap: {{enabled: true}}\n")
    found = {one["name"]: one["bootstrap"] for one in call("ingest", "plan", path, "--json").document["tables"]}
    sorted_ = "the source's snapshot goes to the highest level, if the first records are of one"
    assert (found["shop.new"], found["shop.empty"], found["shop.off"]) == (sorted_, sorted_, None)
    assert found["shop.full"] == "not bootstrapped: the table has rows"
    assert "no primary key" in found["shop.log"]
    assert "`filter`" in found["shop.some"]
    assert "shop.full: not bootstrapped: the table has rows" in call("ingest", "plan", path).out


def test_a_plan_names_the_table_whose_target_of_freshness_rules(call: Call, tmp_path: Path) -> None:
    path = write_config(tmp_path, "{name: shop.a, freshness: {target_ms: 5000}}, {name: shop.b}")
    path.write_text(path.read_text() + "freshness: {target_ms: 60000}\n")
    planned = call("ingest", "plan", path, "--json").document["freshness"]
    assert (planned["table"], planned["target_ms"], planned["first_interval_ms"]) == ("shop.a", 5_000, 3_750)
    assert (planned["targets"], planned["problem"]) == ({"shop.a": 5_000, "shop.b": 60_000}, None)
    shown = " ".join(call("ingest", "plan", path).out.split())
    assert "at first every 3.75 s, then as the freshness needs, or 512 MiB of records" in shown
    assert "a record is visible after 5 s at most; shop.a rules, as all tables share the checkpoints" in shown
    without = write_config(tmp_path, "{name: shop.a}")
    assert call("ingest", "plan", without, "--json").document["freshness"] is None


class SlowStore(LocalFileIO):
    """Each request takes its time."""

    def exists(self, path: str) -> bool:
        time.sleep(0.02)
        return super().exists(path)


def test_a_target_that_the_store_does_not_allow_is_named(tmp_path: Path) -> None:
    config = parse_config(
        write_config(tmp_path, "{name: shop.a, freshness: {target_ms: 200}}").read_text(),
        "shop.yaml",
        pipeline="shop",
    )
    planned = plan_freshness(config, SlowStore())
    assert planned is not None
    assert planned.least_ms is not None
    assert planned.least_ms >= 4 * 20 * 3 / 0.9
    assert planned.problem is not None
    assert planned.problem.startswith("`freshness.target_ms` of shop.a is 200, and this store allows ")
    (found,) = check_freshness(config, SlowStore())
    assert found.status is Status.WARNING
    assert f"Set `freshness.target_ms` to {planned.least_ms // 1000 or ''}" in found.remedy
    (fine,) = check_freshness(config)
    assert fine.status is Status.OK


def test_a_price_limit_that_will_bind_is_named_by_the_estimate(call: Call, tmp_path: Path, s3_server: S3Server) -> None:
    path = write_config(tmp_path, "{name: 'shop.{table}', options: {bucket: 1, write-only: true}}")
    options = ", ".join(f"{key}: '{value}'" for key, value in s3_server.options.items())
    text = path.read_text().replace(f"{tmp_path}/lake", f"s3://{s3_server.new_bucket()}/lake")
    path.write_text(
        f"{text}warehouse_options: {{{options}}}\nfreshness: {{target_ms: 4000, price_an_hour_max: 0.01}}\n"
    )
    write_steady_records(tmp_path, tables=1, seconds=60, records_per_second=5)
    planned = call("ingest", "plan", path, "--sample", "10000", "--json").document
    (one,) = planned["estimate"]
    assert one["commits"] == pytest.approx(1_200, rel=0.05)  # every three quarters of the target
    assert f"would cost {one['price']:.4f} USD" in planned["freshness"]["price_problem"]
    assert "the target of 4 s is missed" in " ".join(call("ingest", "plan", path, "--sample", "10000").out.split())
    enough = call("ingest", "plan", path, "--sample", "10000", "--json", "--set", "freshness.price_an_hour_max=1")
    assert enough.document["freshness"]["price_problem"] is None
