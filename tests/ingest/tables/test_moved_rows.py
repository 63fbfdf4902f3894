"""A row that moved to another key has the values of the source, or its record is refused. It never has other values."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tests.crash.table_life import COMPACT_AT_TWO
from tests.ingest.tables.moved_rows_model import DOCS, TOPIC, DocsWorld, SourceTable
from tests.support.faulty_file_io import Fault, FaultyFileIO
from tests.support.levels import examples
from tidelake.checkpoint.moved_rows_state import MovedRowsState, moved_rows_of
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import RecordRefused
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER
from tidelake.ingest.tables.moved_row_files import REPLACED_MAX
from tidelake.storage.maintenance.verify import verify

APART = {1: 0, 2: 1, 3: 2}  # each key in a partition of its own
Step = tuple[str, int, int, bool]


@pytest.mark.parametrize("batch_records", [1, 3], ids=["a checkpoint after each record", "after three"])
@pytest.mark.parametrize("partitions", [{}, APART], ids=["one partition", "several"])
@pytest.mark.parametrize("first", [[0] * 9, [2, 1] * 9], ids=["leaving first", "coming first"])
def test_a_row_changed_just_before_it_moved_keeps_its_values(
    partitions: dict[int, int], first: Sequence[int], batch_records: int
) -> None:
    source = SourceTable(partition_of=partitions)
    source.insert(1, "A")
    world = DocsWorld(source)
    world.run()
    source.update(1, "B")
    source.move(1, 2)
    source.update(2, changes_doc=False)
    source.move(2, 3)
    world.run(batch_records=batch_records, first=first)
    assert world.rows == source.truth
    assert world.rows[0][::2] == (3, "B")
    assert world.reasons_of_dead_letters == []


# ---------------------------------------------------------------- between the two halves


def left_only(**of_world: Any) -> tuple[DocsWorld, Callable[[], None]]:
    """Row 1 changed and its delete record for the move to key 2 was read. A call of the returned function sends the
    insert record.
    """
    source = SourceTable(partition_of=APART)
    world = DocsWorld(source, COMPACT_AT_TWO, **of_world)
    source.insert(1, "A")
    world.run()
    source.update(1, "B" * 100)
    source.move(1, 2)
    come = source.hold_back(1)
    world.run()
    return world, come


def test_moved_rows_survive_a_restart_and_are_removed_by_the_commit_of_the_row() -> None:
    world, come = left_only()
    newest = world.table.snapshots()[-1]
    state = moved_rows_of(newest.properties, "here")
    assert (state.rows, state.dropped, [state.file]) == (1, 0, world.files_of_moved_rows)
    assert state.nbytes > 100
    come()
    world.run()
    assert world.rows == world.source.truth
    newest = world.table.snapshots()[-1]
    assert moved_rows_of(newest.properties, "here") == MovedRowsState()
    assert not verify(world.table.context, deep=True)


def test_a_start_without_new_records_keeps_moved_rows() -> None:
    world, come = left_only()
    for _ in range(3):
        world.run()
    come()
    world.run()
    assert world.rows == world.source.truth


def test_a_plan_reports_moved_rows() -> None:
    world, _ = left_only()
    beginning = asyncio.run(world.pipeline().plan())
    assert (beginning.moved_rows[DOCS].rows, beginning.moved_rows[DOCS].oldest_ms is None) == (1, False)


def test_another_row_under_the_old_key_is_not_used_for_a_moved_row() -> None:
    world, come = left_only()
    world.source.insert(1, "another")
    world.run()
    come()
    world.run()
    assert world.rows == world.source.truth


@pytest.mark.parametrize("bound", ["keep_ms: 1", "bytes_max: 1"])
def test_a_moved_row_that_is_no_longer_kept_is_refused_with_both_keys(bound: str) -> None:
    world, come = left_only(settings=f"moved_rows: {{{bound}}}")
    world.source.insert(1, "another")
    time.sleep(0.01)
    world.run()
    come()
    with pytest.raises(RecordRefused) as refused:
        world.run(tolerance="none")
    message = f"`moved_rows.{bound.partition(':')[0]}`"
    assert re.search(
        f"{message} .*; a larger number only helps rows that are deleted after the next start", str(refused.value)
    )
    assert "make the source send the value: write the column again (`UPDATE … SET doc = doc || ''`)" in str(
        refused.value
    )
    assert "Fix the source" not in str(refused.value)
    assert 'old key {"id":1}, new key {"id":2}' in str(refused.value)
    world.run()
    assert {row[0] for row in world.rows} == {1}
    (reason,) = world.reasons_of_dead_letters
    assert message in reason


def test_after_a_rollback_further_than_files_are_kept_the_record_is_refused(capsys: Any) -> None:
    world, come = left_only()
    for name in world.files_of_moved_rows:
        world.store.delete(f"{world.table.context.paths.moved_rows_directory}/{name}")
    come()
    world.run()
    assert world.rows == []
    (reason,) = world.reasons_of_dead_letters
    assert 'old key {"id":1}, new key {"id":2}' in reason


def test_files_of_killed_processes_are_deleted_and_those_of_others_kept() -> None:
    world, come = left_only()
    directory = world.table.context.paths.moved_rows_directory
    for user in ("docs", "docs-2"):
        world.store.write(f"{directory}/{user}-{'0' * 32}.arrow", b"")
    come()
    world.source.move(2, 3)
    world.source.hold_back(2)
    world.run()
    left = world.files_of_moved_rows
    assert f"docs-2-{'0' * 32}.arrow" in left
    assert f"docs-{'0' * 32}.arrow" not in left


def test_replaced_files_are_eventually_deleted() -> None:
    source = SourceTable(partition_of={n: n % 2 for n in range(100)})
    source.insert(0, "A")
    for number in range(40):
        source.move(number, number + 1)
    world = DocsWorld(source)
    world.run(batch_records=1, first=[0, 0, 0, 1] * 40)
    assert world.rows == source.truth
    assert len(world.files_of_moved_rows) <= REPLACED_MAX


# ---------------------------------------------------------------- what can't be known


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ((OLD_KEY_HEADER,), "no record with header `__debezium.newkey`"),
        ((NEW_KEY_HEADER,), "not in the table: id=2"),
        ((), "not in the table: id=2"),
    ],
    ids=["the row is not seen leaving", "the row is not seen coming", "neither"],
)
def test_a_moved_row_without_headers_is_refused(headers: Sequence[str], message: str) -> None:
    source = SourceTable(headers=headers)
    source.insert(1, "A")
    source.move(1, 2)
    world = DocsWorld(source)
    world.run(batch_records=1)
    assert world.rows == []
    (reason,) = world.reasons_of_dead_letters
    assert message in reason


def test_an_incomplete_key_change_does_not_use_the_row_stored_under_the_old_key() -> None:
    source = SourceTable(partition_of=APART, has_positions=False)
    source.insert(1, "stale")
    source.update(1, "B")
    source.move(1, 2)
    records = source.log.records
    for partition in list(records):
        records[partition] = [(None if partition.partition else key, value) for key, value in records[partition]]
    world = DocsWorld(source)
    world.run(batch_records=1, first=[0, 1])
    assert set(world.rows) <= set(source.truth)
    (reason,) = world.reasons_of_dead_letters
    assert 'old key {"id":1}' in reason


@pytest.mark.parametrize("sends_whole_rows", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        {"merge-engine": "aggregation", "fields.default-aggregate-function": "last_value"},
    ],
    ids=["partial-update", "aggregation"],
)
def test_a_merged_row_is_not_used_as_the_row_of_the_source(options: dict[str, str], sends_whole_rows: bool) -> None:
    doc = "doc " * 30
    source = SourceTable(sends_whole_rows=sends_whole_rows)
    source.insert(1, doc)
    source.move(1, 2)
    world = DocsWorld(source, options)
    world.run(batch_records=1)
    assert {row[2] for row in world.rows if row[0] == 2} == ({doc} if sends_whole_rows else set())
    assert bool(world.reasons_of_dead_letters) is not sends_whole_rows


def test_records_resent_by_a_connector_change_nothing() -> None:
    source = SourceTable()
    source.insert(1, "A")
    source.move(1, 2)
    records = source.log.records[TopicPartition(TOPIC, 0)]
    source.update(2, "B")
    again = [(at, records[at]) for at in range(1, len(records))]
    for at, record in again:
        records.append(record)
        moved = (TopicPartition(TOPIC, 0), at)
        if moved in source.log.headers:
            source.log.headers[moved[0], len(records) - 1] = source.log.headers[moved]
    world = DocsWorld(source)
    world.run(batch_records=1)
    assert (world.rows, world.reasons_of_dead_letters) == (source.truth, [])


@pytest.mark.parametrize("start", ["earliest", f"{TOPIC}:0:2,{TOPIC}:1:0"])
def test_a_rewind_never_gives_a_row_values_of_a_later_version(start: str) -> None:
    source = SourceTable(partition_of=APART)
    source.insert(1, "A")
    source.update(1, "B")
    source.move(1, 2)
    source.insert(1, "another")
    source.delete(2)
    source.insert(2, "third")
    world = DocsWorld(source)
    world.run(first=[0] * 9)
    assert world.rows == source.truth
    world.run(rewind_to=[f"{DOCS}={start}"], batch_records=1, first=[0] * 3 + [1] * 9)
    assert world.rows == source.truth
    seen = {row for snapshot in world.table.snapshots() for row in world.rows_of(snapshot.id)}
    # As it comes again the row takes what the table has under its key, until that is deleted again.
    assert seen - source.history <= {(2, 5, "third")}


# ---------------------------------------------------------------- random histories


def steps() -> st.SearchStrategy[list[Step]]:
    return st.lists(
        st.tuples(
            st.sampled_from(["put", "update", "move", "move", "move", "delete"]),
            st.integers(1, 3),
            st.integers(1, 3),
            st.booleans(),
        ),
        min_size=3,
        max_size=12,
    )


def report(source: SourceTable, history: Sequence[Step]) -> None:
    """What a step can't do is left out."""
    for number, (what, id_, other, changes_doc) in enumerate(history):
        if what == "put" and id_ not in source.rows:
            source.insert(id_, f"doc {number}")
        elif what == "update" and id_ in source.rows:
            source.update(id_, f"doc {number}", changes_doc=changes_doc)
        elif what == "move" and id_ in source.rows and other not in source.rows:
            source.move(id_, other, f"doc {number}", changes_doc=changes_doc and number % 2 == 0)
        elif what == "delete" and id_ in source.rows:
            source.delete(id_)


