"""A service takes changed configurations: by SIGHUP, by `tidelake ingest reload`, and killed in between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tidelake
from tidelake.checkpoint.offsets import POSITION_PROPERTY, chain_breaks, position_from_text
from tidelake.cli.exits import ExitCode

TABLES = "abc"


class Shop:
    """Changes of tables a, b and c in a folder; a service that writes some of them. Each number is a row."""

    def __init__(self, home: Path) -> None:
        self.home, self.files = home, 0
        (home / "changes").mkdir()
        self.config, self.log = home / "shop.yaml", home / "service.log"
        self.catalog = tidelake.open_catalog(str(home / "lake"))
        self.process: subprocess.Popen[bytes] | None = None
        self.count = 0

    def write_file(self, tables: str, more: str = "") -> None:
        names = ", ".join(f"{{name: shop.{name}}}" for name in tables)
        text = (
            f"warehouse: {self.home}/lake\nsource: {{type: change-log-folder, path: {self.home}/changes, "
            f"poll_interval_ms: 20}}\ncheckpoint: {{interval_ms: 50}}\n{more}tables: [{names}]\n"
        )
        new = self.config.with_suffix(".new")  # as editors do: the service never sees half a file
        new.write_text(text)
        new.replace(self.config)

    def add(self, rows: int = 5) -> None:
        """Adds rows to each table."""
        lines = []
        for table in TABLES:
            for offset in range(self.count, self.count + rows):
                source = {"db": "s", "table": table}
                value = json.dumps({"before": None, "after": {"id": offset}, "op": "c", "source": source})
                line = {"topic": table, "partition": 0, "offset": offset, "key": None, "value": value}
                lines.append(json.dumps(line))
        self.count += rows
        path = self.home / "changes" / f"{self.files:06}.jsonl"
        path.with_suffix(".new").write_text("\n".join(lines) + "\n")
        path.with_suffix(".new").rename(path)
        self.files += 1

    def start(self, *flags: str) -> None:
        command = [sys.executable, "-m", "tidelake", "ingest", "run", str(self.config), *flags]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)

    def send(self, signal_: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(signal_)

    def wait(self, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not is_so():
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)

    def says(self, text: str, times: int = 1) -> Callable[[], bool]:
        return lambda: self.log.read_text().count(text) >= times

    def has(self, table: str) -> Callable[[], bool]:
        return lambda: self.rows(table) == list(range(self.count))

    def rows(self, table: str) -> list[int]:
        if "shop" not in self.catalog.list_databases() or table not in self.catalog.list_tables("shop"):
            return []
        found = self.catalog.table(f"shop.{table}").scan(columns=["id"]).to_arrow()["id"].to_pylist()
        return sorted(map(int, found))

    def breaks(self, table: str) -> list[object]:
        own = [s for s in self.catalog.table(f"shop.{table}").snapshots() if s.commit_user == "shop"]
        chain = ((s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], str(s.id))) for s in own)
        return list(chain_breaks(chain))

    def reload(self) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tidelake", "ingest", "reload", str(self.config), "--timeout", "60"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def end(self) -> int:
        self.send(signal.SIGTERM)
        assert self.process is not None
        return self.process.wait(60)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def test_sighup_takes_the_file_and_an_invalid_one_changes_nothing(shop: Shop) -> None:
    shop.write_file("ab")
    shop.add()
    shop.start()
    shop.wait(lambda: shop.has("a")() and shop.has("b")())
    shop.config.write_text("tables: [")
    shop.send(signal.SIGHUP)
    shop.wait(shop.says("the changed configuration is refused"))
    shop.write_file("bc")
    shop.send(signal.SIGHUP)
    shop.wait(shop.says("the changed configuration is taken"))
    ended = shop.rows("a")
    shop.add()
    shop.wait(lambda: shop.has("b")() and shop.has("c")())
    assert shop.end() == 0
    assert shop.rows("a") == ended == list(range(5))
    assert [shop.breaks(table) for table in TABLES] == [[], [], []]


@pytest.mark.interop
def test_the_command_waits_for_the_answer_and_a_setting_that_needs_a_restart_gives_3(shop: Shop) -> None:
    shop.write_file("a")
    shop.add()
    shop.start()
    shop.wait(shop.has("a"))
    shop.write_file("ab")
    taken = shop.reload()
    assert (taken.returncode, "added: shop.b" in taken.stderr) == (0, True), taken.stderr
    shop.wait(shop.has("b"))
    shop.write_file("abc", "write: {queue_bytes: 9000}\n")
    refused = shop.reload()
    assert refused.returncode == ExitCode.REFUSED, refused.stderr
    assert "`write.queue_bytes`" in refused.stderr
    assert "refused" in shop.log.read_text()
    shop.add()
    shop.wait(lambda: shop.has("a")() and shop.has("b")())
    assert shop.end() == 0
    assert shop.rows("c") == []


@pytest.mark.interop
def test_kills_around_reloads_lose_and_repeat_nothing(shop: Shop) -> None:
    shop.write_file("ab")
    for number in range(6):
        shop.add()
        begun = shop.log.read_text().count("reading begins") if number else 0
        shop.start()
        shop.wait(shop.says("reading begins", begun + 1))
        shop.write_file("abc" if number % 2 else "bc" if number % 4 else "ac")
        shop.send(signal.SIGHUP)
        shop.add()
        time.sleep(0.05 * number)
        shop.send(signal.SIGKILL)
        assert shop.process is not None
        shop.process.wait()
    shop.write_file("abc")
    begun = shop.log.read_text().count("reading begins")
    shop.start()
    shop.wait(shop.says("reading begins", begun + 1))  # before, it may have all rows, and no handler of SIGTERM yet
    shop.wait(lambda: all(shop.has(table)() for table in TABLES))
    assert shop.end() == 0
    assert [shop.breaks(table) for table in TABLES] == [[], [], []]
