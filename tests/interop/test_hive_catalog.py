"""Java and Tidelake work on one Hive metastore at once: names, schemas, partitions, commits under its lock."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.hive_metastore import HiveLake, HiveMetastore
from tests.support.java_oracle import JavaOracle

COLUMNS: Final[list[dict[str, object]]] = [
    {"name": "id", "type": "BIGINT", "nullable": False},
    {"name": "v", "type": "STRING"},
]
SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


def upsert(table: tidelake.Table, number: int, text: str) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": [number], "v": [text]}, SCHEMA))
        writer.commit()


def test_each_goes_on_from_the_others_tables(hive_lake: HiveLake, java_with_hive: JavaOracle) -> None:
    java, name = hive_lake.of_java, hive_lake.name("orders")
    java_with_hive.create(java, name, COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    java_with_hive.write(java, name, [{"id": 1, "v": "java"}])
    lake = hive_lake.open()
    assert lake.list_tables(hive_lake.database) == ["orders"]
    upsert(lake.table(name), 2, "ours")
    lake.alter_table(name, [tidelake.AddColumn("amount", pa.int32())])
    java_with_hive.write(java, name, [{"id": 3, "v": "java", "amount": 7}])
    rows = [(1, "java", None), (2, "ours", None), (3, "java", 7)]
    expected = [dict(zip(("id", "v", "amount"), row, strict=True)) for row in rows]
    assert lake.table(name).scan().to_arrow().sort_by("id").to_pylist() == expected
    assert sorted(java_with_hive.read(java, name), key=lambda row: row["id"]) == expected


def test_what_one_creates_renames_and_drops_the_other_sees(hive_lake: HiveLake, java_with_hive: JavaOracle) -> None:
    java, lake = hive_lake.of_java, hive_lake.open()
    lake.create_database(hive_lake.database)
    lake.create_table(hive_lake.name("orders"), SCHEMA, primary_key=["id"], options={"bucket": "1"})
    java_with_hive.write(java, hive_lake.name("orders"), [{"id": 1, "v": "java"}])
    java_with_hive.command("rename", java, hive_lake.name("orders"), hive_lake.name("renamed"))
    assert lake.list_tables(hive_lake.database) == ["renamed"]
    java_with_hive.alter(java, hive_lake.name("renamed"), {"add": {"name": "n", "type": "INT"}})
    assert lake.table(hive_lake.name("renamed")).schema.names == ["id", "v", "n"]
    lake.rename_table(hive_lake.name("renamed"), hive_lake.name("again"))
    assert java_with_hive.command("tables", java, hive_lake.name("any")) == [{"table": "again"}]
    java_with_hive.command("drop", java, hive_lake.name("again"))
    assert lake.list_tables(hive_lake.database) == []
    lake.drop_database(hive_lake.database)


def _commits(lake: HiveLake, worker: int, count: int) -> None:
    """One process: each commit is a row of its own, under a user and identifiers of its own."""
    table = lake.open().table(lake.name("orders"))
    with table.writer(commit_user=f"ours-{worker}") as writer:
        for identifier in range(1, count + 1):
            writer.write(pa.table({"id": [worker * 1_000 + identifier], "v": [f"ours-{worker}"]}, SCHEMA))
            writer.commit(identifier=identifier)


@pytest.fixture
def more_java(java_with_hive: JavaOracle, hive_metastore: HiveMetastore) -> Iterator[list[JavaOracle]]:
    """Two JVMs beside each other; `java_with_hive` is the first."""
    second = JavaOracle(class_path=hive_metastore.class_path)
    yield [java_with_hive, second]
    second.close()


@pytest.mark.interop
@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.long)])
def test_each_of_many_commits_at_once_is_there_exactly_once(
    count: int, hive_lake: HiveLake, more_java: list[JavaOracle]
) -> None:
    """Append commits of a table without a key: nobody waits for a bucket, only for the next snapshot."""
    ours, java, name = 6, hive_lake.of_java, hive_lake.name("orders")
    more_java[0].create(
        java, name, COLUMNS, options={"bucket": "-1", "commit.max-retries": "1000", "snapshot.num-retained.min": "1000"}
    )

    def java_commits(worker: int) -> None:
        rows = [{"id": (10 + worker) * 1_000 + n, "v": f"java-{worker}"} for n in range(1, count + 1)]
        more_java[worker].write(java, name, rows, commit_user=f"java-{worker}", batches=count)

    with (
        ProcessPoolExecutor(ours, mp_context=multiprocessing.get_context("spawn")) as processes,
        ThreadPoolExecutor(len(more_java)) as threads,
    ):
        work: list[Future[None]] = [processes.submit(_commits, hive_lake, worker, count) for worker in range(ours)]
        work += [threads.submit(java_commits, worker) for worker in range(len(more_java))]
        for done in work:
            done.result()
    table = hive_lake.open().table(name)
    users = Counter(row["v"] for row in table.scan().to_arrow().to_pylist())
    assert set(users.values()) == {count}
    assert len(users) == ours + len(more_java)
    committed = Counter((s.commit_user, s.commit_identifier) for s in table.snapshots())
    assert set(committed.values()) == {1}
    assert len(committed) == count * len(users)
    of_java = sorted(row["id"] for row in more_java[0].read(java, name))
    assert of_java == sorted(table.scan().to_arrow()["id"].to_pylist())
