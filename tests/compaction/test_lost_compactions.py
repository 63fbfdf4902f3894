"""A commit whose compaction was lost, to others or in a crash: its rows are seen, and told, all the same.

Only where readers wait for compaction (lookups, deletion vectors, first-row); elsewhere they see rows of level 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from checkpoint.committable import TableCommittable
from checkpoint.epoch import Epoch
from checkpoint.offsets import SourcePosition
from checkpoint.position_text import POSITION_PROPERTY
from compaction.compact_manager import compact_manager_factory
from ingest.spark.batch_commits import BatchCommits
from ingest.tables.table_sink import StorageTableSink
from storage.errors import CommitConflict
from storage.format import BATCH_COMMIT_IDENTIFIER, CommitKind
from storage.verify import verify
from storage.write.memory_budget import MemoryBudget
from storage.write.table_writer import TableWriter
from tests.compaction.lakes import orphans
from tests.compaction.test_changelogs import new_table
from tests.support.changelog_fold import check_changelog
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


# The first commit's file is so large, and the others so small, that it stays on a level of its own.
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


def before_publishing(writer: Writer, *happen: Callable[[], Any]) -> None:
    """What others do before the next attempts of the writer to publish: its rows, or a compaction."""
    publish, rest = writer._commit._publisher.publish, list(happen)

    def publish_after(request: Any) -> Any:
        if rest:
            rest.pop(0)()
        return publish(request)

    writer._commit._publisher.publish = publish_after  # type: ignore[method-assign]


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
def test_rows_whose_compaction_others_were_ahead_of_are_seen_with_their_commit(options: Mapping[str, str]) -> None:
    table = layered_table(options)
    with table.writer(commit_user=USER) as writer:
        put(writer, 1, 2)
        before_publishing(writer, lambda: table.compact(full=True))
        put(writer, 3)
        check(table, 3)
        assert kinds(table)[-3:] == ["*c", "3", "3c"]
        put(writer, 4, 5)
    check(table, 5)
    assert orphans(table.context) == set()


def test_others_may_be_ahead_several_times() -> None:
    table = layered_table(BOTH)

    def conflict() -> None:
        raise CommitConflict("somebody compacted what we read")

    with table.writer(commit_user=USER) as writer:
        put(writer, 1, 2)
        before_publishing(writer, nothing, conflict, conflict, conflict)
        put(writer, 3)
    assert kinds(table)[-2:] == ["3", "3c"]
    check(table, 3)
    assert orphans(table.context) == set()


def test_a_commit_stands_when_others_are_ahead_without_end_and_the_next_one_compacts() -> None:
    table = layered_table({"deletion-vectors.enabled": "true", "commit.max-retries": "2"})

    def conflict() -> None:
        raise CommitConflict("somebody compacted what we read")

    with table.writer(commit_user=USER) as writer:
        put(writer, 1, 2)
        before_publishing(writer, nothing, *[conflict] * 4)
        put(writer, 3)
        assert kinds(table)[-1] == "3"
        put(writer, 4)
    check(table, 4)


@pytest.mark.parametrize("options", OPTIONS)
def test_rows_beside_files_that_others_compacted_and_that_expired_are_seen_with_their_commit(
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
def test_a_commit_that_died_before_its_compaction_is_completed_when_it_is_repeated(options: Mapping[str, str]) -> None:
    table = layered_table(options)

    def die() -> None:
        raise KeyboardInterrupt

    writer = table.writer(commit_user=USER)
    put(writer, 1, 2)
    before_publishing(writer, nothing, die)
    with pytest.raises(KeyboardInterrupt):
        put(writer, 3)
    assert kinds(table)[-1] == "3"
    with table.writer(commit_user=USER) as again:
        again.write(rows_of(3))
        assert again.commit(3) is None
    assert kinds(table)[-2:] == ["3", "3c"]
    check(table, 3)


def test_commits_that_do_not_wait_for_lookups_leave_it_to_the_next() -> None:
    table = layered_table({"changelog-producer": "lookup", "lookup-wait": "false"})
    with table.writer(commit_user=USER) as writer:
        put(writer, 1)
        writer._writer._lost_compactions = set(writer._writer._buckets)
        assert writer._writer.compact_level_0() == []


def test_a_driver_compacts_what_others_were_ahead_of_its_tasks() -> None:
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


def test_a_pipeline_compacts_what_others_were_ahead_of() -> None:
    table = layered_table(BOTH)
    sink = StorageTableSink(table.context, USER, MemoryBudget(1 << 20))
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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", OPTIONS[:3])  # of which the last row wins
def test_writers_that_commit_in_turns_leave_what_their_rows_give_in_the_order_of_commits(
    options: Mapping[str, str], seed: int
) -> None:
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
