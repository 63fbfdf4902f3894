"""`tidelake ingest …`: a pipeline from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.ingest.tables.moved_rows_model import SourceTable
from tests.support.command_line import Call
from tests.tidelake.shop_log import create_shop_tables, rows_in_key_order, write_shop_log
from tidelake.cli.demo.shop import ORDERS, TABLES
from tidelake.cli.exits import ExitCode


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A pipeline `shop` from the folder `changes` into `lake`, all below tmp_path."""
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"warehouse: {tmp_path}/lake\n"
        f"source: {{type: change-log-folder, path: {tmp_path}/changes, until: end}}\n"
        "tables: [{name: shop.customers}, {name: shop.orders}, {name: shop.stock}]\n"
    )
    return path


def test_a_run_ends_with_its_source_and_prints_a_summary(call: Call, config: Path, tmp_path: Path) -> None:
    shop = write_shop_log(tmp_path / "changes")
    tables = create_shop_tables(tmp_path / "lake", **{"changelog-producer": "input"})
    result = call("ingest", "run", config, "--log-level", "warning")
    assert (result.code, result.out) == (0, "")
    assert result.err.startswith("end of source: ")
    assert "skipped, tombstone: " in result.err
    for table in TABLES:
        assert rows_in_key_order(table, tables[table.name].scan().to_arrow()) == shop.expected_rows(table).to_pylist()


@pytest.mark.parametrize("word", ["latest", "end"])
def test_a_run_ends_by_the_word_of_the_configuration_too(call: Call, config: Path, tmp_path: Path, word: str) -> None:
    write_shop_log(tmp_path / "changes")
    config.write_text(config.read_text().replace(", until: end", ""))
    assert call("ingest", "run", config, "--until", word, "--json").document["ended"] == "end of source"


def test_with_json_a_run_prints_one_document(call: Call, config: Path, tmp_path: Path) -> None:
    write_shop_log(tmp_path / "changes")
    first = call("ingest", "run", config, "--json").document
    assert first["ended"] == "end of source"
    assert first["records"] > 400
    assert first["snapshots"] == {"shop.customers": 1, "shop.orders": 1, "shop.stock": 1}
    assert set(first) == {
        "ended", "records", "source_bytes", "rows", "skipped", "dead_letters", "checkpoints", "snapshots", "seconds",
    }  # fmt: skip
    assert call("ingest", "run", config, "--json").document["records"] == 0


def test_log_lines_are_json_where_there_is_no_terminal(call: Call, config: Path, tmp_path: Path) -> None:
    write_shop_log(tmp_path / "changes")
    result = call("ingest", "run", config, "--json")
    events = [json.loads(line) for line in result.err.splitlines()]
    assert (
        next(event["event"] for event in events if event["logger"] == "tidelake.ingest.pipeline.pipeline")
        == "reading begins"
    )
    assert all({"level", "timestamp", "logger"} <= set(event) for event in events)


def test_a_plan_shows_the_start_of_a_run_and_writes_nothing(call: Call, config: Path, tmp_path: Path) -> None:
    write_shop_log(tmp_path / "changes")
    planned = call("ingest", "plan", config, "--json")
    assert planned.code == 0
    assert planned.document["reads_from"] == {}
    assert [(table["exists"], table["position_from"]) for table in planned.document["tables"]] == [(False, "start")] * 3
    assert not (tmp_path / "lake").exists()
    call("ingest", "run", config)
    before = sorted(tmp_path.rglob("*"))
    planned = call("ingest", "plan", config, "--json")
    assert planned.document["last_checkpoint"] == 1
    assert {table["position_from"] for table in planned.document["tables"]} == {"table"}
    assert planned.document["reads_from"]["shop.public.orders"].keys() == {"0", "1"}
    assert sorted(tmp_path.rglob("*")) == before


