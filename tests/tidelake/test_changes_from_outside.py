"""What a writer computed from the table's rows is valid only while others leave these rows as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.commit.compaction_commit import CompactionCommit
from tidelake.storage.maintenance.verify import verify

COLUMNS: Final = pa.schema([pa.field("p", pa.string(), False), pa.field("k", pa.int64(), False), ("n", pa.int64())])
SUM: Final = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
LOOKED_UP: Final = {
    "lookup": {"changelog-producer": "lookup"},
    "force-lookup": {"force-lookup": "true"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "deletion vectors, lookup": {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
}
ENGINES: Final = {"sum": SUM, "sequence field": {"sequence.field": "n"}, "deduplicate": {}}


@pytest.fixture
def catalog(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    return catalog


def make_table(
    catalog: tidelake.Catalog, options: Mapping[str, str], *, key: tuple[str, ...] = ("p", "k"), bucket: int = 1
) -> tidelake.Table:
    given = {"bucket": str(bucket), **options}
    return catalog.create_table("db.t", COLUMNS, primary_key=key, partition_by=["p"], options=given)


def rows(*of: tuple[str, int, int]) -> pa.Table:
    return pa.table(
        [pa.array(column, f.type) for column, f in zip(zip(*of, strict=True), COLUMNS, strict=True)], COLUMNS
    )


def value_of(table: tidelake.Table, k: int) -> list[int]:
    return [row["n"] for row in table.scan().to_arrow().to_pylist() if row["k"] == k]


def overwrite(table: tidelake.Table) -> None:
    with table.writer(overwrite=True) as writer:
        writer.write(rows(("x", 7, 7)))
        writer.commit()


REMOVALS: Final[Mapping[str, Callable[[tidelake.Table], Any]]] = {
    "truncate": lambda table: table.truncate(),
    "truncate as the writer's user": lambda table: table.truncate(commit_user="a", identifier=2),
    "dropped partition": lambda table: table.truncate(partition={"p": "x"}),
    "dynamic overwrite": overwrite,
}


@pytest.mark.parametrize("removes", REMOVALS.values(), ids=REMOVALS)
@pytest.mark.parametrize("options", LOOKED_UP.values(), ids=LOOKED_UP)
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.exhaustive(kept=5)
def test_removed_rows_never_come_back(
    catalog: tidelake.Catalog,
    engine: Mapping[str, str],
    options: Mapping[str, str],
    removes: Callable[[tidelake.Table], Any],
) -> None:
    table = make_table(catalog, {**engine, **options})
    with table.writer(commit_user="a") as writer:
        writer.write(rows(*(("x", k, 100) for k in range(60))))
        writer.commit(1)
        removes(table)
        writer.write(rows(("x", 1, 5)))
        writer.commit(3)
    assert value_of(table, 1) == [5]
    table.compact(full=True)
    assert value_of(table, 1) == [5]


@pytest.mark.parametrize("user", ["a", "b"])
@pytest.mark.parametrize("options", LOOKED_UP.values(), ids=LOOKED_UP)
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.exhaustive(kept=5)
def test_a_compaction_sees_the_rows_that_another_writer_compacted(
    catalog: tidelake.Catalog, engine: Mapping[str, str], options: Mapping[str, str], user: str
) -> None:
    table = make_table(catalog, {**engine, **options})
    with table.writer(commit_user="a") as a:
        for number in (1, 2):
            a.write(rows(("x", number + 100, 1)))
            a.commit(number)
        with table.writer(commit_user=user) as b:
            b.write(rows(("x", 1, 10)))
            b.commit(3)
        a.write(rows(("x", 1, 20), *(("x", k, 1) for k in range(10, 60))))
        a.commit(4)
    assert value_of(table, 1) == [30 if engine is SUM else 20]
    table.compact(full=True)
    assert value_of(table, 1) == [30 if engine is SUM else 20]


CHANGES: Final[Mapping[str, tuple[Callable[[tidelake.Table], Any], list[int]]]] = {
    "delete": (lambda table: table.delete(tidelake.col("k") <= 5, commit_user="a", identifier=2), []),
    "update": (lambda table: table.update(tidelake.col("k") <= 5, {"n": 8}, commit_user="a", identifier=2), [8]),
}


@pytest.mark.parametrize(("change", "left"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("options", [{}, {"bucket": "-1"}, LOOKED_UP["deletion vectors, lookup"]], ids=str)
def test_a_row_written_after_a_change_of_the_same_user_is_newer(
    catalog: tidelake.Catalog, options: Mapping[str, str], change: Callable[[tidelake.Table], Any], left: list[int]
) -> None:
    table = make_table(catalog, options)
    with table.writer(commit_user="a") as writer:
        writer.write(rows(("x", 4, 1), ("x", 5, 1)))
        writer.commit(1)
        change(table)
        writer.write(rows(("x", 5, 9)))
        writer.commit(3)
    table.compact(full=True)
    assert (value_of(table, 4), value_of(table, 5)) == (left, [9])


def test_keys_that_move_beside_a_second_writer_of_the_same_user_stay_one_row(catalog: tidelake.Catalog) -> None:
    table = make_table(catalog, {}, key=("k",), bucket=-1)
    with table.writer(commit_user="a") as a, table.writer(commit_user="a") as b:
        for number in (1, 2):
            a.write(rows(("x", number + 100, 1)))
            a.commit(number)
        b.write(rows(("x", 1, 10)))
        b.commit(3)
        a.write(rows(("y", 1, 20)))
        a.commit(4)
    assert value_of(table, 1) == [20]


KINDS: Final = {
    "deduplicate": ({}, ("p", "k")),
    "write-only": ({"write-only": "true"}, ("p", "k")),
    "sequence field": ({"sequence.field": "n"}, ("p", "k")),
    "sum": (SUM, ("p", "k")),
    "lookup": (LOOKED_UP["lookup"], ("p", "k")),
    "append": ({"bucket-key": "k"}, ()),
}


@pytest.mark.parametrize("replaces", [False, True], ids=["adds rows", "overwrites"])
@pytest.mark.parametrize(("options", "key"), KINDS.values(), ids=KINDS)
def test_rows_for_an_old_number_of_buckets_are_refused_and_the_remedy_works(
    catalog: tidelake.Catalog, options: Mapping[str, str], key: tuple[str, ...], replaces: bool
) -> None:
    table = make_table(catalog, options, key=key, bucket=2)
    first = rows(*(("x", k, 1) for k in range(20)))
    with table.writer(commit_user="a") as writer:
        writer.write(first)
        writer.commit(1)
    with table.writer(commit_user="a", overwrite=replaces) as writer, table.writer(commit_user="b") as other:
        other.write(rows(("y", 1, 1)))
        other.commit(1)
        writer.write(rows(*(("x", k, 2) for k in range(20))))
        catalog.rescale_table("db.t", 5)
        before = table.context.snapshots.latest_id()
        with pytest.raises(tidelake.CommitConflict, match=r"partition p=x: .* into 5 buckets, .* for 2 buckets"):
            writer.commit(2)
        assert table.context.snapshots.latest_id() == before
        with pytest.raises(tidelake.TidelakeError, match=r"oad (the table|it) again"):
            other.write(rows(("x", 1, 1)))
            other.commit(2)
    fresh = catalog.table("db.t")
    assert fresh.scan().to_arrow().num_rows == 21
    with fresh.writer(commit_user="a", overwrite=replaces) as writer:
        writer.write(rows(*(("x", k, 2) for k in range(20))))
        writer.commit(2)
    assert fresh.scan().to_arrow().num_rows == (21 if key or replaces else 41)
    assert verify(fresh.context) == []


@pytest.mark.parametrize(
    "options",
    [LOOKED_UP["lookup"], LOOKED_UP["deletion vectors"], {"merge-engine": "first-row"}, {"force-lookup": "true"}],
    ids=str,
)
def test_a_writer_of_the_older_schema_compacts_files_of_the_newer_one(
    catalog: tidelake.Catalog, options: Mapping[str, str]
) -> None:
    table = make_table(catalog, options)
    with table.writer(commit_user="a") as writer:
        writer.write(rows(("x", 1, 1)))
        writer.commit(1)
        altered = catalog.alter_table("db.t", [tidelake.AddColumn("more", "INT")])
        with altered.writer(commit_user="b") as other:
            other.write(rows(("x", 0, 0)).append_column("more", pa.array([7], pa.int32())))
            other.commit(1)
        for number in range(2, 12):
            writer.write(rows(("x", number, number)))
            writer.commit(number)
    found = {row["k"]: row["more"] for row in catalog.table("db.t").scan().to_arrow().to_pylist()}
    assert found == {0: 7, **dict.fromkeys(range(1, 12))}
    if options.get("changelog-producer"):
        assert sum(batch.rows.num_rows for batch in table.changes(start=1)) == 12


@pytest.mark.parametrize("producer", ["lookup", "full-compaction", "input"])
def test_a_follower_of_moving_keys_has_the_table(catalog: tidelake.Catalog, producer: str) -> None:
    """As docs/buckets.md says: it keeps its copy by key and partition."""
    options = {"changelog-producer": producer, "num-sorted-run.compaction-trigger": "3"}
    table = make_table(catalog, options, key=("k",), bucket=-1)
    for job in range(10):
        with table.writer() as writer:
            writer.write(rows(*(("xy"[(k * job + job // 2) % 2], k, job) for k in range(job % 4, 10, 1 + job % 3))))
            writer.commit()
    table.compact(full=True)
    copy: dict[tuple[str, int], int] = {}
    for batch in table.changes(start=1):
        for row in batch.rows.to_pylist():
            if row["_VALUE_KIND"] in (0, 2):
                copy[row["p"], row["k"]] = row["n"]
            else:
                copy.pop((row["p"], row["k"]), None)
    assert copy == {(row["p"], row["k"]): row["n"] for row in table.scan().to_arrow().to_pylist()}


@pytest.mark.parametrize("commits", [1, 2])
def test_a_delete_and_a_new_row_are_two_changes_also_in_one_commit(catalog: tidelake.Catalog, commits: int) -> None:
    """Java merges both rows of one commit first, and the new row gets the deleted row's values."""
    columns = pa.schema([pa.field("id", pa.int64(), False), ("a", pa.int32()), ("b", pa.int32())])
    options = {"bucket": "1", "merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    table = catalog.create_table("db.t", columns, primary_key=["id"], options=options)
    with table.writer() as writer:
        for a, b, kind in ((1, 100, 0), (None, None, 3), (7, None, 0)):
            values = {"id": [1], "a": pa.array([a], pa.int32()), "b": pa.array([b], pa.int32())}
            writer.write(pa.table({**values, "_VALUE_KIND": pa.array([kind], pa.int8())}))
            if kind == 0 or commits == 2:
                writer.commit()
    (row,) = table.scan().to_arrow().to_pylist()
    assert (row["a"], row["b"]) == (7, None)


def test_rows_that_others_commit_between_a_commit_and_its_compaction_are_seen(
    catalog: tidelake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer's numbers continue those of the snapshot of its rows, not of its compaction."""
    table = make_table(catalog, LOOKED_UP["lookup"])
    publish, other = CompactionCommit.publish, tidelake.Table(table.context.with_options({"write-only": "true"}))

    def beside(self: CompactionCommit, *arguments: Any) -> Any:
        monkeypatch.setattr(CompactionCommit, "publish", publish)
        with other.writer(commit_user="b") as writer:
            for number in range(1, 4):
                writer.write(rows(("x", 1, number)))
                writer.commit(number)
        return publish(self, *arguments)

    with table.writer(commit_user="a") as writer:
        monkeypatch.setattr(CompactionCommit, "publish", beside)
        writer.write(rows(("x", 1, 0)))
        writer.commit(1)
        writer.write(rows(("x", 1, 9)))
        writer.commit(2)
    table.compact(full=True)
    assert value_of(table, 1) == [9]
