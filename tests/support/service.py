"""Runs a command of `tidelake` for a pipeline in separate processes, which tests kill."""

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

PATIENCE_S: Final = 1200  # only failing tests wait so long


class Service:
    """The processes of a pipeline, one at a time. The end of the `with` block stops them.

    The standard error of each process is stored next to the configuration.

    command: for example `ingest run`.
    """

    def __init__(self, home: Path, command: Sequence[str], configuration: Mapping[str, Any]) -> None:
        self._command = command
        self._config = home / "service.json"  # JSON is YAML
        self._config.write_text(json.dumps(configuration))
        self._log = home / "service.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *settings: str) -> None:
        """Starts a process.

        settings: settings that override the configuration, such as `source.until=end`.
        """
        flags = [part for setting in settings for part in ("--set", setting)]
        command = [sys.executable, "-m", "tidelake", *self._command, str(self._config), *flags]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """Kills the process and its children with SIGKILL. Fails if it had ended before, which is always an error."""
        process = self._running()
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, self.said()

    def run_to_the_end(self) -> None:
        self.start("source.until=end")
        assert self._process is not None
        assert self._process.wait(PATIENCE_S) == 0, self.said()

    def wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Waits until `is_reached` is true. Fails if the process ends before."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_reached():
            self._running()
            assert time.monotonic() < deadline, f"nothing came of it:\n{self.said()}"
            time.sleep(0.02)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        assert self._process.poll() is None, f"ended by itself, with {self._process.returncode}:\n{self.said()}"
        return self._process

    def peak_memory_mib(self) -> float:
        """Returns the peak memory of the process."""
        status = Path(f"/proc/{self._running().pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
