"""Tables with `bucket = -2`: rows wait, and compacting the table gives them buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from compaction import postpone_rescue
from storage.commit.table_commit import TableCommit
from storage.format import CommitKind
from storage.manifests.snapshot_files import live_entries
from storage.verify.inspection import verify

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


def test_rows_of_a_key_come_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
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
def test_how_many_buckets_a_partition_gets(options: Mapping[str, str], expected: int | None, tmp_path: Path) -> None:
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
def test_the_changelog_comes_with_the_buckets(producer: str, tmp_path: Path) -> None:
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


def test_the_second_of_two_jobs_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path)
    write(table, [(1, "a", "x")])
    other = tidelake.open_catalog(str(tmp_path)).table("db.t")
    real = postpone_rescue._Rescue._into_buckets
    calls = []

    def slow(self: Any, waiting: Any) -> Any:
        calls.append(waiting)
        written = real(self, waiting)
        if len(calls) == 1:
            postpone_rescue.rescue_postponed(other.context)
        return written

    monkeypatch.setattr(postpone_rescue._Rescue, "_into_buckets", slow)
    assert table.compact().snapshot_ids == ()
    assert rows(table) == [(1, "a", "x")]
    assert len(table.snapshots()) == 2


def test_a_failure_leaves_the_rows_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path)
    write(table, [(1, "a", "x")])
    monkeypatch.setattr(TableCommit, "commit", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        table.compact()
    monkeypatch.undo()
    assert [path.parent.name for path in Path(table.location).rglob("data-*")] == ["bucket-postpone"]
    table.compact()
    assert rows(table) == [(1, "a", "x")]


def test_an_overwrite_replaces_what_waits_and_what_has_its_bucket(tmp_path: Path) -> None:
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
    with pytest.raises(tidelake.UnsupportedFeature, match="takes no conditions"):
        table.compact(full=True)


def test_many_rows_go_into_several_files_that_keep_their_order(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"target-file-size": "20 kb", "postpone.target-row-num-per-bucket": "100000"})
    numbers = list(range(40_000))
    batch = pa.table({"id": [n % 500 for n in numbers], "day": ["a"] * 40_000, "v": [str(n) for n in numbers]}, SCHEMA)
    with table.writer() as writer:
        writer.write(batch)
        writer.commit()
    assert len(list(Path(table.location).rglob("bucket-postpone/*"))) > 1
    table.compact()
    assert {(row[0], row[2]) for row in rows(table)} == {(n % 500, str(n)) for n in numbers[-500:]}
