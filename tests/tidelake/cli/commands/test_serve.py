"""`tidelake serve rest`, as a process."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.certificates import make_certificates
from tests.support.rest_server import ServedWarehouse
from tidelake.cli.exits import ExitCode
from tidelake.cli.program import main


@contextmanager
def program(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], ServedWarehouse]]:
    """Start the server; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "tidelake", "serve", "rest", "--warehouse", f"{folder}/lake", "--port", "0"]
    process = subprocess.Popen([*command, "--log-format", "json", *arguments], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        serving = json.loads(process.stderr.readline())
        assert serving["event"] == "serving"
        port = int(serving["url"].rpartition(":")[2])
        yield process, ServedWarehouse(f"{folder}/lake", port, None)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_tokens_come_from_a_file_and_connections_are_encrypted(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    (tmp_path / "tokens").write_text("\n one \n\ntwo\n")
    arguments = ("--token-file", f"{tmp_path}/tokens", "--tls", str(files.server), str(files.server_key))
    tidelake.open_catalog(f"{tmp_path}/lake").create_database("shop")
    with program(tmp_path, *arguments) as (_, served):
        trusted = ssl.create_default_context(cafile=files.ca)
        for token, status in (("one", 200), ("two", 200), (" one ", 401), ("three", 401)):
            headers = {"Authorization": f"Bearer {token}"}
            assert served.ask("GET", "databases", headers=headers, tls=trusted).status == status


def test_clients_work_while_the_server_restarts(tmp_path: Path) -> None:
    """A commit during the restart fails or succeeds as a whole, and a repeated one counts once."""
    lake = tidelake.open_catalog(f"{tmp_path}/lake")
    lake.create_database("shop")
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    lake.create_table("shop.t", columns, primary_key=["id"], options={"bucket": "1", "commit.max-retries": "1"})
    with program(tmp_path) as (first, served):
        table = tidelake.open_catalog(served.warehouse, **served.options).table("shop.t")
        writer = table.writer(commit_user="etl")
        writer.write(pa.table({"id": [1]}, columns))
        writer.commit(identifier=1)
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == ExitCode.DONE
        assert first.stderr is not None
        assert '"stopping"' in first.stderr.read()
        writer.write(pa.table({"id": [2]}, columns))
        with pytest.raises((OSError, tidelake.TidelakeError)):
            writer.commit(identifier=2)
    assert [s.commit_identifier for s in lake.table("shop.t").snapshots()] == [1]
    with (
        program(tmp_path) as (_, again),
        tidelake.open_catalog(again.warehouse, **again.options).table("shop.t").writer(commit_user="etl") as writer,
    ):
        for identifier in (1, 2):
            writer.write(pa.table({"id": [identifier]}, columns))
            writer.commit(identifier=identifier)
    assert lake.table("shop.t").scan().to_arrow()["id"].to_pylist() == [1, 2]


def test_other_machines_need_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "rest", "-w", str(tmp_path), "--host", "0.0.0.0"]) == ExitCode.REFUSED
    assert "Pass --token-file, or --allow-anonymous" in capsys.readouterr().err


def test_arguments_that_serve_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    refused = {
        ("--token-file", str(empty)): (ExitCode.USAGE, "the file has no token"),
        ("--tls", str(empty), str(empty)): (ExitCode.USAGE, "pass PEM files of a certificate and its key"),
        ("--give-credentials",): (ExitCode.FAILED, "no options of an object store"),
        ("--catalog-option", "metastore=rest", "--catalog-option", "uri=http://x"): (
            ExitCode.FAILED, "clients can use that catalog themselves",
        ),
        ("--host", "192.0.2.1", "--allow-anonymous"): (ExitCode.FAILED, "can't listen on 192.0.2.1"),
    }  # fmt: skip
    for arguments, (code, message) in refused.items():
        assert main(["serve", "rest", "-w", str(tmp_path), *arguments]) == code
        assert message in capsys.readouterr().err
