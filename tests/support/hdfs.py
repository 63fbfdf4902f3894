"""A real HDFS (tools/hdfs) on this machine: a name node and a data node in one process."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.tools import TOOLS, build_tool

_TOOL = TOOLS / "hdfs"
_START_SECONDS = 180
_PARTS_WITH_PAGES = ("hdfs", "datanode")


class Hdfs:
    """`uri` is the address of the name node: hdfs://127.0.0.1:PORT."""

    def __init__(self, folder: Path) -> None:
        class_path = build_tool(_TOOL / "fetch")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.uri = f"hdfs://127.0.0.1:{port}"
        self._log = folder / "hdfs.log"
        # Empty folders for the nodes' web pages. Otherwise each node unpacks its pages from a jar of 40 MB first.
        for part in _PARTS_WITH_PAGES:
            (folder / "pages" / "webapps" / part).mkdir(parents=True)
        settings = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        logs = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        program = [str(_TOOL / "MiniHdfs.java"), str(port), f"{folder}/hdfs"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["java", *settings, *logs, "-cp", f"{folder}/pages:{class_path}", *program],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
        self._wait()

    def new_folder(self) -> str:
        """Return the address of a folder that isn't there yet."""
        return f"{self.uri}/{uuid4().hex[:12]}"

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if "ready" in self._log.read_text(errors="replace").split():
                return
            time.sleep(0.1)
        self.stop()
        pytest.fail(f"HDFS does not come up:\n{self._log.read_text(errors='replace')[-3000:]}", pytrace=False)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """The cluster of the session. Each test uses folders of its own. Fails if none can be started."""
    cluster = Hdfs(tmp_path_factory.mktemp("hdfs"))
    yield cluster
    cluster.stop()
