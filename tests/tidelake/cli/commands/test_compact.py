"""`tidelake table compact`, and the levels and compactions in `table show`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from rich.cells import cell_len

import tidelake
from tests.compaction.lakes import commits, content, file_counts, new_table, orphans, write
from tests.support.command_line import Call
from tidelake.compaction.cancellation import CancellationToken
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.report import CompactionReport
from tidelake.compaction.table_compaction import compact
from tidelake.storage.model.table import TableContext

PATIENCE_S = 60  # only what hangs takes so long


def without_sizes(text: str) -> str:
    """Bytes differ between releases of libraries; so do ages between runs."""
    text = re.sub(r"\d[\d.]* [KM]i?B", "SIZE", text)
    return "\n".join(line.rstrip() for line in re.sub(r"\d+ (s|min) old", "AGE", text).splitlines())


def test_the_result_is_printed_bucket_by_bucket(call: Call, tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True, partitioned=True)
    write(table, *commits(6, partitions="ab"))
    result = call("table", "compact", "db.t", "-w", tmp_path, "--where", "p = 'b'")
    assert (result.code, result.err) == (0, "")
    header, _, row, summary = without_sizes(result.out).splitlines()
    assert header.split() == ["partition", "bucket", "files", "size", "why"]
    assert row.split() == ["p=b", "0", "6", "→", "1", "SIZE", "→", "SIZE", "size", "amplification"]
    assert summary == "db.t: 6 files became 1, SIZE became SIZE · snapshot 7 · size amplification"
    assert file_counts(table.context) == {("p=a", 0, 0): 6, ("p=b", 0, 5): 1}


def test_with_json_one_document_is_printed(call: Call, tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True)
    write(table, *commits(6))
    reported = call("table", "compact", "db.t", "-w", tmp_path, "--full", "--json").document
    (bucket,) = reported.pop("buckets")
    assert reported == {"table": "db.t", "snapshots": [7], "lost": 0, "stopped": False}
    sizes = {name: bucket.pop(name) for name in ("bytes_before", "bytes_after")}
    assert 0 < sizes["bytes_after"] < sizes["bytes_before"]
    assert bucket == {
        "partition": {},
        "directory": "",
        "bucket": 0,
        "reason": "full compaction",
        "files_before": 6,
        "files_after": 1,
        "files_written": 1,
    }


def test_partitions_are_printed_as_in_table_show(call: Call, tmp_path: Path) -> None:
    """Not as their directories are: a date is no number there, a null no default name, and nothing is escaped."""
    columns = pa.schema([("day", pa.date32()), ("s", pa.string()), ("k", pa.int64())])
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", columns, partition_by=["day", "s"], options={"write-only": "true"})
    for k in range(2):
        with table.writer() as writer:
            days, texts = [date(2026, 5, 1), None], ["日本 é/=:", "\x1b[31m"]
            writer.write(pa.table({"day": days, "s": texts, "k": [k, k]}, columns))
            writer.commit()
    before = call("table", "show", "db.t", "-w", tmp_path)
    reported = call("table", "compact", "db.t", "-w", tmp_path, "--where", "day = '2026-05-01'", "--full", "--json")
    (bucket,) = reported.document["buckets"]
    assert bucket["partition"] == {"day": "2026-05-01", "s": "日本 é/=:"}
    assert bucket["directory"] == "day=20574/s=日本 é%2F%3D%3A"
    result = call("table", "compact", "db.t", "-w", tmp_path, "--full")
    for shown in (result.out, before.out):
        assert r"day=null s=\x1b[31m" in shown
    assert "day=2026-05-01 s=日本 é/=:" in before.out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param([], "nothing to compact; --full compacts everything", id="minor"),
        pytest.param(["--full"], "everything is compacted already", id="full"),
        pytest.param(["--where", "p = 'z'"], "nothing to compact in these partitions", id="no such partition"),
    ],
)
def test_without_work_the_reason_is_printed(call: Call, tmp_path: Path, arguments: list[str], why: str) -> None:
    table = new_table(tmp_path, keyed=True, partitioned=True)
    write(table, *commits(3))
    table.compact(full=True)
    result = call("table", "compact", "db.t", "-w", tmp_path, *arguments)
    assert (result.code, result.out, result.err) == (0, "", f"db.t: nothing was done: {why}\n")


@dataclass(frozen=True)
class Asked:
    """To stop, before db.a is compacted or after it. tables: of the database. code, says: how the command ends."""

    id: str
    tables: Sequence[str]
    is_before_work: bool
    code: int
    says: Sequence[str]


NOTHING_DONE: Final = "db.a: nothing was done: the job was cancelled before"
STOPPED: Final = "stopped before all compactions were done; those listed above are committed"


@pytest.mark.parametrize(
    "case",
    [
        Asked("before the only one", ["a"], True, 130, [NOTHING_DONE, STOPPED]),
        Asked("after the only one", ["a"], False, 0, []),
        Asked("before the first", ["a", "b"], True, 130, [NOTHING_DONE, STOPPED]),
        Asked("between two", ["a", "b"], False, 130, [STOPPED]),
    ],
    ids=lambda case: case.id,
)
def test_stopped_is_reported_only_if_work_is_left(
    case: Asked, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in case.tables:
        write(new_table(tmp_path, name=f"db.{name}", keyed=True), *commits(6))

    def asked_meanwhile(
        context: TableContext, request: CompactionRequest, *, cancellation: CancellationToken
    ) -> CompactionReport:
        if case.is_before_work:
            cancellation.cancel()
        try:
            return compact(context, request, cancellation=cancellation)
        finally:
            cancellation.cancel()

    monkeypatch.setattr("tidelake.compaction.table_compaction.compact", asked_meanwhile)
    which = ["db.a"] if len(case.tables) == 1 else ["--database", "db"]
    result = call("table", "compact", *which, "-w", tmp_path, "--full")
    assert (result.code, result.err.splitlines()) == (case.code, case.says)
    assert ("6 files became 1" in result.out) is not case.is_before_work


def test_a_database_is_compacted_except_for_a_failing_table(call: Call, tmp_path: Path) -> None:
    new_table(tmp_path, name="db.empty")
    refused = new_table(tmp_path, name="db.refused", keyed=True)
    good = new_table(tmp_path, name="db.good", keyed=True)
    write(refused, *commits(1))
    write(good, *commits(6))
    schema = refused.context.schema  # Java sets what is refused here
    options = {**schema.options, "commit.callbacks": "org.example.Callback"}
    refused.context.schemas.publish(replace(schema, id=1, options=options))
    result = call("table", "compact", "--database", "db", "-w", tmp_path, "--json")
    assert result.code == 0, "what can't be done here is no failure of a nightly job"
    reported = json.loads(result.out)
    assert [(one["table"], one["snapshots"]) for one in reported] == [
        ("db.empty", []),
        ("db.good", [7]),
        ("db.refused", []),
    ]
    assert "commit.callbacks = org.example.Callback: cannot compact" in reported[2]["passed_over"]
    people = call("table", "compact", "--database", "db", "-w", tmp_path)
    assert "db.empty: nothing was done: it has no snapshot yet\n" in people.err
    assert "skipped: db.refused: option commit.callbacks = org.example.Callback: cannot compact" in people.err
    assert "Unset it" in people.err
    assert people.code == 0
    assert call("table", "compact", "db.refused", "-w", tmp_path).code == 1, "who names it hears of it"
    write(good, *commits(1))
    for file in Path(good.location, "bucket-0").iterdir():
        file.unlink()
    assert call("table", "compact", "--database", "db", "--full", "-w", tmp_path).code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param([], 2, "one of the arguments NAME --database is required", id="no table"),
        pytest.param(["db.t", "--database", "db"], 2, "not allowed with argument", id="a table and a database"),
        pytest.param(
            ["db.t", "--watch", "--full"], 2, "usage: --watch compacts only what is due", id="watching in full"
        ),
        pytest.param(["db.t", "--watch", "--order-by", "k"], 2, "usage: --watch compacts", id="watching and sorting"),
        pytest.param(["db.t", "--strategy", "zorder"], 2, "name the columns with --order-by", id="no columns"),
        pytest.param(["db.t", "--order-by", "k", "--strategy", "spiral"], 2, "invalid choice", id="no such strategy"),
        pytest.param(["db.t", "--order-by", "nr"], 1, "no column 'nr'", id="no such column"),
        pytest.param(["db.t", "--where", "k = 1"], 1, "db.t is not partitioned", id="a condition on rows"),
        pytest.param(["db.t", "--where", "p ="], 1, "condition: ", id="half a condition"),
        pytest.param(["db.nothing"], 1, "db.nothing", id="no such table"),
        pytest.param(["--database", "nothing"], 1, "nothing", id="no such database"),
    ],
)
def test_impossible_compactions_are_refused(
    call: Call, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    new_table(tmp_path)
    result = call("table", "compact", "-w", tmp_path, *arguments)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert "Traceback" not in result.err


def test_rows_can_be_sorted(call: Call, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write(table, *commits(3))
    rows = content(table)
    result = call("table", "compact", "db.t", "-w", tmp_path, "--order-by", "v,k", "--strategy", "hilbert")
    assert "3 → 1" in result.out
    assert "hilbert by v, k" in result.out
    assert content(table) == rows


def watching(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tidelake", "table", "compact", *map(str, arguments), "--watch"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_watching_prints_a_line_per_round_until_stopped(tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True, options={"continuous.discovery-interval": "20 ms"})
    write(table, *commits(6))
    program = watching("db.t", "-w", tmp_path)
    assert program.stdout is not None
    first = program.stdout.readline()
    assert without_sizes(first) == "db.t: 6 files became 1, SIZE became SIZE · snapshot 7 · size amplification"
    with table.writer(commit_user="etl") as writer:
        for n in range(1, 5):
            writer.write(pa.table({"k": [n], "v": ["new"], "p": ["a"]}))
            writer.commit(n)
    assert program.stdout.readline().startswith("db.t: 5 files became 1,")
    os.kill(program.pid, signal.SIGTERM)
    out, err = program.communicate(timeout=PATIENCE_S)
    assert (program.returncode, out, err) == (0, "", "watching db.t; Ctrl-C ends it\n")
    assert (4, "new", "a") in content(table)
    assert orphans(table.context) == set()


# ---------------------------------------------------------------- table show


def test_levels_are_drawn_newest_run_first(call: Call, tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True, partitioned=True)
    write(table, *commits(2, partitions="ab"))
    table.compact(full=True)
    write(table, *commits(2, partitions="b"))
    shown = without_sizes(call("table", "show", "db.t", "-w", tmp_path).out).replace("█", "")
    _, _, trees = shown.partition("\n\np=b bucket 0 · ")
    tree, _, history = trees.partition("\n\n")
    title, *runs = tree.splitlines()
    assert re.fullmatch(r"3 sorted runs · SIZE · space ×\d\.\d\d", title)
    assert [" ".join(run.split()) for run in runs] == [
        "L0 1 file 4 rows SIZE [3 … 6] AGE",
        "L0 1 file 4 rows SIZE [0 … 3] AGE",
        "L5 1 file 7 rows SIZE [0 … 6] AGE",
    ]
    facts, puts, header, _, last = history.splitlines()
    assert re.fullmatch(
        r"1 compaction in the last 5 snapshots · write amplification 1\.\d\d · space .* \d\.\d\d", facts
    )
    assert re.fullmatch(r"files put for each commit: \d\.\d of data, \d\.\d of metadata", puts)
    assert header.split() == ["snapshot", "committed", "(UTC)", "buckets", "files", "size", "why"]
    assert last.split()[0] == "3"
    assert "4 → 2" in last
    assert "full compaction (2)" in last


def test_levels_are_printed_as_json(call: Call, tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True, partitioned=True)
    write(table, *commits(2, partitions="a"))
    table.compact(full=True)
    write(table, [(7, "x", "a")])
    picture = call("table", "show", "db.t", "-w", tmp_path, "--json").document
    (tree,) = picture["trees"]
    assert (tree["partition"], tree["bucket"]) == ({"p": "a"}, 0)
    newest, oldest = tree["runs"]
    assert (newest["level"], newest["rows"], newest["min_key"], newest["max_key"]) == (0, 1, {"k": 7}, {"k": 7})
    assert (oldest["level"], oldest["files"], oldest["min_key"], oldest["max_key"]) == (5, 1, {"k": 0}, {"k": 6})
    assert 0 <= newest["youngest_ms"] <= oldest["oldest_ms"]
    assert picture["space_amplification"] > 1
    history = picture["history"]
    assert (history["snapshots"], len(history["compactions"])) == (4, 1)
    assert history["compactions"][0]["reason"] == "full compaction"
    assert 1 < history["write_amplification"] < 3


def test_only_buckets_with_most_runs_are_drawn(call: Call, tmp_path: Path) -> None:
    table = new_table(tmp_path, keyed=True, options={"bucket": "30"})
    for n in range(3):
        write(table, [(k, f"{n}", "a") for k in range(100 * n, 100 * n + 100)])
    write(table, *[[(7, f"{n}", "a")] for n in range(30)])
    shown = call("table", "show", "db.t", "-w", tmp_path).out
    assert len(re.findall(r"^bucket \d+ · \d+ sorted runs", shown, re.MULTILINE)) == 3
    assert "33 sorted runs" in shown
    assert "…   21 more" in re.sub(r"^… +", "…   ", shown, flags=re.MULTILINE)
    assert "+ 27 more buckets with several sorted runs; --all-buckets shows them" in shown
    everything = call("table", "show", "db.t", "-w", tmp_path, "--all-buckets").out
    assert len(re.findall(r"^bucket \d+ · ", everything, re.MULTILINE)) == 30
    trees = call("table", "show", "db.t", "-w", tmp_path, "--json").document["trees"]
    assert len(re.findall(r"^L0 +█", everything, re.MULTILINE)) == sum(len(tree["runs"]) for tree in trees)


UUIDS: Final = ("00002f01-66e4-5ab8-8d1a-1562a4ddd418", "fffcb2ba-2995-51af-8492-3b14a5bcce7c")


@dataclass(frozen=True)
class Drawn:
    """What a run of 2,000 rows says of its keys on a terminal of so many columns: a pattern. fits: all on one line."""

    id: str
    keys: tuple[str, str]
    columns: int
    says: str
    fits: bool = True


@pytest.mark.parametrize(
    "case",
    [
        Drawn("phone", UUIDS, 36, "", fits=False),
        Drawn("narrow", UUIDS, 60, r"\[0\w+… … f\w+…\]"),
        Drawn("usual", UUIDS, 80, r"\[00002f01-.+… … fffcb2ba-.+…\]"),
        Drawn("wide", UUIDS, 200, rf"\[{UUIDS[0]} … {UUIDS[1]}\]"),
        Drawn("short keys", ("a", "b"), 60, r"\[a … b\]"),
        Drawn("one short key", ("a", UUIDS[1]), 80, r"\[a … fffcb2ba-2995-51af-.+…\]"),
        Drawn(
            "wide characters", ("日本語日本語日本語", "語本日語本日語本日"), 80, r"\[日本語日本.+… … 語本日語本.+…\]"
        ),
        Drawn(
            "what moves a cursor",
            ("a\n\x1b[31m", "b\x1b]0;owned\x07"),
            120,
            re.escape(r"[a\n\x1b[31m … b\x1b]0;owned\x07]"),
        ),
    ],
    ids=lambda case: case.id,
)
def test_keys_are_shortened_before_the_numbers_of_a_run(
    case: Drawn, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true"}
    table = catalog.create_table("db.t", pa.schema([("id", pa.string())]), primary_key=["id"], options=options)
    with table.writer() as writer:
        writer.write(pa.table({"id": case.keys}))
        writer.commit()
        writer.write(pa.table({"id": [*case.keys, *(f"{case.keys[0]}{number}" for number in range(1_998))]}))
        writer.commit()
    monkeypatch.setenv("COLUMNS", str(case.columns))
    shown = call("table", "show", "db.t", "-w", tmp_path).out
    assert "\x1b" not in shown
    tree = shown.partition("sorted runs")[2].partition("\n\n")[0].splitlines()
    assert max(map(cell_len, tree)) <= case.columns
    run = next(line for line in tree if line.startswith("L0"))
    assert re.search(case.says, run)
    assert (re.search(r" 1 file  2,000 rows  SIZE .*AGE$", without_sizes(run)) is not None) is case.fits


def test_compactions_of_java_are_shown_without_a_reason(call: Call, tmp_path: Path) -> None:
    """As those of any writer that keeps none in the snapshot."""
    table = new_table(tmp_path, keyed=True)
    write(table, *commits(2))
    table.compact(full=True)
    newest = Path(table.location, "snapshot", "snapshot-3")
    members = json.loads(newest.read_text())
    del members["properties"]
    newest.write_text(json.dumps(members))
    assert "unknown" in call("table", "show", "db.t", "-w", tmp_path).out


def test_append_tables_have_no_levels_to_draw(call: Call, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write(table, *commits(5))
    table.compact()
    shown = call("table", "show", "db.t", "-w", tmp_path).out
    assert "sorted run" not in shown
    assert "small files" in shown
    assert call("table", "show", "db.t", "-w", tmp_path, "--json").document["trees"] == []
    assert tidelake.open_catalog(str(tmp_path)).table("db.t").scan().to_arrow().num_rows == 20
