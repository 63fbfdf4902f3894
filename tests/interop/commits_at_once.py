"""Many concurrent commits of Tidelake and Java into one table of a shared catalog."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Final, Protocol

import pyarrow as pa

import tidelake
from tests.support.java_oracle import JavaOracle

COLUMNS: Final[list[dict[str, object]]] = [
    {"name": "id", "type": "BIGINT", "nullable": False},
    {"name": "v", "type": "STRING"},
]
SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
_OURS: Final = 6


class SharedLake(Protocol):
    """A catalog for us and for Java. It is pickled for other processes."""

    @property
    def of_java(self) -> str: ...

    def open(self) -> tidelake.Catalog: ...


def check_that_each_commit_is_there_once(
    lake: SharedLake, name: str, oracles: Sequence[JavaOracle], count: int
) -> None:
    """Append commits of a table without a key: commits compete only for the next snapshot, not for a bucket.

    oracles: JVMs, which commit concurrently.
    count: of the commits of each process, and of each JVM.
    """
    java = lake.of_java
    options = {"bucket": "-1", "commit.max-retries": "1000", "snapshot.num-retained.min": "1000"}
    oracles[0].create(java, name, COLUMNS, options=options)

    def java_commits(worker: int) -> None:
        rows = [{"id": (10 + worker) * 1_000 + n, "v": f"java-{worker}"} for n in range(1, count + 1)]
        oracles[worker].write(java, name, rows, commit_user=f"java-{worker}", batches=count)

    with (
        ProcessPoolExecutor(_OURS, mp_context=multiprocessing.get_context("spawn")) as processes,
        ThreadPoolExecutor(len(oracles)) as threads,
    ):
        work: list[Future[None]] = [processes.submit(_commits, lake, name, worker, count) for worker in range(_OURS)]
        work += [threads.submit(java_commits, worker) for worker in range(len(oracles))]
        for done in work:
            done.result()
    table = lake.open().table(name)
    users = Counter(row["v"] for row in table.scan().to_arrow().to_pylist())
    assert set(users.values()) == {count}
    assert len(users) == _OURS + len(oracles)
    committed = Counter((s.commit_user, s.commit_identifier) for s in table.snapshots())
    assert set(committed.values()) == {1}
    assert len(committed) == count * len(users)
    of_java = sorted(row["id"] for row in oracles[0].read(java, name))
    assert of_java == sorted(table.scan().to_arrow()["id"].to_pylist())


def _commits(lake: SharedLake, name: str, worker: int, count: int) -> None:
    """One process: each commit is a row of its own, under a user and identifiers of its own."""
    table = lake.open().table(name)
    with table.writer(commit_user=f"ours-{worker}") as writer:
        for identifier in range(1, count + 1):
            writer.write(pa.table({"id": [worker * 1_000 + identifier], "v": [f"ours-{worker}"]}, SCHEMA))
            writer.commit(identifier=identifier)
