"""On a cluster whose drivers, executors and tasks die at any moment, each record counts once in every kind of table."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.crash.points import Points
from tests.support.service import Service
from tests.support.spark_classes import short_lived_jvm
from tests.support.spark_cluster import spark_cluster
from tests.support.unlucky_workers import DIES, SLEEPS, UnluckyWorkers
from tidelake.spark import procedures
from tidelake.storage.maintenance.verify.orphan_files import Orphans
from tidelake.storage.model.format import CommitKind
from tidelake.verification import inspect_table

_SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64())])
_APPEND: Final = pa.schema([("id", pa.int64()), ("n", pa.int64())])
_NAMES: Final = ("newest", "sums", "all", "indexed", "moving")
_KEYS: Final = 50
_LINES: Final = 50  # of each table in a file
_FILES: Final = 16  # a batch of the query takes eight
_WHAT: Final = {
    "driver": "a driver killed",
    "executor": "an executor killed",
    DIES: "a task killed that has written",
    SLEEPS: "a slow task that is copied",
}


@pytest.mark.interop
@pytest.mark.needs("Spark")
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param({"driver": 1, "executor": 1, DIES: 1, SLEEPS: 1}, id="4 kills", marks=pytest.mark.timeout(1200)),
        pytest.param(
            {"driver": 6, "executor": 14, DIES: 16, SLEEPS: 14},
            id="50 kills",
            marks=[pytest.mark.long, pytest.mark.timeout(3600)],
        ),
    ],
)
def test_killed_or_duplicated_drivers_executors_and_tasks_count_each_record_once(
    kills: Mapping[str, int], tmp_path: Path, points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # of executors; they have our packages on this machine
    lake, log = str(tmp_path / "lake"), _Log(tmp_path / "log")
    tables = _create(lake)
    workers = UnluckyWorkers(tmp_path / "lots")
    configuration = {
        "pipeline": "killed",
        "warehouse": lake,
        "source": {"type": "change-log-folder", "path": str(log.folder)},
        "tables": [{"name": f"shop.{name}", "match": name} for name in tables],
        "checkpoint": {"interval_ms": 100},
    }
    chosen = random.Random(15)
    (tmp_path / "cluster").mkdir()
    with spark_cluster(tmp_path / "cluster") as cluster, ExitStack() as processes:
        command = ["spark", "run", "--master", cluster.url, "--conf", "spark.driver.host=127.0.0.1"]
        settings = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": short_lived_jvm()}
        settings |= {"spark.task.maxFailures": "10", **workers.settings}
        command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        driver = processes.enter_context(Service(tmp_path, command, configuration))
        moments = [what for what, count in kills.items() for _ in range(count)]
        chosen.shuffle(moments)
        driver.start()
        for what in moments:
            if what in (DIES, SLEEPS):
                _let_a_task(what, workers, driver, log)
            else:
                _once_it_commits(driver, log, tables)
                time.sleep(chosen.uniform(0, 2))
                if what == "driver":
                    driver.kill()
                    driver.start()
                else:
                    _kill_an_executor(tmp_path / "cluster", chosen)
            points.tried(f"Spark's cluster: {_WHAT[what]}")
        driver.wait_until(lambda: all(_end(table, f"d.s.{name}") == log.records for name, table in tables.items()))
        driver.kill()
    _assert_exactly_once(tables, log.records)
    soon = (datetime.now() + timedelta(minutes=1)).isoformat(sep=" ")
    swept = procedures.remove_orphan_files("shop.*", lake, older_than=soon)
    assert swept.deleted_file_count >= kills[DIES]  # what they had written
    for table in tables.values():
        found = inspect_table(table, deep=True, orphans_older_than_ms=-60_000)
        assert (found.problems, found.orphans) == ([], Orphans((), 0, 0))
    _assert_exactly_once(tables, log.records)


def _let_a_task(lot: str, workers: UnluckyWorkers, driver: Service, log: _Log) -> None:
    before = workers.done(lot)
    workers.give(lot)
    log.grow()
    driver.wait_until(lambda: workers.done(lot) > before)


def _once_it_commits(driver: Service, log: _Log, tables: Mapping[str, tidelake.Table]) -> None:
    """While it has more to do."""
    before = _snapshots(tables)
    log.grow()
    driver.wait_until(lambda: _snapshots(tables) > before)


def _assert_exactly_once(tables: Mapping[str, tidelake.Table], total: int) -> None:
    newest = {id_: total - _KEYS + id_ for id_ in range(_KEYS)}
    for name in ("newest", "indexed", "moving"):
        assert _rows(tables[name]) == newest, name
    assert _rows(tables["sums"]) == {id_: sum(range(id_, total, _KEYS)) for id_ in range(_KEYS)}
    assert sorted(tables["all"].scan().to_arrow()["n"].to_pylist()) == list(range(total))
    for table in tables.values():
        batches = Counter(s.commit_identifier for s in table.snapshots() if s.commit_kind is CommitKind.APPEND)
        assert set(batches.values()) == {1}


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


class _Log:
    """A folder that grows. Records of all tables in turn; n counts them, and ids come again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._files = 0

    @property
    def records(self) -> int:
        """Of each table."""
        return self._files * _LINES

    def grow(self) -> None:
        """By some batches of the query."""
        for _ in range(_FILES):
            lines = [self._line(name, n) for n in range(self.records, self.records + _LINES) for name in _NAMES]
            unfinished = self.folder / f"{self._files:06}.tmp"
            unfinished.write_text("".join(line + "\n" for line in lines))
            os.utime(unfinished, (self._files, self._files))  # Spark reads files in the order of their times
            unfinished.rename(unfinished.with_suffix(".jsonl"))
            self._files += 1

    @staticmethod
    def _line(name: str, n: int) -> str:
        row = {"id": n % _KEYS, "n": n, **({"day": n // 30 % 4} if name == "moving" else {})}
        value = {"before": None, "after": row, "op": "c", "source": {"db": "d", "schema": "s", "table": name}}
        line: dict[str, Any] = {"topic": f"d.s.{name}", "partition": 0, "offset": n, "timestamp_ms": n}
        return json.dumps({**line, "key": json.dumps({"id": row["id"]}), "value": json.dumps(value)})


def _snapshots(tables: Mapping[str, tidelake.Table]) -> int:
    return sum(table.context.snapshots.latest_id() or 0 for table in tables.values())


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
