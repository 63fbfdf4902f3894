"""A pipeline whose batches are decoded in processes, which are killed now and then, ends as one that decodes itself."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.crash.points import Points
from tests.ingest.decoding.pools import use_processes_for_all
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tidelake.errors import TidelakeError
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.decoding.decode_pool import DecodePool
from tidelake.ingest.decoding.decoder_process import DecodeTask
from tidelake.ingest.pipeline.builder import build_pipeline

PARTITIONS: Final = 3
TABLES: Final = ("orders", "items")
SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), False), ("note", pa.string()), ("qty", pa.int32())])

Value = Mapping[str, Any] | bytes | None
Log = Callable[[str, int, Value], None]
"""(source table, partition, record): appends a record."""


def change(op: str, before: Any, after: Any, table: str) -> dict[str, Any]:
    source = {"connector": "mysql", "db": "shop", "table": table, "ts_ms": 1_700_000_000_000}
    return {"op": op, "before": before, "after": after, "source": source, "ts_ms": 1_700_000_000_000}


def row(key: int, **more: Any) -> dict[str, Any]:
    return {"id": key, "note": f"ü{key}" if key % 5 else None, "qty": key * 3, **more}


def history(log: Log, shape: Callable[[int], Mapping[str, Any]] = lambda number: {}, count: int = 240) -> None:
    """Inserts, updates and deletes of both tables. shape: more columns of the n-th record."""
    for number in range(count):
        for table in TABLES:
            key = number % 60
            now = row(key, **shape(number))
            op = "d" if number % 7 == 6 else "u" if number >= 60 else "c"
            value = change(op, now if op != "c" else None, None if op == "d" else now, table)
            log(table, key % PARTITIONS, value)


def with_a_new_column(log: Log) -> None:
    history(log, lambda number: {"added": f"a{number}"} if number >= 100 else {})


def with_wider_values(log: Log) -> None:
    history(log, lambda number: {"n": number if number < 100 else number + 2**40, "x": 1})


def with_bad_records(log: Log) -> None:
    def spoiled(table: str, partition: int, value: Value) -> None:
        log(table, partition, value)
        assert isinstance(value, dict)
        key = (value["after"] or value["before"])["id"]
        for bad in (b"no JSON", b"", b"{}", json.dumps({**value, "op": "?"}).encode(), None)[key % 9 :][:1]:
            log(table, partition, bad)

    history(log, count=120)
    history(spoiled, count=120)


def with_a_truncate(log: Log) -> None:
    """In one partition each: only then it is certain which rows were before it."""

    def alone(table: str, _: int, value: Value) -> None:
        log(table, 0, value)

    history(alone, count=80)
    alone("orders", 0, change("t", None, None, "orders"))
    history(alone, count=80)


def with_many_tables(log: Log) -> None:
    for number in range(600):
        table = f"t{number % 200}"
        log(table, number % PARTITIONS, change("c", None, row(number), table))


@dataclass(frozen=True)
class Case:
    """A configuration besides the tables' names, and what is sent."""

    send: Callable[[Log], None]
    text: str = ""
    tables: Sequence[str] = field(default=tuple(f"{{name: lake.{name}, match: shop.{name}}}" for name in TABLES))
    creates: bool = True  # otherwise the tables exist
    uses_processes: bool = True  # otherwise the pipeline decodes itself: a process knows one table of a source table


def _shaped(text: str) -> tuple[str, ...]:
    return tuple(f"{{name: lake.{name}, match: shop.{name}, primary_key: [id], {text}}}" for name in TABLES)


