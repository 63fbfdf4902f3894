"""A real Hive metastore (tools/hive-metastore) on this machine, and Java Paimon with Hive's client."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

import tidelake
from tests.support.java_oracle import ORACLE, JavaOracle
from tests.support.tools import TOOLS, build_tool

_TOOL = TOOLS / "hive-metastore"
_START_SECONDS = 180
_OPENED = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "net", "util")]


class HiveMetastore:
    """`uri` is its address; `class_path` what a client of Java needs."""

    def __init__(self, folder: Path) -> None:
        self.class_path = build_tool(_TOOL / "fetch")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.uri = f"thrift://127.0.0.1:{port}"
        self._log = folder / "metastore.log"
        settings = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_OPENED]
        logs = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", f"-Dderby.stream.error.file={folder}/derby"]
        program = [str(_TOOL / "Metastore.java"), str(port), f"{folder}/hive"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["java", *settings, *logs, "-cp", self.class_path, *program],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
        self._wait(port)

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        self.stop()
        pytest.fail(
            f"the Hive metastore does not come up:\n{self._log.read_text(errors='replace')[-3000:]}", pytrace=False
        )

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True, slots=True)
class HiveLake:
    """A warehouse of one test. `database` is a name that no other test has; it isn't there yet."""

    warehouse: str
    options: Mapping[str, str]
    database: str

    @property
    def of_java(self) -> str:
        return json.dumps({**self.options, "warehouse": self.warehouse})

    def open(self, **more: str) -> tidelake.Catalog:
        return tidelake.open_catalog(self.warehouse, **{**self.options, **more})

    def name(self, table: str) -> str:
        return f"{self.database}.{table}"


@pytest.fixture(scope="session")
def hive_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    server = HiveMetastore(tmp_path_factory.mktemp("metastore"))
    yield server
    server.stop()


@pytest.fixture
def hive_lake(hive_metastore: HiveMetastore, tmp_path: Path) -> HiveLake:
    options = {"metastore": "hive", "uri": hive_metastore.uri, "lock.enabled": "true", "lock-check-max-sleep": "200 ms"}
    return HiveLake(f"{tmp_path}/lake", options, f"shop_{uuid4().hex[:8]}")


@pytest.fixture(scope="session")
def java_with_hive(hive_metastore: HiveMetastore) -> Iterator[JavaOracle]:
    """Java Paimon with the client of the metastore on its class path."""
    build_tool(ORACLE / "build")
    oracle = JavaOracle(class_path=hive_metastore.class_path)
    yield oracle
    oracle.close()