def test_a_plan_reports_moved_rows(call: Call, tmp_path: Path) -> None:
    config = tmp_path / "docs.yaml"
    config.write_text(
        f"warehouse: {tmp_path}/lake\n"
        f"source: {{type: change-log-folder, path: {tmp_path}/changes, until: end}}\n"
        "tables: [{name: x.docs}]\n"
    )
    source = SourceTable()
    source.insert(1, "A")
    source.move(1, 2)
    source.hold_back(0)
    ((partition, records),), headers = source.log.records.items(), source.log.headers
    lines = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": offset,
            "timestamp_ms": 1,
            "key": key and key.decode(),
            "value": value and value.decode(),
            "headers": [[name, str(text, "utf-8")] for name, text in headers.get((partition, offset), ()) if text],
        }
        for offset, (key, value) in enumerate(records)
    ]
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert call("ingest", "run", config, "--set", "checkpoint.bytes_max=1").code == 0
    (table,) = call("ingest", "plan", config, "--json").document["tables"]
    moved = table["moved_rows"]
    assert (moved["rows"], moved["dropped"]) == (1, 0)
    assert moved["bytes"] > 0
    assert moved["oldest_age_ms"] >= 0
    assert "x.docs: rows that left their key and have not arrived at another: 1 (" in call("ingest", "plan", config).out


def test_a_plan_is_printed_as_text(call: Call, config: Path, tmp_path: Path) -> None:
    write_shop_log(tmp_path / "changes")
    result = call("ingest", "plan", config)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[0].split() == ["pipeline", "shop"]
    assert "shop.orders      orders      created at its first record   the first record" in result.out


def test_a_plan_shows_the_first_record_for_a_table_marked_by_a_start_without_records(
    call: Call, config: Path, tmp_path: Path
) -> None:
    create_shop_tables(tmp_path / "lake")
    (tmp_path / "changes").mkdir()
    assert call("ingest", "run", config).code == 0
    rows = [line.split(maxsplit=3) for line in call("ingest", "plan", config).out.splitlines()]
    assert [row[3].strip() for row in rows if row and row[0].startswith("shop.") and row[0][-1] != ","] == [
        "the first record"
    ] * 3


def test_a_plan_shows_no_secrets(call: Call, config: Path, tmp_path: Path) -> None:
    write_shop_log(tmp_path / "changes")
    result = call("ingest", "plan", config, "--json", "--set", "warehouse_options.s3.secret-key=hush")
    assert "hush" not in result.out + result.err


def test_a_mistake_in_the_configuration_is_quoted(call: Call, config: Path) -> None:
    config.write_text(config.read_text() + "chekpoint: {interval_ms: 5}\n")
    result = call("ingest", "run", config)
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"error: {config}:4: no setting `chekpoint`\n    chekpoint: {{interval_ms: 5}}\nDid you mean `checkpoint`?\n"
        "More: tidelake help ConfigError\n"
    )
    assert call("ingest", "run", config.with_name("none.yaml")).code == 1


def test_flags_win_over_the_file(call: Call, config: Path, tmp_path: Path) -> None:
    write_shop_log(tmp_path / "elsewhere")
    result = call("ingest", "run", config, "--set", f"source.path={tmp_path}/elsewhere", "--json")
    assert result.document["records"] > 400


def test_an_unproven_position_is_refused(call: Call, config: Path, tmp_path: Path) -> None:
    write_shop_log(tmp_path / "changes")
    table = create_shop_tables(tmp_path / "lake")["orders"]
    with table.writer(commit_user="shop") as writer:  # the pipeline's own name, and no position
        writer.write(pa.Table.from_pylist([{"id": 1}], schema=ORDERS.schema))
        writer.commit(identifier=1)
    for command in ("plan", "run"):
        result = call("ingest", command, config, "--log-level", "error")
        assert (result.code, result.out) == (3, "")
        assert result.err.startswith("refused: shop.orders: ")
        assert "Options:" in result.err