LIVES = {
    "history": steps(),
    "partitions": st.fixed_dictionaries({1: st.integers(0, 2), 2: st.integers(0, 2), 3: st.integers(0, 2)}),
    "batch_records": st.integers(1, 3),
    "first": st.lists(st.integers(0, 2), max_size=20),
    "deaths": st.lists(st.integers(5, 150), max_size=3),
    "has_positions": st.booleans(),
}
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SHORT = settings(PATIENT, phases=[Phase.explicit, Phase.reuse, Phase.generate])


def live(world: DocsWorld, batch_records: int, first: Sequence[int], deaths: Sequence[int]) -> None:
    """Processes that die at some call of the store, and one that reads to the end. What readers see is checked."""
    for death in [*deaths, None]:
        io = FaultyFileIO(world.store)
        if death is not None:
            io.crash_call(death, Fault.BEFORE if death % 2 else Fault.AFTER)
        with suppress(*([BaseException] if death is not None else [])):
            world.run(io, batch_records=batch_records, first=first)
        assert set(world.rows) <= world.source.history
    for snapshot in world.table.snapshots():
        assert set(world.rows_of(snapshot.id)) <= world.source.history


def check_the_truth(
    history: list[Step],
    partitions: dict[int, int],
    batch_records: int,
    first: list[int],
    deaths: list[int],
    has_positions: bool,
) -> None:
    source = SourceTable(partition_of=partitions, has_positions=has_positions)
    report(source, history)
    world = DocsWorld(source, COMPACT_AT_TWO)
    live(world, batch_records, first, deaths)
    assert world.rows == source.truth
    assert world.reasons_of_dead_letters == []


