"""A process that is paused while another one takes over its pipeline must not write when it resumes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.golden_text import matches_golden_text
from tidelake.checkpoint.offsets import POSITION_PROPERTY, chain_breaks, position_from_text
from tidelake.cli.exits import ExitCode

MESSAGES = Path(__file__).with_name("failure_messages.txt")
PIPELINE = "shop"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])

# The command line in a process that stops itself: before it commits rows, or when it has looked and will now publish.
RUN_AND_STOP = """
import signal, sys, threading
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.cli.program import main

def stopping(method, is_moment):
    def stop_and_go_on(*arguments, **more):
        if is_moment(*arguments):
            # to this thread: a signal to the process may reach another thread first, while this one continues
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return method(*arguments, **more)
    return stop_and_go_on

commits = 0
def has_rows(sink, committable):
    global commits
    commits += bool(committable.messages)
    return bool(committable.messages) and commits == 2

def is_second_with_rows(io, path, data):
    return commits == 2 and "/snapshot/snapshot-" in path

def counts(sink, committable):
    has_rows(sink, committable)
    return False

before_commit = sys.argv[2] == "before its commit"
TableSink.commit = stopping(TableSink.commit, has_rows if before_commit else counts)
if not before_commit:
    LocalFileIO.create_if_absent = stopping(LocalFileIO.create_if_absent, is_second_with_rows)
sys.exit(main(["ingest", "run", sys.argv[1], "--set", "checkpoint.bytes_max=1", "--set", "source.until=forever"]))
"""


def change(offset: int) -> str:
    source = {"db": "shop", "schema": "public", "table": "orders", "connector": "postgresql"}
    value = {"before": None, "after": {"id": offset, "name": f"n{offset}"}, "op": "c", "source": source}
    line = {"topic": "log", "partition": 0, "offset": offset, "key": f'{{"id":{offset}}}', "value": json.dumps(value)}
    return json.dumps(line) + "\n"


class Shop:
    """A pipeline from a folder into one table, and processes that run it."""

    def __init__(self, home: Path, *, has_key: bool) -> None:
        self.changes = home / "changes"
        self.changes.mkdir()
        for file in range(3):  # a file a batch
            lines = [change(offset) for offset in range(file * 10, file * 10 + 10)]
            (self.changes / f"{file}.jsonl").write_text("".join(lines))
        catalog = tidelake.open_catalog(str(home / "lake"))
        catalog.create_database("shop")
        key = ["id"] if has_key else []
        self.table = catalog.create_table("shop.orders", SCHEMA, primary_key=key)
        self.config = home / "shop.yaml"
        self.config.write_text(
            f"warehouse: {home}/lake\nsource: {{type: change-log-folder, path: {self.changes}, until: end}}\n"
            "tables: [{name: shop.orders}]\n"
        )

    def sleeper(self, moment: str) -> subprocess.Popen[str]:
        """A process that has stopped itself with rows to commit."""
        command = [sys.executable, "-c", RUN_AND_STOP, str(self.config), moment]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), process.communicate()
        return process

    def run(self, *options: str) -> None:
        command = [sys.executable, "-m", "tidelake", "ingest", "run", str(self.config), *options]
        subprocess.run(command, check=True, capture_output=True)

    def rows(self) -> list[tuple[int, str]]:
        rows = self.table.scan().to_arrow().to_pylist()
        return sorted((row["id"], row["name"]) for row in rows)

    def history_breaks(self) -> list[object]:
        own = [s for s in self.table.snapshots() if s.commit_user == PIPELINE]
        return list(
            chain_breaks(
                (s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], str(s.id))) for s in own
            )
        )

    def data_files(self) -> set[str]:
        return {path.name for path in (Path(self.table.location).rglob("data-*"))}


@pytest.fixture(params=[True, False], ids=["by key", "append"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return Shop(tmp_path, has_key=request.param)


def fenced(process: subprocess.Popen[str]) -> str:
    """Resumes the process, and returns its last output."""
    process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.FENCED, errors
    return errors


def neutral(message: str) -> str:
    """Without log lines, and what differs from run to run."""
    text = "".join(line for line in message.splitlines(keepends=True) if not line.startswith("{"))
    text = re.sub(r"snapshot \d+", "snapshot N", text)
    text = re.sub(r"at \d+-\d\d-\d\d \d\d:\d\d:\d\d UTC", "at TIME UTC", text)
    return re.sub(r"(epoch \d+), \S+:\d+:[0-9a-f]{8}", r"\1, HOST:PID:ID", text)


ALL = [(offset, f"n{offset}") for offset in range(30)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("moment", ["before its commit", "before it publishes"])
def test_a_paused_process_is_fenced_and_each_record_is_written_once(shop: Shop, moment: str) -> None:
    asleep = shop.sleeper(moment)
    shop.run()
    assert shop.rows() == ALL
    snapshots, files = [s.uuid for s in shop.table.snapshots()], shop.data_files()
    output = fenced(asleep)
    matches_golden_text(MESSAGES, "another process took over", neutral(output))
    assert [s.uuid for s in shop.table.snapshots()] == snapshots
    assert shop.rows() == ALL
    assert shop.history_breaks() == []
    assert len(shop.data_files()) < len(files)  # its written and uncommitted files


@pytest.mark.interop
@pytest.mark.exhaustive
def test_a_process_paused_until_its_snapshot_id_expired_does_not_report_success(shop: Shop) -> None:
    asleep = shop.sleeper("before it publishes")
    for _ in range(2):
        shop.run()
    *expired, newest = shop.table.snapshots()
    directory = Path(shop.table.location) / "snapshot"
    for snapshot in expired:
        (directory / f"snapshot-{snapshot.id}").unlink()
    assert "took over" in fenced(asleep)
    assert [s.uuid for s in shop.table.snapshots()] == [newest.uuid]
    assert shop.rows() == ALL
