"""Two supervisors that both restart their process of one pipeline: it works on, and each record is written once."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.integration.test_reloaded_service import Shop
from tidelake.cli.exits import ExitCode

AWAY = re.compile(r'"event": ?"the pipeline was fenced again[^\n]*?"wait_ms": ?(\d+)')


class Supervisor:
    """Starts the process again as soon as it has ended."""

    def __init__(self, home: Path, name: str) -> None:
        self.config, self.log = home / "shop.yaml", home / f"{name}.log"
        self.codes: list[int] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.is_ending = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        command = [sys.executable, "-m", "tidelake", "ingest", "run", str(self.config), "--log-format", "json"]
        while not self.is_ending:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
            self.codes.append(self.process.wait())

    def waits_ms(self) -> list[int]:
        """How long its processes have stayed away."""
        return [int(found) for found in AWAY.findall(self.log.read_text())] if self.log.exists() else []

    def end(self) -> None:
        """Ends the process while it reads or stays away, as an operator does."""
        self.is_ending = True
        while self._thread.is_alive():
            if self.process is not None and self.process.poll() is None:
                self.process.terminate()
            self._thread.join(2)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.write_file("ab")
    return made


@pytest.mark.interop
def test_two_supervisors_fence_each_other_less_and_less_often(shop: Shop) -> None:
    supervisors = [Supervisor(shop.home, name) for name in ("first", "second")]
    try:
        until = time.monotonic() + 300
        while len(waits := sorted(ms for one in supervisors for ms in one.waits_ms())) < 3:
            assert time.monotonic() < until, [one.log.read_text() for one in supervisors]
            shop.add()  # a process notices at a commit that it is fenced
            time.sleep(0.2)
        while not (shop.has("a")() and shop.has("b")()):  # the other process works meanwhile
            assert time.monotonic() < until
            time.sleep(0.2)
    finally:
        for one in supervisors:
            one.end()
    assert waits[:3] == [5_000, 10_000, 20_000]
    codes = [code for one in supervisors for code in one.codes]
    assert codes.count(ExitCode.FENCED) <= 4  # the first one ended at once
    assert set(codes) <= {ExitCode.FENCED, ExitCode.DONE, -15}  # -15: ended while it started
    assert any("took over" in one.log.read_text() for one in supervisors)
    assert [shop.breaks(table) for table in "ab"] == [[], []]
