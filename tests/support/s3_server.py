"""A real S3 server (tools/s3proxy) on this machine, with its objects in memory.

It is S3Proxy, not moto. moto's server checks for an object and then puts it, in two steps and in threads, so its
`If-None-Match` is wrong for concurrent writers. S3Proxy's in-memory backend does both in one step.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from tests.support.tools import TOOLS, build_tool

_START_SECONDS = 60


class S3Server:
    """The server, with `endpoint`, `access_key`, `secret_key` and `region`.

    options: the same as Paimon's options.
    """

    access_key = "test-access-key"
    secret_key = "test-secret-key"
    region = "us-east-1"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""

    @property
    def options(self) -> dict[str, str]:
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key": self.access_key,
            "s3.secret-key": self.secret_key,
            "s3.region": self.region,
            "s3.path.style.access": "true",
        }

    def client(self) -> Any:
        """Returns a client of another implementation, boto3."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
        )

    def new_bucket(self) -> str:
        """Creates an empty bucket. Returns its name."""
        name = f"bucket-{uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return name

    def start(self) -> None:
        """Starts the server. It is ready when this returns. Fails the test if the server can't be started."""
        jar = build_tool(TOOLS / "s3proxy" / "fetch")
        port = _free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        settings = self._folder / "s3proxy.conf"
        settings.write_text(
            f"s3proxy.endpoint={self.endpoint}\n"
            "s3proxy.authorization=aws-v2-or-v4\n"
            f"s3proxy.identity={self.access_key}\n"
            f"s3proxy.credential={self.secret_key}\n"
            "jclouds.provider=transient\n"
        )
        # Few threads and little compilation, because it shares the machine with the tested code.
        java = ["java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        with (self._folder / "s3proxy.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*_with_parent(), *java, "-jar", jar, "--properties", str(settings)],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait(port)

    def _wait(self, port: int) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        self.stop()
        tail = (self._folder / "s3proxy.log").read_text(errors="replace")[-2000:]
        pytest.fail(f"S3Proxy did not come up at {self.endpoint}:\n{tail}", pytrace=False)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


def _with_parent() -> list[str]:
    """Returns a command prefix that ends the server with a killed test run. (`preexec_fn` would warn about threads.)"""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server of the session. Each test creates separate buckets. Fails if no server can be started."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.stop()
