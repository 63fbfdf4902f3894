"""Commits through the server: one of two wins, a repeated one counts once, and nobody publishes what can't be read."""

from __future__ import annotations

import errno
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tidelake
from tests.support.rest_server import ServedWarehouse, serving
from tests.tidelake.rest_server.conftest import ORDERS, rows
from tidelake.storage.fileio.local import LocalFileIO


def prepared(served: ServedWarehouse, lake: tidelake.Catalog, **changed: Any) -> dict[str, Any]:
    """Return a commit request for the snapshot after the latest one, with the files of the latest one."""
    latest = lake.table("shop.orders").snapshots()[-1]
    members = served.done("GET", f"{ORDERS}/snapshot")["snapshot"]["snapshot"]
    new = {**members, "id": latest.id + 1, "uuid": f"uuid-{latest.id + 1}", "commitUser": "a client", **changed}
    return {
        "tableId": served.done("GET", ORDERS)["id"],
        "baseSnapshotUuid": members["uuid"],
        "snapshot": {name: value for name, value in new.items() if value is not None},
        "statistics": [],
    }


@pytest.fixture
def committed(orders: tidelake.Table) -> tidelake.Table:
    """`shop.orders` with one snapshot."""
    orders.upsert(rows(1))
    return orders


def test_one_of_many_commits_with_the_same_base_is_published_also_by_two_servers(
    committed: tidelake.Table, served: ServedWarehouse, lake: tidelake.Catalog
) -> None:
    commits = [prepared(served, lake, uuid=f"{n}", commitUser=f"client {n}") for n in range(8)]
    start = threading.Barrier(len(commits))

    def commit(server: ServedWarehouse, message: Mapping[str, Any]) -> bool:
        start.wait()
        success: bool = server.done("POST", f"{ORDERS}/commit", message)["success"]
        return success

    with serving(served.warehouse) as second, ThreadPoolExecutor(len(commits)) as threads:
        answers = list(threads.map(commit, [served, second] * 4, commits))
    assert sorted(answers) == [False] * 7 + [True]
    winner = commits[answers.index(True)]["snapshot"]["commitUser"]
    assert [snapshot.commit_user for snapshot in committed.snapshots()][1:] == [winner]


