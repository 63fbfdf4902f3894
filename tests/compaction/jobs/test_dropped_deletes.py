"""A compaction does not change the rows of a table. This includes independent writers that write, delete and compact in
one bucket, where `sequence.field` makes a row that is committed later the older one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidelake
from tests.compaction.lakes import orphans
from tests.support.commit_races import before_publishing
from tests.support.faulty_file_io import Call, FaultyFileIO
from tests.support.levels import examples
from tidelake.compaction.jobs.compact_job import compact_table
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.storage.commit.manifests.snapshot_files import delta_entries
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import CommitKind, FileKind, RowKind

COLUMNS: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.int64()), ("v", pa.int64())])
ADD, DELETE = int(RowKind.INSERT), int(RowKind.DELETE)
ORDERED: Final = {"sequence.field": "at"}
EACH_COMMIT: Final = {"full-compaction.delta-commits": "1"}

Row: TypeAlias = tuple[int, int, int]  # id, at, kind


def make_table(place: Path, options: Mapping[str, str]) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(place))
    catalog.create_database("db")
    return catalog.create_table("db.t", COLUMNS, primary_key=["id"], options={"bucket": "1", **options})


def write(writer: tidelake.Writer, *rows: Row) -> None:
    ids, times, kinds = zip(*rows, strict=True)
    batch = pa.table({"id": ids, "at": times, "v": times}, COLUMNS)
    writer.write(batch.append_column("_VALUE_KIND", pa.array(kinds, pa.int8())))


def put(writer: tidelake.Writer, *rows: Row) -> None:
    write(writer, *rows)
    writer.commit()


def rows_at(table: tidelake.Table, snapshot: int | None = None) -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.scan(snapshot=snapshot).to_arrow().to_pylist()}


def check_compactions_change_no_row(table: tidelake.Table) -> None:
    before: dict[int, int] = {}
    for snapshot in table.snapshots():
        rows = rows_at(table, snapshot.id)
        if snapshot.commit_kind is CommitKind.COMPACT:
            assert rows == before, f"snapshot {snapshot.id}"
        before = rows


def deletes_added(table: tidelake.Table) -> int:
    """By the newest snapshot, on level 0."""
    added = delta_entries(table.context, table.snapshots()[-1])
    return sum(
        entry.file.delete_row_count or 0 for entry in added if entry.kind is FileKind.ADD and entry.file.level == 0
    )


OUT_OF_ORDER: Final = {
    "sequence.field": ORDERED,
    "sequence.field, descending": {**ORDERED, "sequence.field.sort-order": "descending"},
    "sequence group": {
        "merge-engine": "partial-update",
        "fields.at.sequence-group": "v",
        "partial-update.remove-record-on-sequence-group": "at",
    },
    "no order": {"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"},
}


@pytest.mark.parametrize("options", OUT_OF_ORDER.values(), ids=OUT_OF_ORDER.keys())
def test_a_late_row_stays_deleted_after_a_compaction_by_a_writer_unaware_of_it(
    tmp_path: Path, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path, {**options, **EACH_COMMIT})
    sign = -1 if "sequence.field.sort-order" in options else 1
    write_only_table = tidelake.open_catalog(str(tmp_path)).table("db.t", {"write-only": "true"})
    with table.writer(commit_user="one") as one, write_only_table.writer(commit_user="other") as other:
        put(one, (2, 1, ADD))
        put(other, (3, 1, ADD))
        write(one, (1, sign * 10, DELETE))
        before_publishing(monkeypatch, lambda: put(other, (1, sign * 5, ADD)))  # the compaction has dropped the delete
        one.commit()
        check_compactions_change_no_row(table)
        put(one, (4, 1, ADD))
        put(other, (5, 1, ADD))
        check_compactions_change_no_row(table)
    assert verify(table.context, deep=True) == []
    assert orphans(table.context) == set()


def test_deletes_of_a_single_writer_are_dropped_and_leave_no_file(tmp_path: Path) -> None:
    table = make_table(tmp_path, {**ORDERED, **EACH_COMMIT})
    with table.writer() as writer:
        put(writer, (1, 1, ADD), (2, 1, ADD))
        put(writer, (1, 2, DELETE))
        assert deletes_added(table) == 0
    (live,) = table.scan().splits()[0].files
    assert (live.level, live.row_count, live.delete_row_count) == (5, 1, 0)
    assert orphans(table.context) == set()


def test_sequence_numbers_alone_need_no_delete_kept(tmp_path: Path) -> None:
    """Files that a compaction doesn't know hold newer rows then."""
    table = make_table(tmp_path, {"write-only": "true"})
    with table.writer() as writer:
        put(writer, (1, 1, ADD), (2, 1, ADD))
        put(writer, (1, 2, DELETE))
        compact_during(table, lambda: put(writer, (1, 3, ADD)))
    assert deletes_added(table) == 0
    assert rows_at(table) == {1: 3, 2: 1}


