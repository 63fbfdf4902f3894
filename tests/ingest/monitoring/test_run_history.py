"""The history of a run has the worst of each step, and its memory is bounded."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.ingest.monitoring.run_history import (
    FIRST_STEP_MS,
    LAST_STEP_MS,
    POINTS_MAX,
    HistoryPoint,
    RunHistory,
)


def point(at_ms: int, lag: int | None = 0, freshness_ms: int | None = 0, records: int = 0) -> HistoryPoint:
    return HistoryPoint(at_ms, lag, lag, freshness_ms, None if freshness_ms is None else f"t{freshness_ms}", records)


def test_the_states_of_one_step_are_one_point_with_the_worst_of_them() -> None:
    history = RunHistory()
    for at_ms, lag, freshness_ms, records in [(0, 5, 10, 1), (2_000, 9, 30, 2), (4_000, 2, 20, 3), (5_000, 1, 5, 9)]:
        history.add(point(at_ms, lag, freshness_ms, records))
    assert history.document() == {
        "step_ms": FIRST_STEP_MS,
        "at_ms": [0, 5_000],
        "lag": [9, 1],
        "lag_ms": [9, 1],
        "freshness_ms": [30, 5],
        "stalest": ["t30", "t5"],
        "records": [3, 9],
    }


@pytest.mark.parametrize(("lags", "expected"), [([None, None], None), ([None, 4], 4), ([4, None], 4), ([3, 4], 4)])
def test_what_nobody_knew_in_a_whole_step_is_unknown(lags: list[int | None], expected: int | None) -> None:
    history = RunHistory()
    for second, lag in enumerate(lags):
        history.add(point(second * 1000, lag, lag))
    assert (history.document()["lag"], history.document()["freshness_ms"]) == ([expected], [expected])


@given(st.lists(st.tuples(st.integers(1, 400_000), st.none() | st.integers(0, 1000)), max_size=30))
def test_whatever_the_distances_points_keep_the_order_and_the_worst(steps: list[tuple[int, int | None]]) -> None:
    history, at_ms = RunHistory(), 0
    for distance_ms, lag in steps:
        at_ms += distance_ms
        history.add(point(at_ms, lag))
    times = history.document()["at_ms"]
    assert all(later - earlier >= history.step_ms for earlier, later in itertools.pairwise(times))
    known = [lag for _, lag in steps if lag is not None]
    assert max((lag for lag in history.document()["lag"] if lag is not None), default=None) == max(known, default=None)


def test_after_a_day_the_points_cover_the_last_hours_and_the_worst_of_these_is_among_them() -> None:
    history, day_ms, worst_ms = RunHistory(), 24 * 3_600_000, 20 * 3_600_000
    for at_ms in range(0, day_ms, FIRST_STEP_MS):
        history.add(point(at_ms, 777 if at_ms == worst_ms else 1, records=at_ms))
    document = history.document()
    assert document["step_ms"] == LAST_STEP_MS
    assert len(document["at_ms"]) == POINTS_MAX
    assert document["at_ms"][0] == day_ms - POINTS_MAX * LAST_STEP_MS
    assert max(document["lag"]) == 777
    assert document["records"][-1] == day_ms - FIRST_STEP_MS
