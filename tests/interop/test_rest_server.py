"""Clients of other projects use our REST server, beside writers that use the warehouse without it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tests.interop.commits_at_once import COLUMNS, SCHEMA, check_that_each_commit_is_there_once
from tests.support.java_oracle import JavaOracle
from tests.support.line_server import Refused
from tests.support.pypaimon import Pypaimon
from tests.support.rest_server import ServedWarehouse, serving
from tidelake.storage.fileio.local import LocalFileIO

NAME: Final = "shop.orders"


@dataclass(frozen=True, slots=True)
class OnLocalDisk:
    """The warehouse: Java uses the server, we use the directory."""

    served: ServedWarehouse

    @property
    def of_java(self) -> str:
        return self.served.of_java

    def open(self) -> tidelake.Catalog:
        return tidelake.open_catalog(self.served.warehouse)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedWarehouse]:
    with serving(str(tmp_path / "lake")) as found:
        yield found


@pytest.fixture
def lake(served: ServedWarehouse) -> tidelake.Catalog:
    return OnLocalDisk(served).open()


def upsert(lake: tidelake.Catalog, number: int, text: str) -> None:
    lake.table(NAME).upsert(pa.table({"id": [number], "v": [text]}, SCHEMA))


def ours(lake: tidelake.Catalog) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in lake.table(NAME).scan(columns=["id", "v"]).to_arrow().to_pylist())


def test_java_creates_alters_renames_and_drops_tables(
    served: ServedWarehouse, lake: tidelake.Catalog, java_oracle: JavaOracle
) -> None:
    java = served.of_java
    java_oracle.create(java, NAME, COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    for turn in range(3):
        java_oracle.write(java, NAME, [{"id": turn, "v": "java"}])
        upsert(lake, 10 + turn, "ours")
    java_oracle.alter(
        java,
        NAME,
        [
            {"add": {"name": "m", "type": "INT", "after": "id"}},
            {"rename": {"name": "v", "to": "w"}},
            {"type": {"name": "m", "type": "BIGINT"}},
            {"set": {"key": "snapshot.num-retained.max", "value": "100"}},
        ],
    )
    assert lake.table(NAME).schema.names == ["id", "m", "w"]
    java_oracle.alter(java, NAME, [{"rename": {"name": "w", "to": "v"}}, {"drop": {"name": "m"}}])
    expected = [(turn + more, who) for more, who in ((0, "java"), (10, "ours")) for turn in range(3)]
    assert ours(lake) == expected
    assert sorted((row["id"], row["v"]) for row in java_oracle.read(java, NAME)) == expected
    java_oracle.command("rename", java, NAME, "shop.renamed")
    assert java_oracle.command("tables", java, "shop.any") == [{"table": "renamed"}]
    assert lake.list_tables("shop") == ["renamed"]
    java_oracle.command("drop", java, "shop.renamed")
    assert lake.list_tables("shop") == []


def test_java_tags_branches_and_rolls_back(
    served: ServedWarehouse, lake: tidelake.Catalog, java_oracle: JavaOracle
) -> None:
    java = served.of_java
    java_oracle.create(java, NAME, COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    for number in (1, 2, 3):
        java_oracle.write(java, NAME, [{"id": number, "v": "java"}])
    java_oracle.command("tag", java, NAME, "second", snapshot=2)
    java_oracle.command("branch", java, NAME, "b", tag="second")
    java_oracle.write(java, NAME, [{"id": 9, "v": "branch"}], branch="b")
    assert [row["id"] for row in java_oracle.read(java, NAME, tag="second")] == [1, 2]
    assert sorted(lake.table(f"{NAME}$branch_b").scan().to_arrow()["id"].to_pylist()) == [1, 2, 9]
    java_oracle.command("rollback", java, NAME, snapshot=2)
    assert [row["id"] for row in java_oracle.read(java, NAME)] == [1, 2]
    assert list(lake.table(NAME).tags()) == ["second"]
    java_oracle.command("step", java, NAME, json={"op": "deleteTag", "name": "second"})
    assert not lake.table(NAME).tags()
    java_oracle.command("step", java, NAME, json={"op": "fastForward", "name": "b"})
    assert [number for number, _ in ours(lake)] == [1, 2, 9]


def test_java_reports_what_the_server_refuses_by_its_kind(
    served: ServedWarehouse, lake: tidelake.Catalog, java_oracle: JavaOracle
) -> None:
    java = served.of_java
    java_oracle.create(java, NAME, COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    refused: dict[str, Callable[[], object]] = {
        "TableNotExistException": lambda: java_oracle.read(java, "shop.missing"),
        "TableAlreadyExistException": lambda: java_oracle.create(java, NAME, COLUMNS),
        "ColumnNotExistException": lambda: java_oracle.alter(java, NAME, {"drop": {"name": "x"}}),
        "ColumnAlreadyExistException": lambda: java_oracle.alter(java, NAME, {"add": {"name": "v", "type": "INT"}}),
        "UnsupportedOperationException": lambda: java_oracle.create(
            java, "shop.f", COLUMNS, options={"type": "object-table"}
        ),
    }
    for kind, call in refused.items():
        with pytest.raises(Refused) as error:
            call()
        assert kind in str(error.value), kind


def test_java_lists_partitions_of_the_server(served: ServedWarehouse, java_oracle: JavaOracle) -> None:
    java = served.of_java
    java_oracle.create(java, NAME, COLUMNS, partition_keys=["v"], options={"metastore.partitioned-table": "true"})
    java_oracle.write(java, NAME, [{"id": 1, "v": "a"}, {"id": 2, "v": "a"}, {"id": 3, "v": "b/c"}])
    partitions = java_oracle.system(java, NAME, "partitions")
    assert [(row["partition"], row["record_count"]) for row in partitions] == [("v=a", 2), ("v=b/c", 1)]


def test_pypaimon_writes_beside_java_and_us(
    served: ServedWarehouse, lake: tidelake.Catalog, java_oracle: JavaOracle, pypaimon: Pypaimon
) -> None:
    java = served.of_java
    pypaimon.create(java, NAME, SCHEMA, primary_keys=["id"], options={"bucket": "1"})
    for turn in range(2):
        pypaimon.write(java, NAME, pa.table({"id": [turn], "v": ["pypaimon"]}, SCHEMA), identifier=turn)
        java_oracle.write(java, NAME, [{"id": 10 + turn, "v": "java"}])
        upsert(lake, 20 + turn, "ours")
    expected = [(more + turn, who) for more, who in ((0, "pypaimon"), (10, "java"), (20, "ours")) for turn in range(2)]
    assert ours(lake) == expected
    by_pypaimon = pypaimon.read(java, NAME).to_pylist()
    assert sorted((row["id"], row["v"]) for row in by_pypaimon) == expected


def test_a_commit_of_java_that_loses_the_race_is_built_again_on_ours(
    served: ServedWarehouse, lake: tidelake.Catalog, java_oracle: JavaOracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We commit in the moment in which Java, without the server, would replace our snapshot: between its look at the
    directory and its rename.
    """
    java_oracle.create(served.of_java, NAME, COLUMNS, options={"bucket": "-1"})
    create_if_absent = LocalFileIO.create_if_absent
    raced: list[str] = []

    def commit_before(self: LocalFileIO, path: str, data: bytes) -> bool:
        if "/snapshot/snapshot-" in path and not raced:
            raced.append(path)
            lake.table(NAME).append(pa.table({"id": [10], "v": ["ours"]}, SCHEMA))
        return create_if_absent(self, path, data)

    monkeypatch.setattr(LocalFileIO, "create_if_absent", commit_before)
    java_oracle.write(served.of_java, NAME, [{"id": 1, "v": "java"}], commit_user="java")
    assert raced == [f"{served.warehouse}/shop.db/orders/snapshot/snapshot-1"]
    assert ours(lake) == [(1, "java"), (10, "ours")]
    first, second = lake.table(NAME).snapshots()
    assert (first.commit_user != "java", second.commit_user) == (True, "java")


