"""A changelog adds up to its table, or the first differing key is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.cases import unpack_golden
from tests.support.levels import examples
from tidelake.storage.maintenance.verify import checksum_ranges
from tidelake.storage.maintenance.verify.changelog_check import check_changelog
from tidelake.storage.merge.changelog_rows import equal_rows

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
KINDED = SCHEMA.append(pa.field("_VALUE_KIND", pa.int8()))

ENGINES = [
    {"merge-engine": "deduplicate"},
    {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
]
COMMITS = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 3)), max_size=8), st.booleans()),
    min_size=1,
    max_size=5,
)


@pytest.fixture(autouse=True, scope="module")
def small_ranges() -> Iterator[None]:
    """Each table has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksum_ranges, "RANGE_ROWS", 2)
        yield


def write(table: tidelake.Table, rows: list[tuple[int, bool, int]]) -> None:
    with table.writer() as writer:
        columns = {
            "id": [key for key, _, _ in rows],
            "v": [value for _, _, value in rows],
            "_VALUE_KIND": [3 if dies else 0 for _, dies, _ in rows],
        }
        writer.write(pa.table(columns, KINDED))
        writer.commit(len(table.snapshots()) + 1)


@settings(max_examples=examples(60))
@given(
    commits=COMMITS,
    engine=st.sampled_from(ENGINES),
    producer=st.sampled_from(["none", "input"]),
    first=st.integers(0, 3),
)
def test_the_changes_of_any_range_add_up_to_the_table(
    commits: list[tuple[list[tuple[int, bool, int]], bool]], engine: dict[str, str], producer: str, first: int
) -> None:
    catalog = tidelake.open_catalog("memory://folded/lake")
    catalog.create_database("db")
    try:
        options = {"bucket": "2", "changelog-producer": producer, "write-only": "true", **engine}
        table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=options)
        for drawn, compacts in commits:
            # What is taken back of a sum that was never there counts until a compaction drops it: no fold can tell.
            rows = [(key, dies and engine is not ENGINES[2], value) for key, dies, value in drawn]
            write(table, rows)
            if compacts:
                table.compact(full=True)
        report = check_changelog(table.context, min(first, table.snapshots()[-1].id))
        assert report.is_sound, report
    finally:
        catalog.drop_database("db", cascade=True)


@settings(max_examples=examples(30))
@given(commits=COMMITS, engine=st.sampled_from(ENGINES), producer=st.sampled_from(["lookup", "full-compaction"]))
def test_changelogs_of_compactions_add_up_to_the_table(
    commits: list[tuple[list[tuple[int, bool, int]], bool]], engine: dict[str, str], producer: str
) -> None:
    catalog = tidelake.open_catalog("memory://told/lake")
    catalog.create_database("db")
    try:
        options = {"bucket": "2", "changelog-producer": producer, **engine}
        table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=options)
        for drawn, compacts in commits:
            write(table, [(key, dies and engine is not ENGINES[2], value) for key, dies, value in drawn])
            if compacts:
                table.compact(full=True)
        for start in range(table.snapshots()[-1].id + 1):
            report = check_changelog(table.context, start)
            assert report.is_sound, report
    finally:
        catalog.drop_database("db", cascade=True)


GOLDEN = [
    "pk_changelog_input",
    "pk_changelog_lookup",
    "pk_changelog_full_compaction",
    "pk_changelog_separated",
    "pk_deletion_vectors_lookup_changelog",
]


@pytest.mark.parametrize("name", GOLDEN)
def test_javas_changelogs_add_up_to_its_tables(name: str, tmp_path: Path) -> None:
    warehouse = unpack_golden(f"java/{name}", tmp_path)
    table = tidelake.open_catalog(str(warehouse)).table(f"golden.{name}")
    latest = table.snapshots()[-1].id
    compared = [check_changelog(table.context, start, latest) for start in range(table.snapshots()[0].id, latest + 1)]
    assert all(report.is_sound for report in compared), compared
    assert any(report.changes for report in compared)


