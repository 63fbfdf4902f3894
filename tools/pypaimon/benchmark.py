"""Runs jobs of benchmarks/ with pypaimon, in a separate environment.

usage: benchmark.py JOB JSON     with the repository in PYTHONPATH; reports as described in benchmarks/clock.py

Argument `native` uses pypaimon-rust, without a fallback: if pypaimon would fall back to Python, the job fails.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.read.table_read import TableRead

from benchmarks.clock import Clock, bytes_below, tell
from benchmarks.commit_costs import CommitCosts
from benchmarks.rows import load

NATIVE_OPTIONS = ("read.native.enabled", "write.native.enabled", "commit.native.enabled")
WARM_UP_ROWS = 1_000


class NotNative(Exception):
    """pypaimon-rust was requested, but pypaimon would have silently used Python."""


def refuse_fallback(self: Any, reason: str, error: Exception | None = None, log: bool = False) -> None:
    raise NotNative(reason) from error


def switches(native: bool) -> dict[str, str]:
    return dict.fromkeys(NATIVE_OPTIONS, "true" if native else "false")


def versions() -> dict[str, str]:
    return {name: version(name) for name in ("pypaimon", "pypaimon-rust", "pyarrow")}


def new_table(
    warehouse: str, name: str, schema: pa.Schema, key: list[str], options: dict[str, str], native: bool
) -> Any:
    catalog = CatalogFactory.create({"warehouse": warehouse})
    catalog.create_database("bench", True)
    catalog.drop_table(f"bench.{name}", True)
    declared = Schema.from_pyarrow_schema(schema, primary_keys=key, options={**options, **switches(native)})
    catalog.create_table(f"bench.{name}", declared, False)
    return catalog.get_table(f"bench.{name}")


class Writer:
    def __init__(self, table: Any, native: bool) -> None:
        builder = table.new_stream_write_builder()
        self.write, self.commit = builder.new_write(), builder.new_commit()
        if native and "native" not in type(self.write).__name__.lower():
            raise NotNative(f"the writer is a {type(self.write).__name__}")

    def commit_rows(self, rows: pa.Table, identifier: int) -> None:
        self.write.write_arrow(rows)
        self.commit.commit(self.write.prepare_commit(identifier), identifier)

    def close(self) -> None:
        self.write.close()
        self.commit.close()


def flush(
    warehouse: str, files: list[str], key: list[str], key_as_text: bool, options: dict[str, str], native: bool
) -> None:
    def commit_all(name: str, rows_max: int | None) -> tuple[int, Clock]:
        clock, total = Clock(), 0
        writer: Writer | None = None
        for identifier, path in enumerate(files, 1):
            rows = load(path, key, key_as_text=key_as_text, rows_max=rows_max)
            writer = writer or Writer(new_table(warehouse, name, rows.schema, key, options, native), native)
            with clock:
                writer.commit_rows(rows, identifier)
            total += rows.num_rows
        writer.close()
        return total, clock

    commit_all("warm_up", WARM_UP_ROWS)
    total, clock = commit_all("rows", None)
    tell(total, clock, data_bytes=bytes_below(f"{warehouse}/bench.db/rows", "data-"), versions=versions())


def merge_read(warehouse: str, table: str, warm_up: str, input_rows: int, batches: bool, native: bool) -> None:
    def read(name: str, clock: Clock) -> int:
        with clock:
            target = CatalogFactory.create({"warehouse": warehouse}).get_table(name).copy(switches(native))
            builder = target.new_read_builder()
            splits = builder.new_scan().plan().splits()
            reader = builder.new_read()
            if native:
                reader._native_fallback = refuse_fallback.__get__(reader, TableRead)
            if batches:
                return sum(batch.num_rows for batch in reader.to_arrow_batch_reader(splits))
            return reader.to_arrow(splits).num_rows

    read(warm_up, Clock())
    clock = Clock()
    out_rows = read(table, clock)
    tell(input_rows, clock, out_rows=out_rows, versions=versions())


def frames(warehouse: str, question: str, input_rows: int, key: int) -> None:
    """Answer a question of benchmarks/frames.py by pypaimon-rust, with Arrow's functions over the columns it needs."""
    repetitions = {"polars": 1, "aggregate": 3, "point": 10, "first": 10}[question]
    answer: Any = None

    def ask() -> Any:
        target = CatalogFactory.create({"warehouse": warehouse}).get_table("bench.rows").copy(switches(native=True))
        builder = target.new_read_builder()
        if question == "aggregate":
            builder = builder.with_projection(["qty", "amount"])
        if question == "point":
            builder = builder.with_projection(["id", "note"])
            builder = builder.with_filter(builder.new_predicate_builder().equal("id", key))
        splits = builder.new_scan().plan().splits()
        reader = builder.new_read()
        reader._native_fallback = refuse_fallback.__get__(reader, TableRead)
        if question == "first":
            return reader.to_arrow_batch_reader(splits).read_next_batch().num_rows > 0
        rows = reader.to_arrow(splits)
        if question == "polars":
            return rows.num_rows
        if question == "point":
            return rows["note"][0].as_py()
        groups = rows.group_by("qty").aggregate([("amount", "sum")])
        return [groups.num_rows, str(sum(groups["amount_sum"].to_pylist()))]

    ask()
    clock = Clock()
    with clock:
        for _ in range(repetitions):
            answer = ask()
    tell(input_rows * repetitions, clock, answer=answer, versions=versions())


def commits(warehouse: str, total: int, rows_file: str, rows_per_commit: int, native: bool) -> None:
    rows = load(rows_file, ["id"], rows_max=rows_per_commit)
    table = new_table(warehouse, "commits", rows.schema, ["id"], {"bucket": "1", "write-only": "true"}, native)
    writer = Writer(table, native)
    costs = CommitCosts(f"{warehouse}/bench.db/commits")
    for identifier in range(1, total + 1):
        with costs:
            writer.commit_rows(rows, identifier)
    writer.close()
    tell(total, costs.total, each=costs.each, versions=versions())


JOBS = {"flush": flush, "merge_read": merge_read, "frames": frames, "commits": commits}

if __name__ == "__main__":
    JOBS[sys.argv[1]](**json.loads(sys.argv[2]))
