"""A Spark standalone cluster on this machine: a master and workers in separate processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

_HOME = Path(pyspark.__file__).parent
_START_SECONDS = 90


@dataclass(frozen=True)
class SparkCluster:
    """url: for `--master`. page: of the master, which lists the applications."""

    url: str
    page: str

    def state(self) -> dict[str, Any]:
        """Members `workers`, `activeapps`, `completedapps`, …"""
        with urllib.request.urlopen(f"{self.page}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """folder: for logs and work files. Workers have one core and 1 GB each; they run this interpreter.

    Each is a host of its own: Spark copies a slow task to another host only.
    """
    with ExitStack() as processes:
        master = processes.enter_context(
            _process(
                folder, "master", ["deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            )
        )
        url = _awaited(master, r"Starting Spark master at (spark://\S+)")
        page = _awaited(master, r"started at (http://\S+)")
        cluster = SparkCluster(url, page)
        for number in range(workers):
            options = ["--cores", "1", "--memory", "1g", "--host", f"127.0.0.{number + 1}", "--webui-port", "0"]
            work = ["--work-dir", str(folder / f"work-{number}")]
            processes.enter_context(
                _process(folder, f"worker-{number}", ["deploy.worker.Worker", *options, *work, url])
            )
        deadline = time.monotonic() + _START_SECONDS
        while len(cluster.state()["workers"]) < workers:
            assert time.monotonic() < deadline, "the workers did not register; see the logs"
            time.sleep(0.2)
        yield cluster


@contextmanager
def _process(folder: Path, name: str, command: list[str]) -> Iterator[Path]:
    """Gives its log."""
    log = folder / f"{name}.log"
    environment = {
        **os.environ,
        "SPARK_HOME": str(_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment["SPARK_DAEMON_MEMORY"] = "256m"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.{command[0]}", *command[1:]],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(timeout=30)


def _awaited(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < deadline, f"no {pattern!r} in {log}"
        time.sleep(0.1)
    return found[1]
