"""pypaimon and pypaimon-rust as readers and writers, in their own environment (tools/pypaimon)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest

from tests.support.conformance import record
from tests.support.line_server import LineServer
from tests.support.tools import TOOLS, build_tool

PYPAIMON = TOOLS / "pypaimon"


class Pypaimon:
    """`native` takes the Rust route and never falls back: where pypaimon would, the call is Refused, code NotNative.

    `warehouse` is a local folder, or the options of a catalog as JSON.
    Raises tests.support.line_server.Refused with pypaimon's message and the exception's class as code.
    """

    def __init__(self, python: str) -> None:
        self._server = LineServer([python, PYPAIMON / "driver.py"])

    def close(self) -> None:
        self._server.close()

    def read(
        self,
        warehouse: Path | str,
        table: str,
        *,
        native: bool = False,
        snapshot: int | None = None,
        tag: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """The merged rows of the latest snapshot, or of the one named. A branch is `db.table$branch_b`."""
        record("pypaimon-rust" if native else "pypaimon", warehouse, table)
        chosen = dict(options or {})
        if snapshot is not None:
            chosen["scan.snapshot-id"] = str(snapshot)
        if tag is not None:
            chosen["scan.tag-name"] = tag
        with tempfile.TemporaryDirectory() as scratch:
            output = Path(scratch) / "rows.arrow"
            self._server.ask(
                {
                    "op": "read",
                    "warehouse": str(warehouse),
                    "table": table,
                    "output": str(output),
                    "options": chosen,
                    "native": native,
                }
            )
            with pa.OSFile(str(output), "rb") as source:
                return pa.ipc.open_file(source).read_all()

    def create(
        self,
        warehouse: Path | str,
        table: str,
        schema: pa.Schema,
        *,
        primary_keys: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            self._server.ask(
                {
                    "op": "create",
                    "warehouse": str(warehouse),
                    "table": table,
                    "schema": _ipc_file(scratch, schema.empty_table()),
                    "primary_keys": list(primary_keys),
                    "partition_keys": list(partition_keys),
                    "options": dict(options or {}),
                }
            )

    def write(
        self,
        warehouse: Path | str,
        table: str,
        rows: pa.Table,
        *,
        native: bool = False,
        commit_user: str | None = None,
        identifier: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> int | None:
        """One commit; the latest snapshot's id afterwards. (pypaimon writes +I only, unless `rowkind.field` is set.)"""
        with tempfile.TemporaryDirectory() as scratch:
            (answer,) = self._server.ask(
                {
                    "op": "write",
                    "warehouse": str(warehouse),
                    "table": table,
                    "rows": _ipc_file(scratch, rows),
                    "options": dict(options or {}),
                    "native": native,
                    "commit_user": commit_user,
                    "identifier": identifier,
                }
            )
        snapshot = answer["snapshot"]
        return None if snapshot is None else int(snapshot)


def _ipc_file(folder: str, rows: pa.Table) -> str:
    path = f"{folder}/rows.arrow"
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return path


@pytest.fixture(scope="session")
def pypaimon() -> Iterator[Pypaimon]:
    """Installed into the cache if absent; fails, saying why, where it cannot be had."""
    driver = Pypaimon(build_tool(PYPAIMON / "build"))
    yield driver
    driver.close()