def change(offset: int) -> str:
    """One record of a change log."""
    source = {"db": "shop", "schema": "public", "table": "orders", "connector": "postgresql"}
    key, row = json.dumps({"id": offset}), {"id": offset, "v": "pipeline"}
    value = json.dumps({"before": None, "after": row, "op": "c", "source": source})
    return json.dumps({"topic": "log", "partition": 0, "offset": offset, "key": key, "value": value}) + "\n"


@pytest.mark.interop
def test_java_commits_to_the_table_of_a_running_pipeline(
    served: ServedWarehouse, lake: tidelake.Catalog, java_oracle: JavaOracle, tmp_path: Path
) -> None:
    """The pipeline writes and compacts in the directory, and Java through the server, to one bucket of one table.

    As always with two writers of a bucket, a field orders their rows, and only one of them compacts.
    """
    options = {"bucket": "1", "sequence.field": "v"}
    java_oracle.create(served.of_java, NAME, COLUMNS, primary_keys=["id"], options=options)
    changes, config, turns = tmp_path / "changes", tmp_path / "shop.yaml", 30
    changes.mkdir()
    config.write_text(
        f"warehouse: {served.warehouse}\nsource: {{type: change-log-folder, path: {changes}}}\n"
        f"tables: [{{name: {NAME}}}]\ncheckpoint: {{interval_ms: 100}}\n"
    )
    command = [sys.executable, "-m", "tidelake", "ingest", "run", str(config), "--log-level", "error"]
    pipeline = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def wait_for_rows(count: int) -> None:
        deadline = time.monotonic() + 120
        while lake.table(NAME).scan().count() < count and time.monotonic() < deadline:
            assert pipeline.poll() is None, pipeline.communicate()
            time.sleep(0.05)

    try:
        for turn in range(turns):
            (changes / f"{turn:02}.jsonl").write_text("".join(map(change, range(turn * 10, turn * 10 + 10))))
            if turn == 0:
                wait_for_rows(10)
            row, only = {"id": 1000 + turn, "v": "java"}, {"write-only": "true"}
            java_oracle.write(served.of_java, NAME, [row], commit_user="java", options=only)
        wait_for_rows(turns * 11)
        pipeline.send_signal(signal.SIGTERM)
        _, errors = pipeline.communicate(timeout=60)
    finally:
        pipeline.kill()
        pipeline.wait()
    assert (pipeline.returncode, errors.startswith("stopped: ")) == (0, True)
    expected = [*((n, "pipeline") for n in range(turns * 10)), *((1000 + turn, "java") for turn in range(turns))]
    assert ours(lake) == expected
    assert sorted((row["id"], row["v"]) for row in java_oracle.read(served.of_java, NAME)) == expected
    users = [snapshot.commit_user == "java" for snapshot in lake.table(NAME).snapshots()]
    assert users != sorted(users)  # their commits alternate


@pytest.fixture
def more_java(java_oracle: JavaOracle) -> Iterator[list[JavaOracle]]:
    """Two JVMs at once; `java_oracle` is the first."""
    second = JavaOracle()
    yield [java_oracle, second]
    second.close()


@pytest.mark.interop
@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.long)])
def test_on_a_local_disk_no_commit_of_java_replaces_ours(
    count: int, served: ServedWarehouse, more_java: list[JavaOracle]
) -> None:
    """Without a lock: Java commits through the server, we commit beside it."""
    check_that_each_commit_is_there_once(OnLocalDisk(served), NAME, more_java, count)
