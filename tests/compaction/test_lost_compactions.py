"""A commit whose compaction was lost, in a race or in a crash: its rows are visible, and its changelog is complete.

This matters only where readers wait for compaction (lookups, deletion vectors, first-row). Other readers see level 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from tests.compaction.lakes import orphans
from tests.compaction.test_changelogs import new_table
from tests.storage.model.snapshots.tables import with_lost_compaction
from tests.support.changelog_fold import check_changelog
from tests.support.commit_races import before_publishing
from tidelake.checkpoint.committable import TableCommittable
from tidelake.checkpoint.epoch import Epoch
from tidelake.checkpoint.offsets import POSITION_PROPERTY, SourcePosition
from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.compaction.scheduler import CompactionScheduler
from tidelake.errors import CommitConflict
from tidelake.ingest.spark.batch_commits import BatchCommits
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, CommitKind
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.storage.write.table_writer import TableWriter
from tidelake.table import Table
from tidelake.writer import Writer

USER: Final = "etl"
BOTH: Final = {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"}
OPTIONS: Final = [
    pytest.param({"changelog-producer": "lookup"}, id="lookup"),
    pytest.param({"deletion-vectors.enabled": "true"}, id="deletion vectors"),
    pytest.param(BOTH, id="both"),
    pytest.param({"merge-engine": "first-row"}, id="first-row"),
    pytest.param({"merge-engine": "first-row", "changelog-producer": "lookup"}, id="first-row, lookup"),
    pytest.param({"deletion-vectors.enabled": "true", "sequence.field": "v"}, id="deletion vectors, sequence field"),
]


# The file of the first commit is so large, and the others are so small, that the first stays on a separate level.
BASE_KEYS: Final = range(-3_000, 0)


def layered_table(options: Mapping[str, str]) -> Table:
    return new_table({"file.format": "avro", "file.compression": "none", **options})


def rows_of(number: int) -> pa.Table:
    """A new key, and one that every commit writes again."""
    keys = [*(BASE_KEYS if number == 1 else ()), 0, number]
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array([number] * len(keys), pa.int64())})


def put(writer: Writer, *numbers: int) -> None:
    for number in numbers:
        writer.write(rows_of(number))
        writer.commit(number)


def check(table: Table, last: int) -> None:
    assert not any(file.level == 0 for split in with_all_levels(table).scan().splits() for file in split.files)
    kept = 1 if table.options.get("merge-engine") == "first-row" else last
    expected = {**dict.fromkeys(BASE_KEYS, 1), 0: kept, **{number: number for number in range(1, last + 1)}}
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == len(expected)
    assert {row["k"]: row["v"] for row in rows} == expected
    if table.options.get("changelog-producer") == "lookup":
        assert check_changelog(table)
        assert table.snapshots()[-1].changelog_manifest_list is not None
    assert verify(table.context, deep=True) == []


def with_all_levels(table: Table) -> Table:
    return Table(table.context.with_options({"deletion-vectors.merge-on-read": "true"}))


def nothing() -> None:
    pass


def kinds(table: Table) -> list[str]:
    """Identifier of each snapshot, * for none; c: a compaction."""
    return [
        f"{'*' if s.commit_identifier == BATCH_COMMIT_IDENTIFIER else s.commit_identifier}"
        f"{'c' if s.commit_kind is CommitKind.COMPACT else ''}"
        for s in table.snapshots()
    ]


@pytest.mark.parametrize("options", OPTIONS)
def test_rows_are_visible_with_their_commit_although_their_compaction_lost_a_race(
    monkeypatch: pytest.MonkeyPatch, options: Mapping[str, str]
) -> None:
    table = layered_table(options)
    with table.writer(commit_user=USER) as writer:
        put(writer, 1, 2)
        before_publishing(monkeypatch, lambda: table.compact(full=True))
        put(writer, 3)
        check(table, 3)
        assert kinds(table)[-3:] == ["*c", "3", "3c"]
        put(writer, 4, 5)
    check(table, 5)
    assert orphans(table.context) == set()


def test_a_compaction_may_lose_several_races(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = layered_table(BOTH)

    def conflict() -> None:
        raise CommitConflict("somebody compacted what we read")

    with table.writer(commit_user=USER) as writer:
        put(writer, 1, 2)
        before_publishing(monkeypatch, nothing, conflict, conflict, conflict)
        put(writer, 3)
    assert kinds(table)[-2:] == ["3", "3c"]
    check(table, 3)
    assert orphans(table.context) == set()


def test_a_commit_succeeds_when_its_compaction_loses_every_race_and_the_next_one_compacts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = layered_table({"deletion-vectors.enabled": "true", "commit.max-retries": "2"})

    def conflict() -> None:
        raise CommitConflict("somebody compacted what we read")

    with table.writer(commit_user=USER) as writer:
        put(writer, 1, 2)
        before_publishing(monkeypatch, nothing, *[conflict] * 4)
        put(writer, 3)
        assert kinds(table)[-1] == "3"
        put(writer, 4)
    check(table, 4)


@pytest.mark.parametrize("options", OPTIONS)
def test_rows_are_visible_although_others_compacted_and_expired_neighbouring_files(
    options: Mapping[str, str],
) -> None:
    table = layered_table({"num-sorted-run.compaction-trigger": "50", **options})
    with table.writer(commit_user=USER) as writer:
        put(writer, 1, 2)
        table.compact(full=True)
        table.expire(retain_min=1, retain_max=1, retain_ms=0)
        put(writer, 3)
    seen = {row["k"] for row in table.scan().to_arrow().to_pylist()}
    assert seen == {*BASE_KEYS, 0, 1, 2, 3}
    assert verify(table.context, deep=True) == []


@pytest.mark.parametrize("options", OPTIONS)
def test_a_commit_that_crashed_before_its_compaction_is_completed_on_replay(
    monkeypatch: pytest.MonkeyPatch, options: Mapping[str, str]
) -> None:
    table = layered_table(options)

    def die() -> None:
        raise KeyboardInterrupt

    writer = table.writer(commit_user=USER)
    put(writer, 1, 2)
    before_publishing(monkeypatch, nothing, die)
    with pytest.raises(KeyboardInterrupt):
        put(writer, 3)
    assert kinds(table)[-1] == "3"
    with table.writer(commit_user=USER) as again:
        again.write(rows_of(3))
        assert again.commit(3) is None
    assert kinds(table)[-2:] == ["3", "3c"]
    check(table, 3)


@pytest.mark.parametrize("waits", ["true", "false"])
def test_without_lookup_wait_a_lost_compaction_is_left_to_the_next_commit(waits: str) -> None:
    table = layered_table({"changelog-producer": "lookup", "lookup-wait": waits})
    writer = TableWriter(table.context, compactor_factory=compact_manager_factory(CompactionScheduler(1)))
    writer.write(rows_of(1))
    messages = writer.prepare_commit(1)
    only_rows = [replace(m, increment=m.increment.without_compaction()) for m in messages]
    snapshot_id = TableCommit(table.context, USER).commit(Committable(1, only_rows))
    assert snapshot_id is not None
    writer.committed(snapshot_id)
    writer.restart_compaction([with_lost_compaction(message) for message in messages])
    assert bool(writer.compact_level_0()) is (waits == "true")
    writer.abort()


def test_a_spark_driver_repeats_compactions_that_its_tasks_lost() -> None:
    table = layered_table(BOTH)
    for number in (1, 2, 3):
        task = TableWriter(table.context, compactor_factory=compact_manager_factory())
        task.write(rows_of(number))
        messages = task.prepare_commit(number, is_last=True)
        task.abort()
        if number == 3:
            table.compact(full=True)
        BatchCommits(table.context, USER, "query", None, accept_gap=False).publish(number, messages, None)
    assert kinds(table)[-3:] == ["*c", "3", "3c"]
    check(table, 3)


def test_a_pipeline_repeats_lost_compactions() -> None:
    table = layered_table(BOTH)
    sink = TableSink(table.context, USER, MemoryBudget(1 << 20))
    for number in (1, 2, 3):
        sink.writer.write(rows_of(number))
        messages = sink.writer.prepare_commit(number)
        if number == 3:
            table.compact(full=True)
        sink.commit(TableCommittable("db.t", number, messages, SourcePosition(), Epoch(1, "HOST:PID:ID")))
    sink.writer.abort()
    assert kinds(table)[-3:] == ["*c", "3", "3c"]
    assert len({s.properties[POSITION_PROPERTY] for s in table.snapshots()[-2:]}) == 1
    check(table, 3)


@pytest.mark.exhaustive(kept=3)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", OPTIONS[:3])  # of which the last row wins
def test_alternating_writers_give_the_rows_merged_in_commit_order(options: Mapping[str, str], seed: int) -> None:
    """One is kept open, so that what it compacted may be older than what the other committed."""
    random = Random(seed)
    table = new_table({**options, "bucket": "2"})
    expected: dict[int, int] = {}
    kept_open = table.writer(commit_user=USER)
    for turn in range(25):
        keys = [random.randrange(20) for _ in range(random.choice([1, 6, 25]))]
        kind = random.choice([0, 0, 0, 3])
        kinds = pa.array([kind] * len(keys), pa.int8())
        rows = pa.table({"k": keys, "v": [turn] * len(keys), "_VALUE_KIND": kinds})
        if random.random() < 0.3:
            with table.writer(commit_user="another") as writer:
                writer.write(rows)
                writer.commit()
        else:
            kept_open.write(rows)
            kept_open.commit(turn)
        for key in keys:
            expected.pop(key, None)
            if kind == 0:
                expected[key] = turn
        assert {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()} == expected
    kept_open.close()
    assert verify(table.context, deep=True) == []
    if "changelog-producer" in options:
        assert check_changelog(table)