CASES: Final = {
    "changes of tables that exist": Case(history, creates=False),
    "tables that their first record creates": Case(history, tables=_shaped("columns: {id: BIGINT, qty: INT}")),
    "a new column in the middle": Case(with_a_new_column, "schema_evolution: {mode: evolve}", creates=False),
    "wider values in the middle": Case(
        with_wider_values, "schema_evolution: {mode: evolve}", tables=_shaped("columns: {id: BIGINT, n: INT, qty: INT}")
    ),
    "a new column that stops the pipeline": Case(
        with_a_new_column, "schema_evolution: {mode: exception}", creates=False
    ),
    "a new column that one table waits for in quarantine": Case(
        with_a_new_column,
        "schema_evolution: {mode: exception}\nquarantine: {retry_ms_min: 60000, retry_ms_max: 60000}",
        creates=False,
    ),
    "bad records that become dead letters": Case(with_bad_records, "errors: {tolerance: all}", creates=False),
    "a bad record that stops the pipeline": Case(with_bad_records, creates=False),
    "truncates": Case(with_a_truncate, creates=False),
    "columns that are renamed, dropped and masked, and a filter": Case(
        history,
        "mask_salt: pepper",
        tables=_shaped(
            "columns: {id: BIGINT, qty: INT}, rename_columns: {note: remark}, masks: {remark: hash}, "
            'filter: "qty > 30 OR qty IS NULL"'
        ),
    ),
    "computed columns and metadata": Case(
        history,
        tables=_shaped('columns: {id: BIGINT, qty: INT}, computed_columns: {half: "truncate(note, 1)"}'),
    ),
    "an audit log": Case(
        history,
        tables=tuple(f"{{name: lake.{name}, match: shop.{name}, mode: append, primary_key: []}}" for name in TABLES),
    ),
    "versions of rows": Case(history, tables=_shaped("columns: {id: BIGINT, qty: INT}, mode: scd2")),
    "a keyed table and a history of the same records": Case(
        history,
        tables=(
            *_shaped("columns: {id: BIGINT, qty: INT}"),
            *(f"{{name: lake.{name}_log, match: shop.{name}, mode: append}}" for name in TABLES),
        ),
        uses_processes=False,
    ),
    "two hundred tables that records name": Case(
        with_many_tables, tables=('{name: "lake.{table}", primary_key: [id], columns: {}}',)
    ),
}


def log_of(case: Case) -> MemoryLog:
    log = MemoryLog()

    def append(table: str, partition: int, value: Value) -> None:
        octets = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        image = {} if not isinstance(value, dict) else value["after"] or value["before"] or {}
        key = json.dumps({"id": image["id"]}).encode() if "id" in image else None
        log.append(f"shop.{table}", octets, key, partition)

    case.send(append)
    return log


def outcome(case: Case, processes: int, home: Path) -> tuple[Mapping[str, Any], int]:
    """What is left of a run: each table with its columns, the dead letters, the error. And how many batches were
    decoded in processes.
    """
    config = parse_config(
        "\n".join(
            [
                "pipeline: p",
                f"warehouse: {home}/lake",
                f"source: {{type: change-log-folder, path: {home}/none, until: end, decode_processes: {processes}}}",
                "checkpoint: {interval_ms: 600000}",  # at the end only, so that no time decides
                f"tables: [{', '.join(case.tables)}]",
                case.text,
            ]
        ),
        "p.yaml",
    )
    catalog = tidelake.open_catalog(f"{home}/lake")
    catalog.create_database("lake")
    for name in () if case.creates else TABLES:
        catalog.create_table(f"lake.{name}", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    log = log_of(case)
    pipeline = build_pipeline(config, open_source=lambda: MemoryLogSource(log, batch_records=9))
    error = ""
    try:
        asyncio.run(pipeline.run())
    except TidelakeError as refused:
        error = f"{type(refused).__name__}: {refused}".replace(str(home), "")
    left: dict[str, Any] = {"error": error, "dead letters": dead_letters(home)}
    for name in sorted(catalog.list_tables("lake")):
        table = catalog.table(f"lake.{name}").scan().to_arrow()
        left[name] = table.schema, sorted(map(repr, table.to_pylist()))
    observed = pipeline.observed
    left["counts"] = dict(observed.skipped), dict(observed.dead_letters)
    if "quarantine" not in case.text:  # records are read again for a table in quarantine, more or fewer
        left["counts"] = *left["counts"], observed.records
    return left, observed.decoding.batches


def dead_letters(home: Path) -> list[Any]:
    """Without the times at which they were written."""
    lines = [line for path in sorted(home.rglob("*.jsonl")) for line in path.read_text().splitlines()]
    found = [{name: value for name, value in json.loads(line).items() if "failed" not in name} for line in lines]
    return sorted(found, key=lambda letter: (letter["topic"], letter["partition"], letter["offset"]))


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch, points: Points) -> None:
    """Pipelines use their processes, and lose some of them."""
    use_processes_for_all(monkeypatch)
    begin, chance, left = DecodePool.begin, random.Random(8), [3]

    async def begin_and_kill(pool: DecodePool, task: DecodeTask) -> None:
        await begin(pool, task)
        if left[0] and pool.pids and chance.random() < 0.1:
            left[0] -= 1
            os.kill(chance.choice(pool.pids), signal.SIGKILL)
            points.tried("a pipeline's decoding process was killed")

    monkeypatch.setattr(DecodePool, "begin", begin_and_kill)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("kills")
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_pipeline_ends_as_one_that_decodes_itself(case: Case, tmp_path: Path) -> None:
    expected, in_processes = outcome(case, 0, tmp_path / "alone")
    assert in_processes == 0
    found, in_processes = outcome(case, 2, tmp_path / "processes")
    assert (in_processes > 0) is case.uses_processes
    assert found == expected
    assert len(expected) > 3, "no table was written"
