"""Processes that commit to one table concurrently: each commit is published once, and no row is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tests.crash.racer import BUCKETS, NAME, SCHEMA, rows_of
from tests.support.s3_server import S3Server
from tests.support.unreliable_s3 import UnreliableS3
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import CommitKind

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Place:
    """options: that racers use. near: the same place for the one who looks at it."""

    warehouse: str
    options: Mapping[str, str]
    near: Mapping[str, str]


def on_disk(request: pytest.FixtureRequest) -> Place:
    return Place(f"{request.getfixturevalue('tmp_path')}/lake", {}, {})


def on_s3(request: pytest.FixtureRequest) -> Place:
    server: S3Server = request.getfixturevalue("s3_server")
    return Place(f"s3://{server.new_bucket()}/lake", server.options, server.options)


def on_unreliable_s3(request: pytest.FixtureRequest) -> Place:
    proxy: UnreliableS3 = request.getfixturevalue("unreliable_s3")
    return Place(f"s3://{proxy.server.new_bucket()}/lake", proxy.options, proxy.server.options)


LONG = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("processes", "commits"),
    [pytest.param(4, 8, id="4 x 8"), pytest.param(8, 50, id="8 x 50", marks=LONG)],
)
@pytest.mark.parametrize("shared", [False, True], ids=["own buckets", "shared bucket with a sequence field"])
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(on_disk, id="disk"),
        pytest.param(on_s3, id="S3", marks=[pytest.mark.interop, pytest.mark.needs("S3 server")]),
        pytest.param(on_unreliable_s3, id="unreliable S3", marks=[*LONG, pytest.mark.needs("S3 server")]),
    ],
)
def test_every_commit_is_published_once_and_no_row_is_lost(
    request: pytest.FixtureRequest,
    place: Callable[[pytest.FixtureRequest], Place],
    shared: bool,
    processes: int,
    commits: int,
) -> None:
    at = place(request)
    # Processes that share a bucket are write-only. In its own bucket each process compacts.
    options = {"bucket": "1", "sequence.field": "at", "write-only": "true"}
    if not shared:
        options = {"bucket": str(BUCKETS), "bucket-function.type": "mod"}
    # No snapshot expires, because the test counts every commit.
    options |= {"snapshot.num-retained.min": "1000", "snapshot.time-retained": "1 d"}
    catalog = tidelake.open_catalog(at.warehouse, **at.near)
    catalog.create_database("db")
    table = catalog.create_table(NAME, SCHEMA, primary_key=["k"], options=options)

    ids = race(at, processes, commits, shared=shared)

    snapshots = table.snapshots()
    assert [s.id for s in snapshots] == list(range(1, len(snapshots) + 1))
    assert set(ids) <= {s.id for s in snapshots}
    assert len(set(ids)) == processes * commits
    made = [(s.commit_user, s.commit_identifier) for s in snapshots if s.commit_kind is CommitKind.APPEND]
    assert sorted(made) == [(f"racer-{who}", number) for who in range(processes) for number in range(commits)]
    assert snapshots[-1].total_record_count == 2 * processes * commits
    newest: dict[int, dict[str, Any]] = {}
    for number in range(commits):
        for who in range(processes):
            newest |= {row["k"]: row for row in rows_of(who, number, shared=shared)}
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["k"]) == [newest[k] for k in sorted(newest)]
    assert verify(table.context) == []


def race(at: Place, processes: int, commits: int, *, shared: bool) -> list[int]:
    """The ids of all snapshots, as reported to the committing processes."""
    job = {"warehouse": at.warehouse, "options": dict(at.options), "commits": commits, "shared": shared}
    racers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.crash.racer", json.dumps({**job, "who": who})],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in range(processes)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        reported = [racer.stdin for racer in racers]
        for line in reported:
            assert line is not None
            line.write("go\n")
            line.flush()
        answers = [racer.communicate()[0] for racer in racers]
        assert [racer.returncode for racer in racers] == [0] * processes
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    return [snapshot for answer in answers for snapshot in json.loads(answer)]
