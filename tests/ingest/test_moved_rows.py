"""A row that moved to another key has the values that it had at the source, or its record is refused: never others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.crash.table_life import COMPACT_AT_TWO
from tests.crash.troubles import DYING_THREADS
from tests.ingest.moved_rows_life import DocsWorld, SourceTable
from tests.support.faulty_file_io import Fault, FaultyFileIO

pytestmark = pytest.mark.filterwarnings(DYING_THREADS)

APART = {1: 0, 2: 1, 3: 2}  # each key in a partition of its own
Step = tuple[str, int, int, bool]


@pytest.mark.parametrize("partitions", [{}, APART], ids=["one partition", "several"])
@pytest.mark.parametrize("first", [[0] * 9, [2, 1] * 9], ids=["leaving first", "coming first"])
def test_a_row_that_changed_just_before_it_moved_comes_as_it_was(
    partitions: dict[int, int], first: Sequence[int]
) -> None:
    source = SourceTable(partition_of=partitions)
    source.insert(1, "A")
    world = DocsWorld(source)
    world.run()
    source.update(1, "B")
    source.move(1, 2)
    source.update(2, changes_doc=False)
    source.move(2, 3)
    world.run(batch_records=1, first=first)
    assert world.rows == source.truth
    assert world.rows[0][::2] == (3, "B")
    assert world.reasons_of_dead_letters == []


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


def tell(source: SourceTable, history: Sequence[Step]) -> None:
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
SHORT = settings(PATIENT, phases=[Phase.reuse, Phase.generate])


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
        seen = world.table.scan(snapshot=snapshot.id).to_arrow().to_pylist()
        assert {tuple(row.values()) for row in seen} <= world.source.history


def check_the_truth(
    history: list[Step],
    partitions: dict[int, int],
    batch_records: int,
    first: list[int],
    deaths: list[int],
    has_positions: bool,
) -> None:
    source = SourceTable(partition_of=partitions, has_positions=has_positions)
    tell(source, history)
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
    tell(source, history)
    world = DocsWorld(source, COMPACT_AT_TWO, "moved_rows: {keep_ms: 1, bytes_max: 1}")
    live(world, batch_records, first, deaths)
    missing = set(source.truth) - set(world.rows)
    assert set(world.rows) <= set(source.truth)
    assert not missing or world.reasons_of_dead_letters
    assert all("old key" in reason or "not in the table: id=" in reason for reason in world.reasons_of_dead_letters)


@given(**LIVES)
@settings(SHORT, max_examples=20)
def test_whatever_happens_to_a_row_and_to_the_pipeline_the_table_comes_to_the_truth(**life: Any) -> None:
    check_the_truth(**life)


@given(**LIVES)
@settings(SHORT, max_examples=10)
def test_with_no_room_to_keep_rows_each_is_true_or_refused(**life: Any) -> None:
    check_the_truth_or_a_refusal(**life)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("check", [check_the_truth, check_the_truth_or_a_refusal])
def test_that_holds_for_many_lives(check: Callable[..., None]) -> None:
    settings(PATIENT, max_examples=1_000)(given(**LIVES)(check))()