def check_the_truth_or_a_refusal(
    history: list[Step],
    partitions: dict[int, int],
    batch_records: int,
    first: list[int],
    deaths: list[int],
    has_positions: bool,
) -> None:
    source = SourceTable(partition_of=partitions, has_positions=has_positions)
    report(source, history)
    world = DocsWorld(source, COMPACT_AT_TWO, "moved_rows: {keep_ms: 1, bytes_max: 1}")
    live(world, batch_records, first, deaths)
    missing = set(source.truth) - set(world.rows)
    assert set(world.rows) <= set(source.truth)
    assert not missing or world.reasons_of_dead_letters
    assert all("old key" in reason or "not in the table: id=" in reason for reason in world.reasons_of_dead_letters)


def check_the_truth_or_a_refusal_after_a_rewind(
    history: list[Step],
    partitions: dict[int, int],
    batch_records: int,
    first: list[int],
    deaths: list[int],
    has_positions: bool,
) -> None:
    source = SourceTable(partition_of=partitions)
    report(source, history)
    world = DocsWorld(source, COMPACT_AT_TWO)
    world.run(batch_records=batch_records, first=first)
    assert world.rows == source.truth
    ends = {p: len(records) for p, records in source.log.records.items()}
    starts = [f"{p.topic}:{p.partition}:{sum(deaths) % (end + 1)}" for p, end in ends.items()]
    if starts:
        world.run(batch_records=batch_records, first=first[::-1], rewind_to=[f"{DOCS}={','.join(starts)}"])
    missing = set(source.truth) - set(world.rows)
    assert set(world.rows) <= set(source.truth)
    assert not missing or world.reasons_of_dead_letters


