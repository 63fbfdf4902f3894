"""Flink as a contender: it writes a topic to a Paimon table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import tidelake
from benchmarks.clock import bytes_below
from benchmarks.contest import JobFailed, Sample
from benchmarks.order_messages import FLINK_COLUMNS, differences
from tests.support.tools import TOOLS, build_tool

FLINK_SQL: Final = "Flink SQL"
SYNC_TABLE: Final = "kafka_sync_table"
_PATIENCE_S: Final = 1_200
_OPENED: Final = ("java.lang", "java.util", "java.time", "java.nio", "sun.nio.ch")
_JVM: Final = ["-Xmx4g", "-Dlog4j2.level=ERROR", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED)]


def flink_classes(kind: Literal["sql", "sync"]) -> str:
    """Return the class path. Fetches and compiles what is not in the cache."""
    return build_tool(TOOLS / "flink" / "build", kind)


@dataclass(frozen=True, slots=True)
class FlinkJob:
    """A Flink job that runs in a new JVM each time. Its table is compared with the sent messages after the measurement.

    main: the class of the job.
    checkpoint_ms: its checkpoint interval.
    truth: the Parquet file of `order_messages.send`.
    """

    main: Literal["peer.Sql", "peer.Sync"]
    classes: str
    servers: str
    topic: str
    warehouse: Path
    options: Mapping[str, str]
    checkpoint_ms: int
    truth: Path

    def run(self) -> Sample:
        shutil.rmtree(self.warehouse, ignore_errors=True)
        self.warehouse.mkdir(parents=True)
        java = ["java", *_JVM, f"-Dcheckpoint.interval.ms={self.checkpoint_ms}", "-cp", self.classes, self.main]
        arguments = [self.servers, self.topic, str(self.warehouse), FLINK_COLUMNS]
        done = subprocess.run(
            [*java, *arguments, *(f"{name}={value}" for name, value in self.options.items())],
            capture_output=True,
            text=True,
            env=dict(os.environ),
            timeout=_PATIENCE_S,
            check=False,
        )
        if done.returncode or not done.stdout.strip():
            raise JobFailed(f"{self.main} failed:\n{done.stdout}{done.stderr}")
        outcome = json.loads(done.stdout.splitlines()[-1])
        table = tidelake.open_catalog(str(self.warehouse)).table("bench.orders")
        if wrong := differences(table.scan().to_arrow(), self.truth):
            raise AssertionError(f"{self.main}: the table differs from what was sent: {wrong}")
        start = {"start_cpu_s": outcome.pop("start_cpu_s")}
        return Sample(**outcome, details={"data_bytes": bytes_below(str(self.warehouse), "data-"), **start})