def test_an_unreadable_record_stops_the_pipeline(call: Call, config: Path, tmp_path: Path) -> None:
    write_shop_log(tmp_path / "changes")
    line = {"topic": "shop.public.orders", "partition": 0, "offset": 10**6, "key": '{"id":1}', "value": "{broken"}
    (tmp_path / "changes" / "z.jsonl").write_text(json.dumps(line) + "\n")
    result = call("ingest", "run", config, "--log-level", "error")
    assert (result.code, result.out) == (1, "")
    assert "topic shop.public.orders, partition 0, offset 1000000" in result.err
    assert "Traceback" not in result.err
    kept = call("ingest", "run", config, "--json", "--set", "errors.tolerance=all")
    assert kept.document["dead_letters"] == 1


def test_after_sigterm_the_next_run_reads_the_rest(config: Path, tmp_path: Path) -> None:
    shop = write_shop_log(tmp_path / "changes")
    command = [
        sys.executable,
        "-m",
        "tidelake",
        "ingest",
        "run",
        str(config),
        "--json",
        "--set",
        "source.until=forever",
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stderr is not None
    while json.loads(process.stderr.readline())["event"] != "table created":
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out)["ended"] == "stopped"
    again = subprocess.run([*command[:-2], "--log-level", "error"], capture_output=True, check=True)
    assert json.loads(again.stdout)["ended"] == "end of source"
    found = tidelake.open_catalog(str(tmp_path / "lake")).table("shop.orders").scan(columns=["id"]).to_arrow()
    assert sorted(map(int, found["id"].to_pylist())) == sorted(key for (key,) in shop.rows["orders"])


@pytest.mark.interop
def test_a_process_that_stays_when_another_takes_over_ends_only_after_a_signal(config: Path, tmp_path: Path) -> None:
    """Two supervisors that restart every process would else start each other's again and again."""
    write_shop_log(tmp_path / "changes")
    command = [sys.executable, "-m", "tidelake", "ingest", "run", str(config), "--log-format", "json"]
    command += ["--set", "source.until=forever", "--set", "checkpoint.interval_ms=200"]

    def started(event: str, *flags: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*command, *flags], stderr=subprocess.PIPE)
        await_event(process, event)
        return process

    with ExitStack() as processes:
        older = processes.enter_context(started("checkpoint", "--stay-when-refused", "--set", "metrics.port=0"))
        processes.callback(older.kill)
        newer = processes.enter_context(started("reading begins", "--stay-when-refused"))
        processes.callback(newer.kill)
        write_record(tmp_path / "changes", 1_000_001)  # the older one notices at its next commit
        reason = await_event(older, "the pipeline is refused, and waits for a signal to end")["reason"]
        assert "shop.c" in reason
        url = await_event(older, "monitoring")["url"]
        with urllib.request.urlopen(f"{url}live") as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="503") as unready:
            urllib.request.urlopen(f"{url}ready")
        with unready.value as answer:
            assert [one["code"] for one in json.loads(answer.read())["reasons"]] == ["refused"]
        assert newer.poll() is None
        for process, code in ((older, ExitCode.FENCED), (newer, ExitCode.DONE)):
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate()
            assert process.returncode == code, err
            assert [line for line in err.splitlines() if not json.loads(line)["event"]] == []


def await_event(process: subprocess.Popen[bytes], name: str) -> dict[str, Any]:
    """Returns the next event of this name in the log of a process."""
    assert process.stderr is not None
    for line in process.stderr:
        event: dict[str, Any] = json.loads(line)
        if event["event"] == name:
            return event
    raise AssertionError(f"the process ended without {name!r}")


def write_record(folder: Path, offset: int) -> None:
    """Adds the first customer once more."""
    lines = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    first = next(line for line in lines if line["topic"].endswith(".customers"))
    (folder / "unfinished").write_text(json.dumps({**first, "offset": offset}) + "\n")
    (folder / "unfinished").rename(folder / "z.jsonl")
