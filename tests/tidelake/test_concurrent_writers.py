"""Several independent concurrent writers of one bucket."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tests.support.levels import sample
from tidelake.storage.commit.manifests.snapshot_files import delta_entries
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import CommitKind

COLUMNS: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
PROCESSES, COMMITS, SHARED = 4, 5, 0

# Each process keeps one writer open, as a service does, and writes a row of its own and one that all write.
_PROGRAM: Final = """
import sys
import pyarrow as pa
import tidelake

place, number, commits = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
table = tidelake.open_catalog(place).table("db.t")
with table.writer(commit_user=f"p{number}") as writer:
    sys.stdin.readline()
    for n in range(1, commits + 1):
        value = number * 100 + n
        writer.write(pa.table({"id": [value, 0], "v": [value, value]}))
        writer.commit(n)
"""

ENGINES: Final = {
    "deduplicate": {},
    "deduplicate, write-only": {"write-only": "true"},
    "deduplicate, changelog of the input": {"changelog-producer": "input"},
    "aggregation, sums": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "aggregation, newest value": {"merge-engine": "aggregation", "fields.v.aggregate-function": "last_value"},
}
_QUICK: Final = ("deduplicate, write-only", "aggregation, sums")


def make_table(place: Path, options: Mapping[str, str], *, primary_key: bool = True) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(place))
    catalog.create_database("db")
    retries = {"commit.max-retries": "50"}
    bucket = {"bucket": "1"} if primary_key else {}  # of dynamic ones only one writer at a time adds keys
    return catalog.create_table(
        "db.t", COLUMNS, primary_key=["id"] if primary_key else [], options={**retries, **bucket, **options}
    )


def rows_of(table: tidelake.Table) -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


@pytest.mark.interop
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=name, marks=[] if name in _QUICK else [pytest.mark.long])
        for name, options in ENGINES.items()
    ],
)
def test_all_commits_of_four_processes_are_published_in_snapshot_order(
    tmp_path: Path, options: Mapping[str, str]
) -> None:
    table = make_table(tmp_path, options)
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    processes = [
        subprocess.Popen([*command, str(n), str(COMMITS)], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for n in range(1, PROCESSES + 1)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        output = process.communicate()[1]
        assert process.returncode == 0, output
    own = {100 * p + n for p in range(1, PROCESSES + 1) for n in range(1, COMMITS + 1)}
    appended = [s for s in table.snapshots() if s.commit_kind is CommitKind.APPEND]
    assert len(appended) == PROCESSES * COMMITS
    last = appended[-1]
    newest = 100 * int(last.commit_user[1:]) + last.commit_identifier
    shared = sum(own) if options.get("fields.v.aggregate-function") == "sum" else newest
    assert rows_of(table) == {SHARED: shared, **{value: value for value in own}}
    assert verify(table.context, deep=True) == []


def write(writer: tidelake.Writer, identifier: int, value: int) -> int | None:
    writer.write(pa.table({"id": [SHARED], "v": [value]}, COLUMNS))
    return writer.commit(identifier)


def test_a_writer_that_repeatedly_loses_races_leaves_no_file_and_loses_no_row(tmp_path: Path) -> None:
    """Also if it compacts: compactions of rows that got new sequence numbers are discarded."""
    table = make_table(tmp_path, {"full-compaction.delta-commits": "1"})
    with table.writer(commit_user="slow") as slow, table.writer(commit_user="quick") as quick:
        for n in range(1, 5):
            write(quick, n, 10 + n)
            assert rows_of(table) == {SHARED: 10 + n}
            write(slow, n, 20 + n)
            assert rows_of(table) == {SHARED: 20 + n}
    assert verify(table.context, deep=True) == []
    named = {
        entry.file.file_name for s in table.snapshots() for entry in delta_entries(table.context, s)
    }  # nothing expired yet
    assert {path.name for path in tmp_path.rglob("data-*")} == named


def test_rows_that_may_have_landed_are_not_renumbered(tmp_path: Path) -> None:
    """Their files must stay what they are: the first attempt may still name them."""
    table = make_table(tmp_path, {"commit.max-retries": "1"})
    io = FaultyFileIO(table.context.io)
    same = tidelake.Table(replace(table.context, io=io))
    with same.writer(commit_user="slow") as slow, table.writer(commit_user="quick") as quick:
        slow.write(pa.table({"id": [SHARED], "v": [1]}, COLUMNS))

        def no_answer(call: Call) -> Fault | None:
            return Fault.HANG if call.name == "create_if_absent" else None

        io.fault = no_answer
        with pytest.raises(tidelake.CommitOutcomeUnknown):
            slow.commit(1)
        write(quick, 1, 2)
        io.fault = lambda _: None
        files = set(tmp_path.rglob("data-*"))
        with pytest.raises(tidelake.CommitConflict):
            slow.commit(1)
        assert files <= set(tmp_path.rglob("data-*"))
    assert rows_of(table) == {SHARED: 2}


def rescaled_at(io: FaultyFileIO, at: int, place: str, call: Call) -> None:
    """Rescale the table, as another process, before a call of this one."""
    if len(io.calls) == at + 1:
        tidelake.open_catalog(place).rescale_table("db.t", 3)


@pytest.mark.sampled
def test_a_rescale_in_any_moment_of_a_commit_gives_no_key_two_rows(tmp_path: Path) -> None:
    """The rows get newer numbers, because another writer was faster. They are for the old buckets."""
    at, calls, refused = 0, 1, 0
    while at < calls:
        table = make_table(tmp_path / str(at), {"bucket": "1"})
        io = FaultyFileIO(table.context.io)
        same = tidelake.Table(replace(table.context, io=io))
        with same.writer(commit_user="slow") as slow, table.writer(commit_user="quick") as quick:
            slow.write(pa.table({"id": [SHARED, 5, 6], "v": [1, 1, 1]}, COLUMNS))
            for identifier in (1, 2, 3):
                write(quick, identifier, identifier)
            begun = len(io.calls)
            io.fault = partial(rescaled_at, io, begun + at, str(tmp_path / str(at)))
            try:
                slow.commit(1)
            except tidelake.CommitConflict:
                refused += 1
            calls = max(calls, len(io.calls) - begun)
        found = tidelake.open_catalog(str(tmp_path / str(at))).table("db.t")
        ids = found.scan().to_arrow()["id"].to_pylist()
        assert len(ids) == len(set(ids)), f"call {at}"
        assert verify(found.context) == []
        at += 1 if calls < 20 else max(1, calls // len(sample(range(calls))))
    assert refused
