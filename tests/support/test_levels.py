"""Checks which tests `make test` leaves to `make test-interop`."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings

from tests.support.levels import (
    DAY,
    DAYS,
    HOOKS,
    examples,
    is_of_the_day,
    leave_to_other_days,
    left_to_interop,
    random_half,
    rounds,
    sample,
)


@pytest.mark.parametrize(
    ("cases", "kept", "expected"),
    [
        pytest.param("abcde", 1, "bcde", id="the first of slow ones stays"),
        pytest.param("abcdefghij", 4, "bdegij", id="four of many stay, spread over all"),
        pytest.param("abcd", 4, "", id="four of four stay"),
        pytest.param("a", 4, "", id="a single one stays"),
    ],
)
def test_some_cases_of_each_test_stay_in_every_run(cases: str, kept: int, expected: str) -> None:
    assert "".join(left_to_interop(cases, kept)) == expected


@pytest.mark.parametrize(
    ("profile", "drawn", "gone_through"),
    [
        pytest.param("quick", [0, 1, 3, 3, 60], [0, 1, 3, 3, 60], id="a quick run: a fifth"),
        pytest.param("thorough", [0, 1, 3, 7, 150], [0, 1, 3, 15, 300], id="a thorough run: half of what is drawn"),
        pytest.param("long", [0, 1, 3, 15, 300], [0, 1, 3, 15, 300], id="a long run: all"),
    ],
)
def test_each_kind_of_run_takes_its_share_of_the_cases(profile: str, drawn: list[int], gone_through: list[int]) -> None:
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert [examples(count) for count in (0, 1, 3, 15, 300)] == drawn
        assert [rounds(count) for count in (0, 1, 3, 15, 300)] == gone_through
        assert sample(range(100)) == list(range(0, 100, 100 // rounds(100)))
        assert sample("") == []
    finally:
        settings.load_profile(before)


def test_each_case_runs_once_within_the_days_of_the_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*HOOKS, DAYS):
        monkeypatch.delenv(variable, raising=False)
    days: dict[int, list[int]] = {}
    for day in range(739_000, 739_003):
        monkeypatch.setenv(DAY, str(day))
        days[day] = [number for number in range(7) if is_of_the_day(number, 3)]
    assert sorted(number for numbers in days.values() for number in numbers) == [*range(7)]
    assert all(days.values())
    monkeypatch.setenv(HOOKS[0], "a folder of other cases")
    assert all(is_of_the_day(number, 3) for number in range(7))


class Case:
    """As much of a collected test as the levels look at."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid = nodeid
        self.marks = {one.name: one.mark for one in marks}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks[mark.name] = mark.mark


def test_a_run_with_days_takes_each_case_once_within_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for hook in HOOKS:
        monkeypatch.delenv(hook, raising=False)
    monkeypatch.setenv(DAYS, "5")
    runs: Counter[str] = Counter()
    for day in range(739_000, 739_005):
        monkeypatch.setenv(DAY, str(day))
        assert all(is_of_the_day(number, 2) for number in range(4))  # they are spread like all others
        cases = [Case(f"test.py::slow[{number}]", pytest.mark.interop) for number in range(7)]
        cases += [Case("test.py::other", pytest.mark.interop)]
        leave_to_other_days(cases, 5)  # type: ignore[arg-type]
        runs.update(case.nodeid for case in cases if "long" not in case.marks)
    assert set(runs.values()) == {1}
    assert len(runs) == 8


def test_a_random_half_is_every_second_case_and_both_halves_are_drawn() -> None:
    halves = {tuple(random_half(range(5))) for _ in range(200)}
    assert halves == {(0, 2, 4), (1, 3)}