def compact_during(table: tidelake.Table, happens: Callable[[], object]) -> None:
    """A job's work is done, and not published, when that happens."""
    todo = [happens]

    def first(call: Call) -> None:
        if call.name == "create_if_absent" and todo:
            todo.pop()()

    context = replace(table.context, io=FaultyFileIO(table.context.io, first))
    compact_table(context, CompactionRequest(full=True), threads=1)


def test_a_job_next_to_write_only_writers_keeps_needed_deletes_and_its_work(tmp_path: Path) -> None:
    table = make_table(tmp_path, {**ORDERED, "write-only": "true"})
    with table.writer() as writer:
        put(writer, (1, 9, DELETE), (2, 1, ADD))
        put(writer, (3, 9, DELETE), (4, 1, ADD))
        compact_during(table, lambda: put(writer, (1, 5, ADD)))
        assert rows_at(table) == {2: 1, 4: 1}
        assert [snapshot.commit_kind for snapshot in table.snapshots()][-1] is CommitKind.COMPACT
        assert deletes_added(table) == 2
        check_compactions_change_no_row(table)
        table.compact(full=True)  # no other writer commits now
    assert rows_at(table) == {2: 1, 4: 1}
    (live,) = table.scan().splits()[0].files
    assert (live.level, live.delete_row_count) == (5, 0)
    assert orphans(table.context) == set()


# ---------------------------------------------------------------- random histories

WRITERS: Final = 3
STEPS_MAX: Final = 9
ROWS_MAX: Final = 20  # of a step
Step: TypeAlias = tuple[int, Sequence[tuple[int, int]]]  # who (the last is a job), (id, kind) of each row
steps = st.lists(
    st.tuples(
        st.integers(0, WRITERS),
        st.lists(st.tuples(st.integers(1, 4), st.sampled_from([ADD, DELETE])), min_size=1, max_size=ROWS_MAX),
    ),
    min_size=3,
    max_size=STEPS_MAX,
)
TABLES: Final = (
    {**ORDERED, **EACH_COMMIT},
    {**ORDERED, "full-compaction.delta-commits": "2"},
    {**ORDERED, "num-sorted-run.compaction-trigger": "2", "commit.force-compact": "true"},
    {**ORDERED, "write-only": "true"},
)


def check_history(options: Mapping[str, str], history: Sequence[Step], times: Sequence[int]) -> None:
    """A row is shown if it is the newest of its key. If a delete is, then only a row that was committed after that."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as open_writers:
        table = make_table(Path(place), options)
        writers = [open_writers.enter_context(table.writer(commit_user=f"w{n}")) for n in range(WRITERS)]
        left = iter(times)
        done: dict[int, list[tuple[int, int]]] = {}  # per id (at, kind), in order of commits

        def put_numbered(who: int, rows: Sequence[tuple[int, int]]) -> None:
            numbered = [(row_id, next(left), kind) for row_id, kind in rows]
            put(writers[who], *numbered)
            for row_id, at, kind in numbered:
                done.setdefault(row_id, []).append((at, kind))

        for who, rows in history:
            if who < WRITERS:
                put_numbered(who, rows)
            else:
                compact_during(table, partial(put_numbered, 0, rows))
        check_compactions_change_no_row(table)
        found = rows_at(table)
        for row_id, versions in done.items():
            newest = max(range(len(versions)), key=lambda number: versions[number][0])
            at, kind = versions[newest]
            late = {at for at, kind in versions[newest + 1 :] if kind == ADD}
            assert found.get(row_id) == at if kind == ADD else row_id not in found or found[row_id] in late
        assert verify(table.context, deep=True) == []
        assert orphans(table.context) == set()


def histories(count: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def of(test: Callable[..., None]) -> Callable[..., None]:
        drawn = given(st.sampled_from(TABLES), steps, st.permutations(range(STEPS_MAX * ROWS_MAX)))
        slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
        return settings(max_examples=count, deadline=None, suppress_health_check=slow)(drawn(test))

    return of


@histories(examples(15))
def test_no_compaction_restores_a_deleted_row(
    options: Mapping[str, str], history: Sequence[Step], times: Sequence[int]
) -> None:
    check_history(options, history, times)


@pytest.mark.long
@pytest.mark.timeout(3600)
@histories(1_000)
def test_no_compaction_restores_a_deleted_row_in_a_thousand_histories(
    options: Mapping[str, str], history: Sequence[Step], times: Sequence[int]
) -> None:
    check_history(options, history, times)
