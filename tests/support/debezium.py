"""A real Debezium process (tools/debezium): Kafka Connect with a connector, from PostgreSQL to a Kafka broker."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from tests.support.kafka_broker import KafkaBroker
from tests.support.postgresql import PostgresqlServer
from tests.support.tools import TOOLS, build_tool

_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_MEMORY: Final = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Debezium:
    """Its `with` block leaves no process behind. Restarted after a kill it continues at its last stored offset.

    home: a folder of its own, for its settings, offsets and log.
    database: its address as `PostgresqlServer.new_database` gives it.
    prefix: of the topics, which it makes with one partition each, unless `settings` say more.
    settings: additional settings of the connector, or replacements of those here.
    """

    def __init__(
        self, home: Path, broker: KafkaBroker, database: str, prefix: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._jars = build_tool(TOOLS / "debezium" / "fetch")
        self._log = home / "debezium.log"
        address = urlsplit(database.removeprefix("jdbc:"))
        self._worker = home / "worker.properties"
        self._worker.write_text(
            _properties(
                {
                    "bootstrap.servers": broker.address,
                    "key.converter": _JSON,
                    "value.converter": _JSON,
                    "offset.storage.file.filename": str(home / "offsets"),
                    "offset.flush.interval.ms": "500",
                    "listeners": "HTTP://127.0.0.1:0",
                    "value.converter.replace.null.with.default": "false",  # otherwise a null is sent as the default
                    "topic.creation.enable": "true",
                    "plugin.discovery": "ONLY_SCAN",
                }
            )
        )
        self._connector = home / "connector.properties"
        self._connector.write_text(
            _properties(
                {
                    "name": prefix,
                    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                    "tasks.max": "1",
                    "database.hostname": str(address.hostname),
                    "database.port": str(address.port),
                    "database.user": PostgresqlServer.user,
                    "database.password": "",
                    "database.dbname": address.path.removeprefix("/"),
                    "plugin.name": "pgoutput",
                    "slot.name": prefix,
                    "publication.name": prefix,
                    "topic.prefix": prefix,
                    "topic.creation.default.partitions": "1",
                    "topic.creation.default.replication.factor": "1",
                    **(settings or {}),
                }
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Does not wait: its first records come some seconds later."""
        classes = ["-cp", f"{self._jars}/*", "org.apache.kafka.connect.cli.ConnectStandalone"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *_MEMORY, *classes, str(self._worker), str(self._connector)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9. Fails when it had ended before."""
        assert self._process is not None
        assert self._process.poll() is None, self.output()
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def output(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _properties(settings: Mapping[str, Any]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
