"""Reads and writes tables with pypaimon, in a separate environment, for tests/support/pypaimon.py.

A request is a line of JSON with `op` and its arguments. The answer is lines of JSON, then `.ok`, or `.failed ` and a
JSON object {code, message}. Rows are passed as Arrow IPC files.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import pyarrow as pa
import pyarrow.ipc
from pypaimon import CatalogFactory, Schema
from pypaimon.read.table_read import TableRead

NATIVE_OPTIONS = ("read.native.enabled", "write.native.enabled", "commit.native.enabled")


class NotNative(Exception):
    """pypaimon-rust was requested, but pypaimon would have silently used Python."""


def refuse_fallback(self: Any, reason: str, error: Exception | None = None, log: bool = False) -> None:
    raise NotNative(reason) from error


def open_catalog(warehouse: str) -> Any:
    """warehouse: a folder, or the options of a catalog as JSON."""
    return CatalogFactory.create(json.loads(warehouse) if warehouse.startswith("{") else {"warehouse": warehouse})


def open_table(warehouse: str, table: str, options: dict[str, str], *, native: bool) -> Any:
    switches = dict.fromkeys(NATIVE_OPTIONS, "true" if native else "false")
    return open_catalog(warehouse).get_table(table).copy({**switches, **options})


def read(warehouse: str, table: str, output: str, options: dict[str, str], native: bool) -> dict[str, Any]:
    builder = open_table(warehouse, table, options, native=native).new_read_builder()
    splits = builder.new_scan().plan().splits()
    reader = builder.new_read()
    if native:
        reader._native_fallback = refuse_fallback.__get__(reader, TableRead)
    rows = reader.to_arrow(splits)
    with pa.OSFile(output, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return {"rows": rows.num_rows, "splits": len(splits)}


def create(
    warehouse: str, table: str, schema: str, primary_keys: list[str], partition_keys: list[str], options: dict[str, str]
) -> dict[str, Any]:
    with pa.OSFile(schema, "rb") as source:
        arrow = pa.ipc.open_file(source).schema
    catalog = open_catalog(warehouse)
    catalog.create_database(table.split(".", maxsplit=1)[0], True)
    declared = Schema.from_pyarrow_schema(
        arrow, primary_keys=primary_keys or None, partition_keys=partition_keys or None, options=options
    )
    catalog.create_table(table, declared, False)
    return {}


def write(
    warehouse: str,
    table: str,
    rows: str,
    options: dict[str, str],
    native: bool,
    commit_user: str | None,
    identifier: int | None,
) -> dict[str, Any]:
    with pa.OSFile(rows, "rb") as source:
        data = pa.ipc.open_file(source).read_all()
    target = open_table(warehouse, table, options, native=native)
    builder = target.new_stream_write_builder()
    if commit_user is not None:
        builder._with_commit_user(commit_user)
    writer = builder.new_write()
    if native and "native" not in type(writer).__name__.lower():
        raise NotNative(f"the writer is a {type(writer).__name__}")
    commit = builder.new_commit()
    try:
        writer.write_arrow(data)
        number = identifier if identifier is not None else 1
        commit.commit(writer.prepare_commit(number), number)
    finally:
        writer.close()
        commit.close()
    latest = target.snapshot_manager().get_latest_snapshot()
    return {"snapshot": latest.id if latest else None}


OPERATIONS = {"read": read, "create": create, "write": write}


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr  # output of libraries must not mix with the answers
    for line in sys.stdin:
        request = json.loads(line)
        try:
            print(json.dumps(OPERATIONS[request.pop("op")](**request)), file=answers)
            print(".ok", file=answers)
        except Exception as e:
            traceback.print_exc()
            failure = {"code": type(e).__name__, "message": f"{type(e).__name__}: {e}"}
            print(".failed " + json.dumps(failure), file=answers)
        answers.flush()


if __name__ == "__main__":
    main()
