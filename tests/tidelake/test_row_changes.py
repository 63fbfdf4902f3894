"""Rows of append tables deleted and updated by a condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
import tidelake.aio
from tests.support.commit_races import before_publishing
from tests.support.levels import examples
from tidelake import col
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.maintenance.verify import inspect
from tidelake.storage.model.format import CommitKind

SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.int64()), ("p", pa.string())])
VECTORS = {"deletion-vectors.enabled": "true"}
COPIES = {"deletion-vectors.enabled": "false"}  # files with matching rows are written again
LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "without buckets": {"options": {"bucket": "-1"}},
    "in buckets": {"options": {"bucket": "2", "bucket-key": "k"}},
    "in partitions": {"options": {"bucket": "-1"}, "partition_by": ["p"]},
    "with small index files": {"options": {"bucket": "-1", "deletion-vector.index-file.target-size": "1 b"}},
    "with vectors of 64 bits": {"options": {"bucket": "-1", "deletion-vectors.bitmap64": "true"}},
    "in small row groups": {"options": {"bucket": "-1", "file.block-size": "1 b"}},
    "copied": {"options": {"bucket": "-1", **COPIES}},
    "copied in buckets": {"options": {"bucket": "2", "bucket-key": "k", **COPIES}},
    "copied in partitions": {"options": {"bucket": "-1", **COPIES}, "partition_by": ["p"]},
    "copied from small row groups": {"options": {"bucket": "-1", "file.block-size": "1 b", **COPIES}},
}

MARKED = [layout for layout in LAYOUTS if not layout.startswith("copied")]

Row = tuple[int, int | None, str]


def new_table(layout: str = "without buckets", **options: str) -> tidelake.Table:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    given = dict(LAYOUTS[layout])
    given["options"] = {**VECTORS, **given["options"], **options}
    return catalog.create_table("db.t", SCHEMA, **given)


def append(table: tidelake.Table, *rows: Row) -> None:
    with table.writer() as writer:
        writer.write(pa.Table.from_arrays(list(map(pa.array, zip(*rows, strict=True))), names=SCHEMA.names))
        writer.commit()


def rows_of(table: tidelake.Table, **how: Any) -> list[Row]:
    return sorted((r["k"], r["v"], r["p"]) for r in table.scan(**how).to_arrow().to_pylist())


def filled(layout: str = "without buckets", **options: str) -> tidelake.Table:
    """Three files, or more, of ten rows each: k 0 to 9, v the number of the file, p x or y."""
    table = new_table(layout, **options)
    for v in range(3):
        append(table, *((k, v, "xy"[k % 2]) for k in range(10)))
    return table


def check_sound(table: tidelake.Table) -> None:
    report = inspect(table.context, deep=True)
    assert not report.findings
    assert report.orphans is not None
    assert not report.orphans.young, "files were left behind"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_matching_rows_are_deleted_and_older_snapshots_keep_them(layout: str) -> None:
    table = filled(layout)
    before = rows_of(table)
    latest = len(table.snapshots())
    assert table.delete(((col("k") < 3) & (col("v") != 1)) | (col("k") == 9)) == latest + 1
    expected = [row for row in before if not ((row[0] < 3 and row[1] != 1) or row[0] == 9)]
    assert rows_of(table) == expected
    assert rows_of(table, filter=col("k") == 2) == [(2, 1, "x")]
    assert rows_of(table, snapshot=latest) == before
    snapshot = table.snapshots()[-1]
    assert (snapshot.commit_kind, snapshot.operation) == (CommitKind.OVERWRITE, "DELETE")
    check_sound(table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_matching_rows_are_replaced_by_the_given_values(layout: str) -> None:
    table = filled(layout)
    table.update(col("k") >= 8, {"v": pc.field("v") * 10 + pc.field("k").cast(pa.int64()), "p": "z"})
    updated = [(k, 10 * v + k, "z") for k in (8, 9) for v in range(3)]
    assert rows_of(table) == sorted([(k, v, "xy"[k % 2]) for k in range(8) for v in range(3)] + updated)
    snapshot = table.snapshots()[-1]
    assert (snapshot.commit_kind, snapshot.operation) == (CommitKind.OVERWRITE, "UPDATE")
    table.update(pc.field("p") == "z", {"v": None})
    assert rows_of(table, filter=col("p") == "z") == [(k, None, "z") for k in (8, 8, 8, 9, 9, 9)]
    check_sound(table)


def test_a_change_without_an_identifier_is_tagged_like_a_batch_write() -> None:
    table = new_table(**{"tag.automatic-creation": "batch", "tag.batch.customized-name": "newest"})
    append(table, (1, 1, "p"), (2, 2, "p"))
    changed = table.update(col("k") == 1, {"v": 7})
    assert table.tags()["newest"].id == changed
    deleted = table.delete(col("k") == 2)
    assert table.tags()["newest"].id == deleted
    table.delete(col("k") == 1, commit_user="job", identifier=1)
    assert table.tags()["newest"].id == deleted, "a numbered commit is none"


def test_all_expressions_use_the_old_row() -> None:
    table = new_table()
    append(table, (1, 5, "a"))
    table.update(col("k") == 1, {"v": pc.field("k").cast(pa.int64()), "k": pc.field("v")})
    assert rows_of(table) == [(5, 1, "a")]


def test_an_existing_null_stays_null_despite_a_column_default() -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, options={"bucket": "-1", **VECTORS})
    append(table, (1, None, "a"))
    table = catalog.alter_table("db.t", [tidelake.UpdateColumnDefault(("v",), "7")])
    table.update(col("k") == 1, {"p": "b"})
    assert rows_of(table) == [(1, None, "b")]


@pytest.mark.parametrize("layout", MARKED)
def test_a_full_compaction_leaves_no_deleted_row_in_any_file(layout: str) -> None:
    table = filled(layout)
    table.delete(col("k") < 5)
    expected = rows_of(table)
    report = table.compact(full=True)
    assert report.buckets
    assert rows_of(table) == expected
    splits = table.scan().splits()
    assert not any(split.deletion_files for split in splits)
    assert sum(split.row_count for split in splits) == len(expected)
    assert not table.compact(full=True).buckets or layout == "in buckets"
    check_sound(table)


def test_files_without_rows_are_removed_by_the_next_compaction() -> None:
    table = filled()
    table.delete(col("v") == 1)
    table.compact()
    assert [split.row_count for split in table.scan().splits()] == [20]
    table.delete(col("v") >= 0)
    table.compact()
    assert table.scan().splits() == []
    check_sound(table)


@pytest.mark.parametrize(("ratio", "is_rewritten"), [("0.2", True), ("0.3", False)])
def test_a_large_file_is_rewritten_once_too_many_of_its_rows_are_deleted(ratio: str, is_rewritten: bool) -> None:
    options = {"target-file-size": "1 b", "compaction.delete-ratio-threshold": ratio}
    table = new_table(**options)
    append(table, *((k, 0, "a") for k in range(100)))
    table.delete(col("k") < 30)
    report = table.compact()
    assert [bucket.reason for bucket in report.buckets] == (["deleted rows"] if is_rewritten else [])
    assert len(rows_of(table)) == 70


def test_concurrently_added_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled()
    meanwhile(monkeypatch, lambda: append(table, (1, 99, "new")))
    table.delete(col("k") == 1)
    assert rows_of(table, filter=col("k") == 1) == [(1, 99, "new")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_concurrently_compacted_files_are_checked_again(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(layout)
    meanwhile(monkeypatch, lambda: table.compact(full=True))
    table.update(col("k") == 1, {"v": 50})
    assert rows_of(table, filter=col("k") == 1) == [(1, 50, "y")] * 3
    assert len(rows_of(table)) == 30
    check_sound(table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_concurrently_deleted_rows_stay_deleted(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(layout)
    meanwhile(monkeypatch, lambda: table.delete(col("k") == 2))
    table.delete((col("k") == 1) | (col("v") == 0))
    assert not [row for row in rows_of(table) if row[0] in (1, 2) or row[1] == 0]
    assert len(rows_of(table)) == 16
    check_sound(table)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_concurrent_compaction_does_not_restore_deleted_rows(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelake.compaction.append.rewriter import AppendRewriter  # noqa: PLC0415

    table = filled(layout)
    if layout in MARKED:
        table.delete(col("k") == 7)
    compact = AppendRewriter.compact

    def slow_compact(self: AppendRewriter, *given: Any) -> Any:
        monkeypatch.setattr(AppendRewriter, "compact", compact)
        result = compact(self, *given)
        table.delete(col("k") == 2)
        return result

    monkeypatch.setattr(AppendRewriter, "compact", slow_compact)
    table.compact(full=True)
    gone = (2, 7) if layout in MARKED else (2,)
    assert rows_of(table) == sorted((k, v, "xy"[k % 2]) for k in range(10) for v in range(3) if k not in gone)
    assert not any(split.deletion_files for split in table.scan().splits())
    check_sound(table)


def meanwhile(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Once, after the first row change has read the table and before it commits."""
    before_publishing(monkeypatch, action)


