"""Tables whose keys move between partitions: a key has one row, with any other writers and after any aborted work."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tidelake.errors import BadInput, CommitConflict, UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.write.assigners import CrossPartitionAssigner, UnawareBucketAssigner
from tidelake.storage.write.assigners.cross_partition import index_bootstrap
from tidelake.storage.write.lookup.row_lookup import lookup_newest_rows
from tidelake.storage.write.table_writer import TableWriter

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("p", pa.string()), ("v", pa.int64())])
Rows = Mapping[int, tuple[str | None, int | None]]


def new_table(options: Mapping[str, str] | None = None) -> tidelake.Table:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    given = {"bucket": "-1", "dynamic-bucket.target-row-num": "4", **(options or {})}
    return catalog.create_table("db.t", SCHEMA, primary_key=["k"], partition_by=["p"], options=given)


def rows(*given: tuple[int, str | None, int | None], kind: int = 0) -> pa.Table:
    keys, partitions, values = zip(*given, strict=True)
    kinds = pa.array([kind] * len(given), pa.int8())
    return pa.table(
        {"k": keys, "p": pa.array(partitions, pa.string()), "v": pa.array(values, pa.int64()), "_VALUE_KIND": kinds}
    )


def held(table: tidelake.Table) -> dict[int, tuple[Any, Any]]:
    found = table.scan().to_arrow().to_pylist()
    assert len({row["k"] for row in found}) == len(found), "a key with two rows"
    return {row["k"]: (row["p"], row["v"]) for row in found}


def write(table: tidelake.Table, *batches: pa.Table, user: str = "one", overwrite: Any = None) -> None:
    with table.writer(commit_user=user, overwrite=overwrite) as writer:
        for batch in batches:
            writer.write(batch)
        writer.commit()


def test_a_key_that_changes_partition_is_deleted_in_the_old_one() -> None:
    table = new_table()
    write(table, rows((1, "a", 1), (2, "a", 2)))
    write(table, rows((1, "b", 3)))
    write(table, rows((1, None, 4), (1, "c", 5), (1, "a", 6), (2, "b", 7), (3, "a", 8)))
    assert held(table) == {1: ("a", 6), 2: ("b", 7), 3: ("a", 8)}
    write(table, rows((2, "b", None), (3, "c", None), kind=3))
    assert held(table) == {1: ("a", 6)}


ENGINES: Mapping[str, tuple[Mapping[str, str], Rows]] = {
    "partial-update": ({"merge-engine": "partial-update"}, {1: ("a", 3), 2: ("b", 2)}),
    "aggregation": ({"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}, {1: ("a", 4), 2: ("b", 2)}),
    "first-row": ({"merge-engine": "first-row"}, {1: ("a", 1), 2: ("b", 2)}),
}


@pytest.mark.parametrize(("options", "expected"), ENGINES.values(), ids=list(ENGINES))
@pytest.mark.parametrize("commits", [1, 3], ids=["in one batch", "in three commits"])
def test_with_other_engines_a_key_stays_in_its_first_partition(
    options: Mapping[str, str], expected: Rows, commits: int
) -> None:
    table = new_table(options)
    given = [(1, "a", 1), (1, "b", 3), (2, "b", 2), (2, "a", None)]
    parts = [given] if commits == 1 else [given[:1], given[1:3], given[3:]]
    for part in parts:
        write(table, rows(*part))
    assert held(table) == expected


MERGED: Mapping[str, Mapping[str, str]] = {
    "merged": {},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "changelog of the input": {"changelog-producer": "input"},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", MERGED.values(), ids=list(MERGED))
def test_random_moves_of_several_writers_leave_one_row_per_key(options: Mapping[str, str]) -> None:
    random, table, naive = Random(str(options)), new_table(options), dict[int, tuple[str, int]]()
    writer = table.writer(commit_user="open")
    for turn in range(25):
        given = [(random.randrange(40), random.choice("abcd"), turn) for _ in range(random.choice([1, 6, 25]))]
        kind = random.choice([0, 0, 0, 3])
        if random.random() < 0.3:
            write(table, rows(*given, kind=kind), user="another")
        else:
            for start in range(0, len(given), 7):
                writer.write(rows(*given[start : start + 7], kind=kind))
            writer.commit(turn)
        for key, partition, value in given:
            naive.pop(key, None)
            if kind == 0:
                naive[key] = partition, value
        if random.random() < 0.2:
            writer.close()
            writer = table.writer(commit_user="open")
        assert held(table) == naive
    writer.close()


def test_concurrent_commits_of_two_writers_are_a_conflict() -> None:
    table = new_table()
    write(table, rows((1, "a", 1)))
    with table.writer(commit_user="slow") as writer:
        writer.write(rows((1, "b", 2)))
        write(table, rows((1, "c", 3)), user="quick")
        with pytest.raises(CommitConflict, match=r"a key could get a row in two partitions.*Open the table again"):
            writer.commit(1)
    assert held(table) == {1: ("c", 3)}


def test_concurrent_compaction_is_no_conflict() -> None:
    table = new_table()
    write(table, rows((1, "a", 1)), rows((2, "a", 1)))
    with table.writer(commit_user="slow") as writer:
        writer.write(rows((1, "b", 2)))
        table.compact(full=True)
        writer.commit(1)
    assert held(table) == {1: ("b", 2), 2: ("a", 1)}


def test_after_a_repeated_commit_the_next_one_is_correct() -> None:
    table = new_table()
    moves = rows((1, "a", 1), (1, "b", 2), (1, "a", 3), (2, "b", 1))
    for is_again in (False, True):
        with table.writer(commit_user="one") as writer:
            writer.write(moves)
            assert (writer.commit(1) is None) == is_again
            if is_again:
                writer.write(rows((2, "a", 4)))
                writer.commit(2)
    assert held(table) == {1: ("a", 3), 2: ("a", 4)}


def test_rows_routed_but_not_written_change_nothing() -> None:
    """A pipeline routes a batch again when another table of it failed."""
    table = new_table()
    write(table, rows((1, "a", 1)))
    writer = TableWriter(table.context)
    writer.route(rows((1, "b", 2)).to_batches()[0])
    routed = writer.route(rows((1, "b", 2)).to_batches()[0])
    assert writer.opens_buckets(routed)
    writer.add(routed)
    partitions = [message.partition for message in writer.prepare_commit(1) if message.increment.new_files]
    assert len(partitions) == len(set(partitions)) == 2, "the row, and the delete in the old partition"
    writer.abort()


def test_an_index_larger_than_its_memory_spills_to_disk() -> None:
    table = new_table({"lookup.cache-max-memory-size": "0 b", "dynamic-bucket.target-row-num": "50"})
    write(table, rows(*((key, "a", key) for key in range(200))))
    write(table, rows(*((key, "b", key) for key in range(0, 200, 2))))
    assert held(table) == {key: ("b" if key % 2 == 0 else "a", key) for key in range(200)}


def test_the_newest_row_of_a_key_is_found_in_any_partition() -> None:
    table = new_table()
    write(table, *(rows((1, "a", number)) for number in range(5)))
    write(table, rows((1, "b", 7)))
    keys = pa.RecordBatch.from_arrays([pa.array([1])], ["k"])
    found, newest = lookup_newest_rows(table.context, table.context.snapshots.latest(), keys)
    assert (found.tolist(), newest.to_pylist()) == ([True], [{"k": 1, "p": "b", "v": 7}])


def test_rows_are_deleted_and_updated_by_a_condition() -> None:
    table = new_table()
    write(table, rows((1, "a", 1), (2, "b", 2), (3, "b", 3)))
    table.delete(tidelake.col("v") == 2)
    table.update(tidelake.col("k") == 3, {"p": "c"})
    assert held(table) == {1: ("a", 1), 3: ("c", 3)}


PRODUCERS = ("input", "lookup", "full-compaction")


def summed(table: tidelake.Table) -> int:
    """The sum of `v` by the changelog."""
    changes = [row for change in table.changes(start=1) for row in change.rows.to_pylist()]
    return sum(row["v"] * (1 if row["_VALUE_KIND"] in (0, 2) else -1) for row in changes)


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("change", ["update", "merge"])
def test_a_changed_row_that_moves_is_retracted_once_with_its_old_values(producer: str, change: str) -> None:
    table = new_table({"changelog-producer": producer})
    write(table, rows((1, "a", 10), (2, "a", 20), (3, "b", 30)))
    if change == "update":
        table.update(tidelake.col("k") == 1, {"p": "c", "v": 11})
    else:
        table.merge(pa.table({"k": [1], "p": ["c"], "v": [11]}), on=["k"])
    table.compact(full=True)
    assert held(table) == {1: ("c", 11), 2: ("a", 20), 3: ("b", 30)}
    assert summed(table) == 61


@pytest.mark.parametrize("kinds", [(1, 2), (3, 0)], ids=["-U and +U", "-D and +I"])
@pytest.mark.parametrize("parts", ["one batch", "two batches", "two commits"])
def test_a_row_that_its_source_retracts_and_moves_is_retracted_once(kinds: tuple[int, int], parts: str) -> None:
    table = new_table({"changelog-producer": "input"})
    write(table, rows((1, "a", 10), (2, "a", 20)))
    old, new = rows((1, "a", 10), (2, "a", 20), kind=kinds[0]), rows((1, "b", 11), (2, "a", 21), kind=kinds[1])
    match parts:
        case "one batch":
            write(table, pa.concat_tables([old, new]))
        case "two batches":
            write(table, old, new)
        case _:
            write(table, old)
            write(table, new)
    assert held(table) == {1: ("b", 11), 2: ("a", 21)}
    if parts != "two commits":  # between two writers nobody knows that the row is gone
        assert summed(table) == 32


def test_a_retraction_that_is_ignored_does_not_leave_a_second_row() -> None:
    table = new_table({"ignore-update-before": "true"})
    write(table, rows((1, "a", 10)))
    with table.writer() as writer:
        writer.write(rows((1, "a", 10), kind=1))
        writer.write(rows((1, "b", 11), kind=2))
        writer.commit()
    assert held(table) == {1: ("b", 11)}


def test_a_whole_table_can_be_overwritten_but_not_single_partitions() -> None:
    table = new_table({"dynamic-partition-overwrite": "false"})
    write(table, rows((1, "a", 1), (2, "b", 2)))
    with table.writer(overwrite=True) as writer:
        for key in (1, 3):
            writer.write(rows((key, "c", key)))
            writer.commit()
    assert held(table) == {3: ("c", 3)}
    with pytest.raises(UnsupportedFeature, match="the same key may have a row in another partition"):
        table.writer(overwrite={"p": "a"})
    with pytest.raises(UnsupportedFeature, match="overwrite everything with dynamic-partition-overwrite = false"):
        new_table().writer(overwrite=True)


def test_an_overwrite_of_all_rows_starts_with_an_empty_index() -> None:
    table = new_table({"merge-engine": "first-row"})
    write(table, rows((1, "a", 1)))
    assigner = CrossPartitionAssigner(table.context, replaces=True)
    writer = TableWriter(table.context, bucket_assigner=assigner)
    writer.write(rows((1, "b", 2)))
    written = [message for message in writer.prepare_commit(1) if message.increment.new_files]
    assert len(written) == 1, "the replaced row needs no delete"
    writer.abort()


def test_keys_expire_from_the_index_after_the_configured_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Java: the row in the old partition stays."""
    table = new_table({"cross-partition-upsert.index-ttl": "10 s"})
    now_s = [100.0]
    monkeypatch.setattr(env, "monotonic_s", lambda: now_s[0])
    with table.writer(commit_user="one") as writer:
        writer.write(rows((1, "a", 1), (2, "a", 1)))
        now_s[0] += 9
        writer.write(rows((1, "b", 2)))
        now_s[0] += 9
        writer.write(rows((1, "c", 3), (2, "b", 3)))
        writer.commit(1)
    found = table.scan().to_arrow().to_pylist()
    assert sorted((row["k"], row["p"]) for row in found) == [(1, "c"), (2, "a"), (2, "b")]


