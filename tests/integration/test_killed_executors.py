"""Executors and drivers of a cluster that are killed at any moment count each record once, in every kind of table."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from storage.format import CommitKind
from storage.verify import verify
from tests.support.service import Service
from tests.support.spark_cluster import spark_cluster
from tidelake.spark import procedures

_SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64())])
_APPEND: Final = pa.schema([("id", pa.int64()), ("n", pa.int64())])
_KEYS: Final = 50
_LINES: Final = 200


@pytest.mark.interop
@pytest.mark.needs("Spark")
@pytest.mark.parametrize(
    ("files", "executor_kills", "driver_kills"),
    [
        pytest.param(24, 2, 1, id="3 kills", marks=pytest.mark.timeout(900)),
        pytest.param(1_000, 40, 15, id="55 kills", marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
def test_killed_executors_and_drivers_count_each_record_once(
    files: int, executor_kills: int, driver_kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # of executors; they have our packages on this machine
    tables = _create(str(tmp_path / "lake"))
    _write_log(tmp_path / "log", files)
    configuration = {
        "pipeline": "killed",
        "warehouse": str(tmp_path / "lake"),
        "source": {"type": "change-log-folder", "path": str(tmp_path / "log")},
        "tables": [{"name": f"shop.{name}", "match": name} for name in tables],
        "checkpoint": {"interval_ms": 100},
    }
    chosen = random.Random(15)
    (tmp_path / "cluster").mkdir()
    with spark_cluster(tmp_path / "cluster") as cluster, ExitStack() as processes:
        command = ["spark", "run", "--master", cluster.url, "--conf", "spark.driver.host=127.0.0.1"]
        command += ["--conf", "spark.executor.memory=512m", "--conf", "spark.task.maxFailures=10"]
        driver = processes.enter_context(Service(tmp_path, command, configuration))
        kills = ["executor"] * executor_kills + ["driver"] * driver_kills
        chosen.shuffle(kills)
        driver.start()
        for what in kills:
            seen = _snapshots(tables)
            driver.wait_until(lambda seen=seen: _snapshots(tables) > seen or _is_done(tables, files))  # type: ignore[misc]
            time.sleep(chosen.uniform(0, 1))
            if what == "driver":
                driver.kill()
                driver.start()
            else:
                _kill_an_executor(tmp_path / "cluster", chosen)
        driver.wait_until(lambda: _is_done(tables, files))
        driver.kill()
        driver.run_to_the_end()
    total = files * _LINES
    for name in ("newest", "indexed", "moving"):
        assert _rows(tables[name]) == {id_: total - _KEYS + id_ for id_ in range(_KEYS)}, name
        assert verify(tables[name].context, deep=True) == []
    assert _rows(tables["sums"]) == {id_: sum(range(id_, total, _KEYS)) for id_ in range(_KEYS)}
    assert sorted(tables["all"].scan().to_arrow()["n"].to_pylist()) == list(range(total))
    for table in tables.values():
        batches = Counter(s.commit_identifier for s in table.snapshots() if s.commit_kind is CommitKind.APPEND)
        assert set(batches.values()) == {1}
    soon = (datetime.now() + timedelta(minutes=1)).isoformat(sep=" ")
    procedures.remove_orphan_files("shop.*", str(tmp_path / "lake"), older_than=soon)
    assert procedures.remove_orphan_files("shop.*", str(tmp_path / "lake"), older_than=soon) == (0, 0)
    assert _rows(tables["newest"]) == {id_: total - _KEYS + id_ for id_ in range(_KEYS)}


def _create(lake: str) -> dict[str, tidelake.Table]:
    catalog = tidelake.open_catalog(lake)
    catalog.create_database("shop")
    keep = {"snapshot.num-retained.min": "1000000", "snapshot.num-retained.max": "1000000"}
    sums = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "bucket": "2"}
    indexed = {"bucket": "-1", "dynamic-bucket.target-row-num": "7", **keep}
    days = pa.schema([*_SCHEMA, pa.field("day", pa.int32(), False)])
    return {
        "indexed": catalog.create_table(
            "shop.indexed", _SCHEMA, primary_key=["id"], options={"dynamic-bucket.initial-buckets": "3", **indexed}
        ),
        "moving": catalog.create_table("shop.moving", days, primary_key=["id"], partition_by=["day"], options=indexed),
        "newest": catalog.create_table("shop.newest", _SCHEMA, primary_key=["id"], options={"bucket": "3", **keep}),
        "sums": catalog.create_table("shop.sums", _SCHEMA, primary_key=["id"], options={**sums, **keep}),
        "all": catalog.create_table("shop.all", _APPEND, options=keep),
    }


def _write_log(folder: Path, files: int) -> None:
    """Records of all tables in turn; n counts them, and ids come again and again."""
    folder.mkdir()
    for number in range(files):
        lines = []
        for n in range(number * _LINES, (number + 1) * _LINES):
            for name in ("newest", "sums", "all", "indexed", "moving"):
                row = {"id": n % _KEYS, "n": n, **({"day": n // 30 % 4} if name == "moving" else {})}
                source = {"db": "d", "schema": "s", "table": name}
                value = {"before": None, "after": row, "op": "c", "source": source}
                line: dict[str, Any] = {"topic": f"d.s.{name}", "partition": 0, "offset": n, "timestamp_ms": n}
                lines.append(json.dumps({**line, "key": json.dumps({"id": row["id"]}), "value": json.dumps(value)}))
        path = folder / f"{number:06}.jsonl"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (number, number))  # Spark reads files in the order of their times


def _snapshots(tables: dict[str, tidelake.Table]) -> int:
    return sum(table.context.snapshots.latest_id() or 0 for table in tables.values())


def _is_done(tables: dict[str, tidelake.Table], files: int) -> bool:
    return all(_end(table, f"d.s.{name}") == files * _LINES for name, table in tables.items())


def _end(table: tidelake.Table, topic: str) -> int:
    latest = table.context.snapshots.latest()
    if latest is None or "tidelake.position" not in latest.properties:
        return 0
    found = json.loads(latest.properties["tidelake.position"])["topics"].get(topic)
    return 0 if found is None else int(found["end"][0])


def _rows(table: tidelake.Table) -> dict[int, int]:
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == len({row["id"] for row in rows})
    return {row["id"]: row["n"] for row in rows}


def _kill_an_executor(cluster: Path, chosen: random.Random) -> None:
    """Its Python workers go with it."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            is_ours = process.name.isdecimal() and str(cluster) in os.readlink(process / "cwd")
            if is_ours and b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    if found:
        with suppress(ProcessLookupError):
            os.kill(chosen.choice(found), signal.SIGKILL)