def test_without_matching_rows_nothing_is_committed() -> None:
    table = filled()
    latest = len(table.snapshots())
    assert table.delete(col("k") == 77) is None
    assert table.update(col("k") == 77, {"v": 1}) is None
    assert len(table.snapshots()) == latest
    assert new_table().delete(col("k") == 1) is None


def test_a_change_under_an_identifier_happens_once() -> None:
    table = filled()
    update = {"v": pc.field("v") + 10}
    first = table.update(col("k") == 1, update, commit_user="etl", identifier=1)
    assert first is not None
    assert table.update(col("k") == 1, update, commit_user="etl", identifier=1) is None
    assert rows_of(table, filter=col("k") == 1) == [(1, 10, "y"), (1, 11, "y"), (1, 12, "y")]
    assert table.delete(col("k") == 77, commit_user="etl", identifier=2) == first + 1, "it is done, as a snapshot says"
    check_sound(table)


def test_rows_with_ids_are_not_copied_and_the_options_to_set_are_named() -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, options={"bucket": "-1", "row-tracking.enabled": "true"})
    append(table, (1, 1, "a"), (2, 2, "a"))
    with pytest.raises(tidelake.UnsupportedFeature, match=r"without deletion vectors.*deletion-vectors\.enabled"):
        table.delete(col("k") == 1)
    for option in ("deletion-vectors.modifiable", "deletion-vectors.enabled"):
        table = catalog.alter_table("db.t", [tidelake.SetOption(option, "true")])
    table.delete(col("k") == 1)
    assert rows_of(table) == [(2, 2, "a")]