@given(**LIVES)
@settings(SHORT, max_examples=examples(30))
def test_random_moves_and_restarts_give_the_table_of_the_source(**life: Any) -> None:
    check_the_truth(**life)


@given(**LIVES)
@settings(SHORT, max_examples=examples(20))
def test_without_room_for_moved_rows_each_row_is_correct_or_refused(**life: Any) -> None:
    check_the_truth_or_a_refusal(**life)


@given(**LIVES)
@example(  # the row's delete record is read again, and another row is stored under its old key since
    history=[
        ("move", 2, 1, False),
        ("put", 2, 1, True),
        ("move", 2, 1, True),
        ("move", 1, 2, False),
        ("put", 1, 3, True),
        ("move", 2, 3, True),
        ("move", 2, 1, True),
        ("delete", 2, 1, True),
    ],
    partitions={1: 2, 2: 2, 3: 0},
    batch_records=3,
    first=[2, 2, 0, 2, 2, 0, 0, 0, 0],
    deaths=[132, 49, 109],
    has_positions=True,
)
@settings(SHORT, max_examples=examples(20))
def test_after_a_rewind_each_row_is_correct_or_refused(**life: Any) -> None:
    check_the_truth_or_a_refusal_after_a_rewind(**life)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "check", [check_the_truth, check_the_truth_or_a_refusal, check_the_truth_or_a_refusal_after_a_rewind]
)
def test_many_random_histories_give_the_table_of_the_source(check: Callable[..., None]) -> None:
    settings(PATIENT, max_examples=1_000)(given(**LIVES)(check))()