# ---------------------------------------------------------------- what is wrong


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    """Two buckets; keys 0 to 9 in snapshot 1, some updated in 2. Its changelog is the input's, said to be complete."""
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "2", "changelog-producer": "input", "write-only": "true"}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=options)
    write(table, [(key, False, 0) for key in range(10)])
    write(table, [(3, False, 1), (4, False, 1)])
    return table


def test_a_row_that_contradicts_its_changes_is_named(table: tidelake.Table) -> None:
    """A writer without a changelog wrote two rows."""
    write(tidelake.Table(table.context.with_options({"changelog-producer": "none"})), [(3, False, 7), (11, False, 8)])
    report = check_changelog(table.context)
    assert (report.differing, report.ill_formed, report.is_sound) == (2, 0, False)
    assert report.first is not None
    found = {
        key: None if row is None else row["v"].to_pylist()
        for key, row in (("folded", report.first.replayed), ("there", report.first.there))
    }
    expected = {3: {"folded": [1], "there": [7]}, 11: {"folded": None, "there": [8]}}
    assert found == expected[report.first.key["id"].to_pylist()[0]]


def test_only_ranges_of_keys_that_differ_are_compared_row_by_row(
    table: tidelake.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []

    def noted(rows: pa.RecordBatch, *others: Any) -> Any:
        compared.extend(rows["id"].to_pylist())
        return equal_rows(rows, *others)

    monkeypatch.setattr("tidelake.storage.maintenance.verify.changelog_check.equal_rows", noted)
    assert check_changelog(table.context).is_sound
    assert compared == []
    write(tidelake.Table(table.context.with_options({"changelog-producer": "none"})), [(3, False, 7)])
    report = check_changelog(table.context)
    assert (report.differing, report.keys) == (1, 10)
    assert 3 in compared
    assert len(compared) <= 2


def test_row_kinds_that_contradict_the_previous_rows_are_named(table: tidelake.Table) -> None:
    """An update emitted as +I, where the producer should emit -U and +U."""
    complete = table.context.with_options({"changelog-producer": "full-compaction", "num-levels": "1"})
    report = check_changelog(complete, 0, 2)
    assert report.ill_formed == 2
    assert report.first_ill_formed is not None
    assert report.first_ill_formed["id"].to_pylist()[0] in (3, 4)


def test_the_check_begins_behind_overwritten_rows(table: tidelake.Table) -> None:
    with table.writer(overwrite=True) as writer:
        writer.write(pa.table({"id": [1], "v": [5]}, SCHEMA))
        writer.commit()
    write(table, [(2, False, 6)])
    report = check_changelog(table.context)
    assert (report.start, report.end, report.overwritten) == (3, 4, [3])
    assert (report.is_sound, report.keys, report.changes) == (True, 2, 1)


def test_tables_that_cannot_be_checked_are_refused(table: tidelake.Table, tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    append = catalog.create_table("db.append", SCHEMA)
    with pytest.raises(tidelake.UnsupportedFeature, match="no primary key"):
        check_changelog(append.context)
    ranges: list[tuple[Any, Any, str]] = [(2, 1, "after the last one"), (0, 9, "no state of snapshot 9")]
    for start, end, message in ranges:
        with pytest.raises(tidelake.BadInput, match=message):
            check_changelog(table.context, start, end)
    empty = catalog.create_table("db.empty", SCHEMA, primary_key=["id"])
    with pytest.raises(tidelake.BadInput, match="nothing to verify"):
        check_changelog(empty.context)


def test_after_expiry_the_check_starts_with_the_earliest_state(table: tidelake.Table) -> None:
    write(table, [(5, False, 2)])
    table.expire(retain_min=2, retain_max=2, retain_ms=0)
    report = check_changelog(table.context)
    assert (report.start, report.end, report.is_sound, report.changes) == (2, 3, True, 1)
