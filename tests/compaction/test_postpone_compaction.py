"""Tables with `bucket = -2`: rows are staged, and a compaction of the table places them into buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.commit_races import before_publishing
from tidelake.compaction import postpone_compaction
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.maintenance.verify.inspection import verify
from tidelake.storage.model.format import CommitKind
from tidelake.storage.write.table_writer import TableWriter

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False), ("v", pa.string())]
)


def new_table(folder: Path, **options: str) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(folder))
    catalog.create_database("db", if_not_exists=True)
    options = {"bucket": "-2", "postpone.target-row-num-per-bucket": "4", **options}
    return catalog.create_table("db.t", SCHEMA, primary_key=["id", "day"], partition_by=["day"], options=options)


def write(table: tidelake.Table, rows: Sequence[tuple[int, str, str]], kinds: Sequence[int] | None = None) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    batch = pa.table(dict(zip(SCHEMA.names, columns, strict=True)), SCHEMA)
    if kinds is not None:
        batch = batch.append_column("_VALUE_KIND", pa.array(kinds, pa.int8()))
    with table.writer(commit_user="etl") as writer:
        writer.write(batch)
        writer.commit(identifier=len(table.snapshots()) + 1)


def rows(table: tidelake.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def buckets(table: tidelake.Table) -> dict[str, set[tuple[int, int]]]:
    """(bucket, number of buckets) with files, by partition."""
    context = table.context
    latest = context.snapshots.latest()
    assert latest is not None
    found: dict[str, set[tuple[int, int]]] = {}
    for entry in live_entries(context, latest):
        day = entry.partition[-8:].rstrip(b"\0").decode("ascii", "ignore")
        found.setdefault(day[:1], set()).add((entry.bucket, entry.total_buckets))
    return found


def test_rows_wait_until_the_table_is_compacted(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write(table, [(1, "a", "x"), (2, "a", "y"), (1, "b", "z")])
    assert rows(table) == []
    assert buckets(table) == {"a": {(-2, -2)}, "b": {(-2, -2)}}
    files = [file.name for file in Path(table.location).rglob("bucket-postpone/*")]
    assert len(files) == 2
    assert all(name.startswith("data--u-tidelake-s-") and "-w-" in name for name in files)
    assert all(name.endswith(".avro") for name in files)
    (snapshot_id,) = table.compact().snapshot_ids
    assert rows(table) == [(1, "a", "x"), (1, "b", "z"), (2, "a", "y")]
    assert table.snapshots()[-1].commit_kind is CommitKind.COMPACT
    assert table.compact().snapshot_ids == ()
    assert snapshot_id == 2
    assert verify(table.context, deep=True) == []


def test_rows_of_a_key_keep_their_write_order(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write(table, [(1, "a", "first"), (2, "a", "kept"), (1, "a", "second")])
    write(table, [(1, "a", "third"), (3, "a", "gone")])
    write(table, [(3, "a", "gone")], kinds=[3])
    table.compact()
    assert rows(table) == [(1, "a", "third"), (2, "a", "kept")]
    write(table, [(2, "a", "newer")])
    assert rows(table) == [(1, "a", "third"), (2, "a", "kept")]
    table.compact()
    assert rows(table) == [(1, "a", "third"), (2, "a", "newer")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"postpone.target-row-num-per-bucket": "4"}, 3),
        ({"postpone.target-row-num-per-bucket": "100"}, 1),
        ({"postpone.default-bucket-num": "5"}, 5),
        ({"postpone.target-size-per-bucket": "1 b"}, None),
    ],
    ids=["by rows", "few rows", "given", "by bytes"],
)
def test_options_decide_the_bucket_count_of_a_partition(
    options: Mapping[str, str], expected: int | None, tmp_path: Path
) -> None:
    table = new_table(tmp_path, **options)
    if "postpone.target-size-per-bucket" in options:
        tidelake.open_catalog(str(tmp_path)).alter_table(
            "db.t", [tidelake.RemoveOption("postpone.target-row-num-per-bucket")]
        )
        table = tidelake.open_catalog(str(tmp_path)).table("db.t")
    write(table, [(number, "a", "v") for number in range(9)])
    size = sum(file.stat().st_size for file in Path(table.location).rglob("bucket-postpone/*"))
    table.compact()
    assert {total for _, total in buckets(table)["a"]} == {expected or size}


def test_a_partition_keeps_its_number_of_buckets(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write(table, [(number, "a", "v") for number in range(8)])
    table.compact()
    write(table, [(number, "a", "w") for number in range(100)] + [(1, "b", "w")])
    table.compact()
    found = buckets(table)
    assert {total for _, total in found["a"]} == {2}
    assert {total for _, total in found["b"]} == {1}
    assert len(rows(table)) == 101


@pytest.mark.parametrize("producer", ["input", "lookup"])
def test_the_changelog_is_made_when_rows_get_their_buckets(producer: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"changelog-producer": producer})
    write(table, [(1, "a", "x")])
    table.compact()
    write(table, [(1, "a", "y"), (2, "a", "z")])
    table.compact()
    changes = [
        (change.snapshot_id, row["_VALUE_KIND"], row["id"], row["v"])
        for change in table.changes(start=1)
        for row in change.rows.to_pylist()
    ]
    expected = [(2, 0, 1, "x"), (4, 0, 2, "z")]
    expected += [(4, 0, 1, "y")] if producer == "input" else [(4, 1, 1, "x"), (4, 2, 1, "y")]
    assert sorted(changes) == sorted(expected)


def test_the_second_of_two_jobs_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path)
    write(table, [(1, "a", "x")])
    other = tidelake.open_catalog(str(tmp_path)).table("db.t")
    before_publishing(monkeypatch, lambda: postpone_compaction.compact_postponed(other.context))
    assert table.compact().snapshot_ids == ()
    assert rows(table) == [(1, "a", "x")]
    assert len(table.snapshots()) == 2


def test_a_failure_leaves_the_rows_in_the_postpone_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path)
    write(table, [(1, "a", "x")])
    monkeypatch.setattr(TableCommit, "commit", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        table.compact()
    monkeypatch.undo()
    assert [path.parent.name for path in Path(table.location).rglob("data-*")] == ["bucket-postpone"]
    table.compact()
    assert rows(table) == [(1, "a", "x")]


def test_an_overwrite_replaces_postponed_rows_and_rows_in_buckets(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write(table, [(1, "a", "x"), (1, "b", "x")])
    table.compact()
    write(table, [(2, "a", "waits")])
    with table.writer(overwrite={"day": "a"}) as writer:
        writer.write(pa.table({"id": [9], "day": ["a"], "v": ["new"]}, SCHEMA))
        writer.commit()
    table.compact()
    assert rows(table) == [(1, "b", "x"), (9, "a", "new")]


def test_conditions_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(tidelake.UnsupportedFeature, match="without conditions and sorting"):
        table.compact(full=True)


def test_many_rows_go_into_several_files_that_keep_their_order(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"target-file-size": "20 kb", "postpone.target-row-num-per-bucket": "100000"})
    numbers = list(range(40_000))
    batch = pa.table({"id": [n % 500 for n in numbers], "day": ["a"] * 40_000, "v": [str(n) for n in numbers]}, SCHEMA)
    with table.writer() as writer:
        writer.write(batch)
        writer.commit(identifier=1)
    assert len(list(Path(table.location).rglob("bucket-postpone/*"))) > 1
    table.compact()
    assert {(row[0], row[2]) for row in rows(table)} == {(n % 500, str(n)) for n in numbers[-500:]}


# ---------------------------------------------------------------- one-off commits, which give buckets at once


def commit_once(table: tidelake.Table, rows: Sequence[tuple[int, str, str]], **how: Any) -> int | None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    with table.writer(**how) as writer:
        writer.write(pa.table(dict(zip(SCHEMA.names, columns, strict=True)), SCHEMA))
        return writer.commit()


def postponed_files(table: tidelake.Table) -> list[Path]:
    return list(Path(table.location).rglob("bucket-postpone/*"))


def test_rows_of_a_one_off_commit_are_in_buckets_at_once(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    commit_once(table, [(number, "a", "v") for number in range(9)] + [(1, "b", "v")])
    assert len(rows(table)) == 10
    assert {total for _, total in buckets(table)["a"]} == {
        4
    }  # nine rows of four a bucket, rounded up to a power of two
    assert buckets(table)["b"] == {(0, 1)}
    assert postponed_files(table) == []
    commit_once(table, [(3, "a", "newer")])
    assert (3, "a", "newer") in rows(table)
    assert verify(table.context, deep=True) == []


def test_one_writer_may_commit_repeatedly(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with table.writer() as writer:
        for turn in range(3):
            writer.write(pa.table({"id": [1, turn + 2], "day": ["a", "a"], "v": [f"turn {turn}"] * 2}, SCHEMA))
            writer.commit()
    assert rows(table) == [(1, "a", "turn 2"), (2, "a", "turn 0"), (3, "a", "turn 1"), (4, "a", "turn 2")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"postpone.default-bucket-num": "3"}, 3),
        ({"postpone.batch-write-fixed-bucket.max-parallelism": "3"}, 3),
        ({"postpone.target-row-num-per-bucket": "100"}, 1),
    ],
    ids=["the number given", "not more than the most", "few rows"],
)
def test_options_decide_the_bucket_count_of_a_new_partition_in_a_batch(
    options: Mapping[str, str], expected: int, tmp_path: Path
) -> None:
    table = new_table(tmp_path, **options)
    commit_once(table, [(number, "a", "v") for number in range(40)])
    assert {total for _, total in buckets(table)["a"]} == {expected}


def test_a_partition_that_is_too_small_by_the_load_factor_is_rescaled_first(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"postpone.batch-write-fixed-bucket.rescale-load-factor": "2"})
    commit_once(table, [(1, "a", "old"), (2, "a", "old")])
    commit_once(table, [(number, "a", "new") for number in range(2, 10)])  # two buckets' worth: not more than twice
    assert {total for _, total in buckets(table)["a"]} == {1}
    commit_once(table, [(number, "a", "new") for number in range(10, 22)])
    assert {total for _, total in buckets(table)["a"]} == {4}
    assert rows(table) == [(1, "a", "old"), *((number, "a", "new") for number in range(2, 22))]
    assert verify(table.context, deep=True) == []


def test_a_batch_is_postponed_behind_rows_already_postponed(tmp_path: Path) -> None:
    """In a bucket at once, it would count as older than they when they are moved."""
    table = new_table(tmp_path)
    write(table, [(1, "a", "stream")])
    commit_once(table, [(1, "a", "batch"), (1, "b", "batch")])
    assert rows(table) == [(1, "b", "batch")]
    table.compact()
    assert rows(table) == [(1, "a", "batch"), (1, "b", "batch")]


def test_without_the_option_batches_are_postponed_too(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"postpone.batch-write-fixed-bucket": "false"})
    commit_once(table, [(1, "a", "v")])
    assert rows(table) == []
    assert buckets(table) == {"a": {(-2, -2)}}


def test_a_batch_overwrite_replaces_rows_in_buckets_and_postponed_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    commit_once(table, [(number, "a", "old") for number in range(9)])
    write(table, [(20, "a", "waits")])
    commit_once(table, [(1, "a", "new")], overwrite={"day": "a"})
    assert rows(table) == [(1, "a", "new")]
    assert table.compact().snapshot_ids == ()
    assert {total for _, total in buckets(table)["a"]} == {1}


def test_a_compaction_includes_level_0_files_of_batches(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"num-sorted-run.compaction-trigger": "2"})
    for turn in range(3):
        commit_once(table, [(1, "a", f"turn {turn}")])
    assert len(list(Path(table.location).rglob("bucket-0/data-*"))) == 3
    assert table.compact().snapshot_ids
    context = table.context
    latest = context.snapshots.latest()
    assert latest is not None
    assert [entry.file.level > 0 for entry in live_entries(context, latest)] == [True]
    assert rows(table) == [(1, "a", "turn 2")]


def test_rows_invisible_until_compacted_are_compacted_by_the_job(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"deletion-vectors.enabled": "true"})
    commit_once(table, [(1, "a", "first"), (2, "a", "kept")])
    commit_once(table, [(1, "a", "second")])
    assert rows(table) == []
    table.compact()
    assert rows(table) == [(1, "a", "second"), (2, "a", "kept")]


def test_a_batch_that_fails_to_get_buckets_is_kept_for_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)
    with table.writer() as writer:
        writer.write(pa.table({"id": [1], "day": ["a"], "v": ["v"]}, SCHEMA))
        with monkeypatch.context() as patch:
            patch.setattr(TableWriter, "prepare_commit", full_disk_in_buckets)
            with pytest.raises(OSError, match="no space"):
                writer.commit()
        assert rows(table) == []
        writer.commit()
    assert rows(table) == [(1, "a", "v")]
    assert postponed_files(table) == []
    assert verify(table.context, deep=True) == []


_prepare_commit = TableWriter.prepare_commit


def full_disk_in_buckets(writer: TableWriter, *arguments: Any, **named: Any) -> Any:
    if writer._context.options["bucket"] != "-2":
        raise OSError("no space")
    return _prepare_commit(writer, *arguments, **named)
