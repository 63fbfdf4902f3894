"""What `make test` leaves to `make test-interop`."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.support.levels import examples, left_to_interop, random_half, sample


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


@pytest.mark.parametrize(("profile", "expected"), [("quick", [1, 3, 3, 60]), ("thorough", [1, 3, 15, 300])])
def test_a_thorough_run_draws_all_examples_and_a_quick_one_a_fifth(profile: str, expected: list[int]) -> None:
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert [examples(count) for count in (0, 1, 3, 15, 300)] == [0, *expected]
        assert sample(range(100)) == list(range(0, 100, 100 // examples(100)))
        assert sample("") == []
    finally:
        settings.load_profile(before)


def test_a_random_half_is_every_second_case_and_both_halves_come() -> None:
    halves = {tuple(random_half(range(5))) for _ in range(200)}
    assert halves == {(0, 2, 4), (1, 3)}
