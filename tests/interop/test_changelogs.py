"""Changelogs of compaction: Java streams ours as we read them, and makes the same ones from the same commits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.changelog_fold import check_changelog
from tests.support.java_oracle import JavaOracle
from tidelake import Table
from tidelake.storage.model.format import RowKind

NAME: Final = "db.t"
COLUMNS: Final = pa.schema(
    [pa.field("k", pa.int32(), nullable=False), pa.field("v", pa.int64()), pa.field("w", pa.string())]
)
WITH_KIND: Final = COLUMNS.append(pa.field("_VALUE_KIND", pa.int8()))
COMMITS: Final = 8
ALL_KINDS: Final = (0, 0, 2, 1, 3)
ADDS: Final = (0, 2)
Told = list[list[tuple[str, int, int | None, str | None]]]  # a commit's changes: row kind, k, v, w

DEDUPLICATE: Final = {"merge-engine": "deduplicate"}
SUM: Final = {
    "merge-engine": "aggregation",
    "fields.v.aggregate-function": "sum",
    "fields.w.aggregate-function": "last_non_null_value",
}
PARTIAL: Final = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
BY_SEQUENCE: Final = {"sequence.field": "v"}
WITHOUT_REPEATS: Final = {
    "changelog-producer.row-deduplicate": "true",
    "changelog-producer.row-deduplicate-ignore-fields": "w",
}
CASES: Final = [
    pytest.param("lookup", DEDUPLICATE, ALL_KINDS, id="lookup"),
    pytest.param("full-compaction", DEDUPLICATE, ALL_KINDS, id="full compaction"),
    pytest.param("lookup", SUM, ALL_KINDS, id="lookup, sums"),
    pytest.param("full-compaction", PARTIAL, ALL_KINDS, id="full compaction, partial updates"),
    pytest.param("lookup", PARTIAL, ALL_KINDS, id="lookup, partial updates"),
    pytest.param("lookup", {"merge-engine": "first-row"}, ADDS, id="lookup, first rows"),
    pytest.param("full-compaction", SUM, ALL_KINDS, id="full compaction, sums"),
    pytest.param("lookup", DEDUPLICATE | BY_SEQUENCE | WITHOUT_REPEATS, ADDS, id="lookup, by a column, no repeats"),
    pytest.param("full-compaction", DEDUPLICATE | WITHOUT_REPEATS, ALL_KINDS, id="full compaction, no repeats"),
]


def new_table(warehouse: Path, producer: str, options: Mapping[str, str]) -> Table:
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("db", if_not_exists=True)
    making = {"bucket": "1", "changelog-producer": producer, "num-sorted-run.compaction-trigger": "3"}
    return catalog.create_table(NAME, COLUMNS, primary_key=["k"], options={**making, **options})


def history(kinds: tuple[int, ...], *, is_key_once: bool = False) -> list[list[dict[str, Any]]]:
    """Rows of some commits over a few keys, the same for every run.

    is_key_once: a commit has at most one row of a key. Java's flush merges a retract with the newer rows of its key,
        and some functions lose it then.
    """
    dice = Random(7)

    def row(key: int) -> dict[str, Any]:
        v, w = dice.choice([0, 1, 2, 3]), dice.choice([None, "a", "b"])
        return {"k": key, "v": v, "w": w, "_VALUE_KIND": dice.choice(kinds)}

    def keys() -> list[int]:
        return dice.sample(range(12), 6) if is_key_once else [dice.randrange(12) for _ in range(6)]

    return [[row(key) for key in keys()] for _ in range(COMMITS)]


def write(table: Table, commits: list[list[dict[str, Any]]], first_identifier: int = 1) -> None:
    with table.writer(commit_user="us") as writer:
        for identifier, rows in enumerate(commits, start=first_identifier):
            writer.write(pa.Table.from_pylist(rows, WITH_KIND))
            writer.commit(identifier)


def write_by_java(
    oracle: JavaOracle,
    warehouse: Path,
    producer: str,
    commits: list[list[dict[str, Any]]],
    first_identifier: int = 1,
) -> None:
    for identifier, rows in enumerate(commits, start=first_identifier):
        actual = [{**row, "_kind": RowKind(row["_VALUE_KIND"]).symbol} for row in rows]
        for row in actual:
            del row["_VALUE_KIND"]
        full = producer == "full-compaction"
        oracle.write(warehouse, NAME, actual, commit_user="java", commit_id=identifier, wait_compaction=True, full=full)


def by_commit(table: Table, changes: list[tuple[int, str, int, int | None, str | None]]) -> Told:
    """Changes with their snapshots, as those of each commit in key order; of a key in their order."""
    commit_of = {snapshot.id: snapshot.commit_identifier for snapshot in table.snapshots()}
    found: Told = [[] for _ in range(COMMITS)]
    for snapshot_id, *change in changes:
        found[commit_of[snapshot_id] - 1].append(tuple(change))  # type: ignore[arg-type]
    return [sorted(of_commit, key=lambda change: change[1]) for of_commit in found]


def read_by_us(table: Table) -> Told:
    rows = [(batch.snapshot_id, row) for batch in table.changes(start=1) for row in batch.rows.to_pylist()]
    return by_commit(table, [(at, RowKind(r["_VALUE_KIND"]).symbol, r["k"], r["v"], r["w"]) for at, r in rows])


def read_by_java(oracle: JavaOracle, table: Table, warehouse: Path) -> Told:
    rows = oracle.stream(warehouse, NAME)
    return by_commit(table, [(r["_snapshot"], r["_kind"], r["k"], r["v"], r["w"]) for r in rows])


@pytest.mark.parametrize(("producer", "options", "kinds"), CASES)
def test_the_same_commits_give_the_same_changelog_for_every_reader(
    tmp_path: Path, java_oracle: JavaOracle, producer: str, options: dict[str, str], kinds: tuple[int, ...]
) -> None:
    commits = history(kinds, is_key_once=options is SUM or options is PARTIAL)
    (tmp_path / "ours").mkdir()
    (tmp_path / "javas").mkdir()
    ours, javas = (new_table(tmp_path / whose, producer, options) for whose in ("ours", "javas"))
    write(ours, commits)
    write_by_java(java_oracle, tmp_path / "javas", producer, commits)
    made = read_by_us(ours)
    assert made == read_by_us(javas)
    assert made == read_by_java(java_oracle, ours, tmp_path / "ours")
    assert made == read_by_java(java_oracle, javas, tmp_path / "javas")
    assert ours.scan().to_arrow().sort_by("k").equals(javas.scan().to_arrow().sort_by("k"))
    assert check_changelog(ours) == check_changelog(javas)


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_changelogs_continue_across_alternating_writers(tmp_path: Path, java_oracle: JavaOracle, producer: str) -> None:
    table = new_table(tmp_path, producer, SUM)
    for number, rows in enumerate(history(ALL_KINDS), start=1):
        if number % 2:
            write(table, [rows], number)
        else:
            write_by_java(java_oracle, tmp_path, producer, [rows], number)
    assert check_changelog(table) > 4
