"""Runs a `tidelake` command with a pipeline in its own processes, so that they can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

PATIENCE_S: Final = 1200  # only a test that fails waits so long


class Service:
    """A pipeline's processes, one after the other. Its `with` block leaves none behind.

    command: `ingest run`, say. The standard error of each process is stored next to the configuration.
    """

    def __init__(self, home: Path, command: Sequence[str], configuration: Mapping[str, Any]) -> None:
        self._command = command
        self._config = home / "service.json"  # JSON is YAML
        self._config.write_text(json.dumps(configuration))
        self._log = home / "service.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *settings: str) -> None:
        """settings: `source.until=end`, over the configuration."""
        flags = [part for setting in settings for part in ("--set", setting)]
        command = [sys.executable, "-m", "tidelake", *self._command, str(self._config), *flags]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """Kills the process and its children (kill -9). Fails if it had ended before: a service must keep running."""
        process = self._running()
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, self.output()

    def configure(self, configuration: Mapping[str, Any]) -> None:
        """Replace the configuration, which a running process takes after SIGHUP."""
        new = self._config.with_suffix(".new")  # as editors do: the process never sees half a file
        new.write_text(json.dumps(configuration))
        new.replace(self._config)

    def send(self, signal_: signal.Signals) -> None:
        self._running().send_signal(signal_)

    def has_said(self, text: str) -> bool:
        """Whether the running process has logged this."""
        return text in self._log.read_text(errors="replace")

    def run_to_the_end(self) -> None:
        self.start("source.until=end")
        assert self._process is not None
        assert self._process.wait(PATIENCE_S) == 0, self.output()

    def wait_until(self, is_reached: Callable[[], bool]) -> None:
        """While the process runs."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_reached():
            self._running()
            assert time.monotonic() < deadline, f"nothing came of it:\n{self.output()}"
            time.sleep(0.02)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        assert self._process.poll() is None, f"ended by itself, with {self._process.returncode}:\n{self.output()}"
        return self._process

    def peak_memory_mib(self) -> float:
        """The most memory that the process has held."""
        status = Path(f"/proc/{self._running().pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024

    def output(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
