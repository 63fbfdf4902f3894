"""Changes between two snapshots, and the system tables of changes, equal Java's for the same table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.expected import difference
from tests.support.java_oracle import JavaOracle
from tests.support.line_server import Refused

NAME = "shop.t"
COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "id", "type": "INT", "nullable": False},
    {"name": "v", "type": "STRING"},
    {"name": "n", "type": "BIGINT NOT NULL"},
]
PRODUCERS = ["none", "input", "lookup", "full-compaction"]


@pytest.fixture(scope="module", params=PRODUCERS)
def warehouse(
    tmp_path_factory: pytest.TempPathFactory, java_oracle: JavaOracle, request: pytest.FixtureRequest
) -> Path:
    """Java's table of one bucket: inserts, updates with their -U, deletes; tags `a` and `b` in between."""
    warehouse = tmp_path_factory.mktemp(request.param)
    options = {"bucket": "1", "changelog-producer": request.param}
    java_oracle.create(warehouse, NAME, COLUMNS, primary_keys=["id"], options=options)

    def write(*rows: tuple[int, str, int, str], full: bool = False) -> None:
        reported = [{"id": i, "v": v, "n": n, "_kind": kind} for i, v, n, kind in rows]
        java_oracle.write(warehouse, NAME, reported, commit_user="w", full=full, wait_compaction=True)

    write((1, "a", 1, "+I"), (2, "b", 1, "+I"), (3, "c", 1, "+I"), full=True)
    java_oracle.tag(warehouse, NAME, "a")
    write((1, "a", 1, "-U"), (1, "d", 2, "+U"), (4, "e", 2, "+I"))
    write((2, "b", 1, "-D"), (5, "f", 3, "+I"))
    java_oracle.tag(warehouse, NAME, "b")
    write((5, "f", 3, "-D"), (6, "g", 4, "+I"), (3, "c", 1, "+I"))
    return warehouse


DIFFERENCES: Final[tuple[Mapping[str, str], ...]] = (
    {"incremental-between": "1,5", "incremental-between-scan-mode": "diff"},
    {"incremental-between": "a,b"},
)
RANGES: Final[tuple[Mapping[str, str], ...]] = (
    {},
    {"incremental-between": "0,5"},
    {"incremental-between": "1,4"},
    {"incremental-between": "0,5", "incremental-between-scan-mode": "delta"},
    {"incremental-between": "0,5", "incremental-between-scan-mode": "changelog"},
    *DIFFERENCES,
    {"incremental-between": "a,b", "incremental-between-tag-to-snapshot": "true"},
    {"incremental-between-timestamp": "1,9999999999999"},
    {"scan.snapshot-id": "1"},
)


def reported(ours: pa.Table, theirs: list[dict[str, Any]]) -> str | None:
    """How they differ; None when they don't."""
    if theirs and list(theirs[0]) != ours.schema.names:
        return f"columns {ours.schema.names}, Java's {list(theirs[0])}"
    return difference(ours, [list(row.values()) for row in theirs])


def opened(warehouse: Path, system_table: str, options: Mapping[str, str]) -> tidelake.Table:
    return tidelake.open_catalog(str(warehouse)).table(f"{NAME}${system_table}", options)


def test_rows_between_two_snapshots_are_javas_inserts_and_updates(warehouse: Path, java_oracle: JavaOracle) -> None:
    """Engines drop Java's retracts; `audit_log` has them."""
    for options in RANGES:
        ours = tidelake.open_catalog(str(warehouse)).table(NAME, options).scan().to_arrow()
        theirs = java_oracle.system(warehouse, NAME, "audit_log", options=options)
        between = [{k: v for k, v in row.items() if k != "rowkind"} for row in theirs if row["rowkind"] in ("+I", "+U")]
        assert reported(ours, between) is None, options


def test_the_audit_log_equals_javas(warehouse: Path, java_oracle: JavaOracle) -> None:
    for options in RANGES:
        ours = opened(warehouse, "audit_log", options).scan().to_arrow()
        assert reported(ours, java_oracle.system(warehouse, NAME, "audit_log", options=options)) is None, options


def test_the_binlog_equals_javas(warehouse: Path, java_oracle: JavaOracle) -> None:
    for options in RANGES:
        if options in DIFFERENCES:
            with pytest.raises(
                Refused, match="ClassCastException"
            ):  # Java takes a difference for another kind of split
                java_oracle.system(warehouse, NAME, "binlog", options=options)
            continue
        theirs = java_oracle.system(warehouse, NAME, "binlog", options=options)
        assert reported(opened(warehouse, "binlog", options).scan().to_arrow(), theirs) is None, options


def test_the_read_optimized_table_equals_javas(warehouse: Path, java_oracle: JavaOracle) -> None:
    """Of what came between, Java filters changes by the level of their files; here that is refused."""
    for options in ({}, {"scan.snapshot-id": "1"}, {"scan.tag-name": "b"}):
        ours = opened(warehouse, "ro", options).scan().to_arrow()
        assert reported(ours, java_oracle.system(warehouse, NAME, "ro", options=options)) is None, options
    with pytest.raises(tidelake.UnsupportedFeature, match="it shows one snapshot"):
        opened(warehouse, "ro", {"incremental-between": "1,2"}).scan().to_arrow()


def test_sequence_numbers_equal_javas(warehouse: Path, java_oracle: JavaOracle) -> None:
    """Last: it changes the table. `binlog` of Java 2.0.0 fails with them."""
    change = {"set": {"key": "table-read.sequence-number.enabled", "value": "true"}}
    java_oracle.alter(warehouse, NAME, change)
    for options in RANGES:
        theirs = java_oracle.system(warehouse, NAME, "audit_log", options=options)
        assert reported(opened(warehouse, "audit_log", options).scan().to_arrow(), theirs) is None, options
    assert opened(warehouse, "binlog", {}).schema.names == ["rowkind", "_SEQUENCE_NUMBER", "id", "v", "n"]


def test_java_reads_the_position_of_a_follower(tmp_path: Path, java_oracle: JavaOracle) -> None:
    """The file has members of ours, which Java ignores. Java continues from the position."""
    java_oracle.create(tmp_path, NAME, COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    for number in (1, 2, 3):
        java_oracle.write(tmp_path, NAME, [{"id": number, "v": "a", "n": 1}], commit_user="w")
    table = tidelake.open_catalog(str(tmp_path)).table(NAME)
    following = table.follow(start="earliest", consumer="ours")
    assert [next(following).snapshot_id for _ in range(3)] == [1, 2, 3]
    following.close()
    (consumer,) = java_oracle.system(tmp_path, NAME, "consumers")
    assert consumer == {"consumer_id": "ours", "next_snapshot_id": 3}
    java_oracle.expire(tmp_path, NAME, retain_max=1, retain_min=1)
    assert [snapshot.id for snapshot in table.snapshots()] == [3]
    assert [change.snapshot_id for change in table.follow(consumer="ours", end=3)] == [3]