def test_a_key_with_two_rows_is_detected_when_the_index_is_built() -> None:
    table = new_table()
    writer = TableWriter(table.context, bucket_assigner=UnawareBucketAssigner(table.context))
    writer.write(rows((1, "a", 1), (1, "b", 2)))
    TableCommit(table.context, "no index").commit(Committable(1, tuple(writer.prepare_commit(1))))
    writer.abort()
    with pytest.raises(
        BadInput, match=r"a key has a row in p=a, bucket 0 and another one in p=b, bucket 0\. Two jobs wrote"
    ):
        write(table, rows((1, "a", 3)))


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_index_is_built_from_several_parts_in_parallel(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{index_bootstrap.__name__}.os.cpu_count", lambda: 8)
    table = new_table({"cross-partition-upsert.bootstrap-parallelism": str(at_once)})
    write(table, rows(*((key, "abcd"[key % 4], key) for key in range(60))))
    used: list[int] = []

    def threads(count: int, name: str) -> ThreadPoolExecutor:
        if name == "key-index":
            used.append(count)
        return ThreadPoolExecutor(count, name)

    monkeypatch.setattr(env, "ThreadPoolExecutor", threads)
    write(table, rows(*((key, "a", -key) for key in range(60))))
    assert held(table) == {key: ("a", -key) for key in range(60)}
    assert used == ([] if at_once == 1 else [at_once])


def test_deletes_that_are_ignored_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="a key that moves to another partition is deleted in the old one"):
        new_table({"ignore-delete": "true"})