def test_a_copy_keeps_the_order_of_rows_and_files_without_matching_rows() -> None:
    table = filled("copied")

    def files() -> set[str]:
        return {entry.file.file_name for entry in live_entries(table.context, table.snapshots()[-1])}

    before = files()
    table.update((col("k") == 4) & (col("v") == 1), {"v": 7})
    table.delete((col("k") == 5) & (col("v") == 1))
    assert len(before & files()) == 2
    values = [(row["k"], row["v"]) for row in table.scan().to_arrow().to_pylist() if row["v"] in (1, 7)]
    assert values == [(k, 7 if k == 4 else 1) for k in range(10) if k != 5]


def test_a_file_whose_deleted_rows_only_a_vector_has_is_not_copied() -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    options = {"bucket": "-1", "deletion-vectors.modifiable": "true", **VECTORS}
    table = catalog.create_table("db.t", SCHEMA, options=options)
    append(table, (1, 1, "a"), (2, 2, "a"), (3, 3, "a"))
    table.delete(col("k") == 1)
    table = catalog.alter_table("db.t", [tidelake.SetOption("deletion-vectors.enabled", "false")])
    with pytest.raises(tidelake.UnsupportedFeature, match=r"would come back.*deletion-vectors\.enabled = true again"):
        table.delete(col("k") == 2)
    table = catalog.alter_table("db.t", [tidelake.SetOption("deletion-vectors.enabled", "true")])
    table.delete(col("k") == 2)
    assert rows_of(table) == [(3, 3, "a")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "needs the columns to change"),
        ({"vv": 1}, "no column 'vv' to update; did you mean 'v'"),
        ({"v": 1.5}, "does not fit"),
        ({"k": 2**40}, "does not fit"),
        ({"v": object()}, "is not a valid value of column v"),
        ({"v": pc.field("nope")}, "the new values of v can't be computed"),
        ({"v": pc.field("p")}, "does not fit"),
    ],
)
def test_invalid_values_are_refused_and_leave_no_files(values: Mapping[str, Any], message: str) -> None:
    table = filled()
    before = rows_of(table)
    with pytest.raises(tidelake.BadInput, match=message):
        table.update(col("k") == 1, values)
    assert rows_of(table) == before
    check_sound(table)


def test_a_condition_on_a_missing_column_is_refused() -> None:
    with pytest.raises(tidelake.BadInput, match="nope"):
        filled().delete(col("nope") == 1)


async def test_rows_are_changed_without_blocking_the_event_loop() -> None:
    catalog = await tidelake.aio.open_catalog(f"memory://{uuid4()}/lake")
    await catalog.create_database("db")
    table = await catalog.create_table("db.t", SCHEMA, options={"bucket": "-1", **VECTORS})
    async with table.writer() as writer:
        await writer.write(pa.table({"k": [1, 2], "v": [1, 2], "p": ["a", "b"]}))
        await writer.commit()
    assert await table.delete(col("k") == 1) == 2
    assert await table.update(col("k") == 2, {"v": 9}) == 3
    assert (await (await table.scan()).to_arrow()).to_pylist() == [{"k": 2, "v": 9, "p": "b"}]


CHANGE = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6)),
    st.tuples(st.just("delete"), st.integers(0, 7)),
    st.tuples(st.just("update"), st.integers(0, 7)),
    st.tuples(st.just("compact"), st.booleans()),
)


@settings(max_examples=examples(40))
@given(st.sampled_from(sorted(LAYOUTS)), st.lists(CHANGE, max_size=12))
def test_a_table_matches_its_model_after_any_history(layout: str, history: list[tuple[str, Any]]) -> None:
    table = new_table(layout, **{"compaction.min.file-num": "2"})
    expected: list[Row] = []
    for number, (kind, what) in enumerate(history):
        match kind:
            case "append":
                rows: list[Row] = [(k, number, "xy"[k % 2]) for k in range(what)]
                append(table, *rows)
                expected += rows
            case "delete":
                table.delete(col("k") == what)
                expected = [row for row in expected if row[0] != what]
            case "update":
                table.update(col("k") == what, {"v": pc.field("v") + 100})
                expected = [(k, v + 100 if k == what and v is not None else v, p) for k, v, p in expected]
            case "compact":
                table.compact(full=what)
        assert rows_of(table) == sorted(expected)
    check_sound(table)