def test_a_writer_without_the_server_wins_if_it_is_faster_by_a_moment(
    committed: tidelake.Table, served: ServedWarehouse, lake: tidelake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits after the server looked for the latest snapshot, and before the server creates the next one."""
    create_if_absent = LocalFileIO.create_if_absent
    raced: list[str] = []

    def commit_before(self: LocalFileIO, path: str, data: bytes) -> bool:
        if path.endswith("/snapshot-2") and not raced:
            raced.append(path)
            committed.upsert(rows(2))
        return create_if_absent(self, path, data)

    message = prepared(served, lake)
    monkeypatch.setattr(LocalFileIO, "create_if_absent", commit_before)
    assert served.done("POST", f"{ORDERS}/commit", message) == {"success": False}
    assert raced
    assert [snapshot.commit_user == "a client" for snapshot in committed.snapshots()] == [False, False]
    assert sorted(committed.scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_repeated_commit_is_published_once(
    committed: tidelake.Table, served: ServedWarehouse, lake: tidelake.Catalog
) -> None:
    message = prepared(served, lake)
    assert served.done("POST", f"{ORDERS}/commit", message) == {"success": True}
    assert served.done("POST", f"{ORDERS}/commit", message) == {"success": True}
    committed.upsert(rows(2))  # and after a commit of somebody else
    assert served.done("POST", f"{ORDERS}/commit", message) == {"success": True}
    assert [snapshot.id for snapshot in committed.snapshots()] == [1, 2, 3]


def test_a_commit_on_an_outdated_base_is_not_published(
    committed: tidelake.Table, served: ServedWarehouse, lake: tidelake.Catalog
) -> None:
    message = prepared(served, lake)
    committed.upsert(rows(2))  # not through the server
    assert served.done("POST", f"{ORDERS}/commit", message) == {"success": False}
    assert served.done("POST", f"{ORDERS}/commit", {**message, "baseSnapshotUuid": None}) == {"success": False}
    newer = committed.snapshots()[-1].uuid
    assert served.done("POST", f"{ORDERS}/commit", {**message, "baseSnapshotUuid": newer}) == {"success": False}
    assert [snapshot.id for snapshot in committed.snapshots()] == [1, 2]


def test_a_commit_to_a_replaced_table_is_refused(
    committed: tidelake.Table, served: ServedWarehouse, lake: tidelake.Catalog
) -> None:
    message = prepared(served, lake)
    lake.drop_table("shop.orders")
    lake.create_table("shop.orders", committed.schema, primary_key=["id"])
    assert served.ask("POST", f"{ORDERS}/commit", message).error == (404, "TABLE", "orders")
    assert lake.table("shop.orders").snapshots() == []


UNREADABLE: dict[str, Mapping[str, Any]] = {
    "no kind": {"commitKind": None},
    "an unknown kind": {"commitKind": "SOMETHING"},
    "a newer version": {"version": 99},
    "an id that is no number": {"id": "two"},
    "a manifest list elsewhere": {"baseManifestList": "../../other.db/t/manifest/list"},
    "a missing manifest list": {"deltaManifestList": "manifest-list-that-is-not-there"},
    "an index elsewhere": {"indexManifest": "/etc/passwd"},
    "statistics elsewhere": {"statistics": ".."},
    "a missing schema": {"schemaId": 7},
}


@pytest.mark.parametrize("changed", UNREADABLE.values(), ids=UNREADABLE)
def test_a_snapshot_that_nobody_can_read_is_refused(
    changed: Mapping[str, Any], committed: tidelake.Table, served: ServedWarehouse, lake: tidelake.Catalog
) -> None:
    assert served.ask("POST", f"{ORDERS}/commit", prepared(served, lake, **changed)).error == (400, None, None)
    assert [snapshot.id for snapshot in committed.snapshots()] == [1]


def test_members_that_would_be_lost_are_refused(
    committed: tidelake.Table, served: ServedWarehouse, lake: tidelake.Catalog
) -> None:
    newer = served.ask("POST", f"{ORDERS}/commit", prepared(served, lake, nextBigThing=7))
    assert newer.error == (501, None, None)
    assert "'nextBigThing'" in newer.members["message"]
    older = prepared(served, lake, logOffsets={}, properties={})  # older releases of Java write such members
    assert served.done("POST", f"{ORDERS}/commit", older) == {"success": True}


def test_clients_and_direct_writers_commit_at_the_same_time(served: ServedWarehouse, lake: tidelake.Catalog) -> None:
    """Half of the writers use the server, the others the directory."""
    lake.create_table("shop.log", rows().schema, options={"bucket": "-1", "commit.max-retries": "1000"})
    writers, count = 6, 5

    def write(worker: int) -> None:
        options = served.options if worker % 2 else {}
        table = tidelake.open_catalog(served.warehouse, **options).table("shop.log")
        with table.writer(commit_user=f"user-{worker}") as writer:
            for identifier in range(count):
                writer.write(rows(worker * count + identifier))
                writer.commit(identifier=identifier)

    with ThreadPoolExecutor(writers) as threads:
        list(threads.map(write, range(writers)))
    log = lake.table("shop.log")
    assert sorted(log.scan().to_arrow()["id"].to_pylist()) == list(range(writers * count))
    assert len(log.snapshots()) == writers * count


def test_a_commit_with_an_unknown_outcome_is_no_refusal(
    committed: tidelake.Table, served: ServedWarehouse, lake: tidelake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 500: the client must look up whether its commit is there. Here it is."""
    create_if_absent = LocalFileIO.create_if_absent

    def fail_afterwards(self: LocalFileIO, path: str, data: bytes) -> bool:
        create_if_absent(self, path, data)
        raise OSError(errno.EIO, "the disk is gone", path)

    message = prepared(served, lake)
    with monkeypatch.context() as patched:
        patched.setattr(LocalFileIO, "create_if_absent", fail_afterwards)
        answer = served.ask("POST", f"{ORDERS}/commit", message)
    assert answer.error == (500, None, None)
    assert "the disk is gone" in answer.members["message"]
    assert served.done("POST", f"{ORDERS}/commit", message) == {"success": True}
    assert [snapshot.id for snapshot in committed.snapshots()] == [1, 2]
