"""Waits between retries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.base.backoff import ExponentialBackoff


def test_waits_double_up_to_the_longest() -> None:
    backoff = ExponentialBackoff(first_ms=100, longest_ms=1_000)
    assert [backoff.wait_ms(failures) for failures in range(6)] == [100, 200, 400, 800, 1_000, 1_000]


@given(
    st.floats(1, 1e6),
    st.floats(1, 1e9),
    st.tuples(st.floats(0, 1), st.floats(1, 2)),
    st.integers(0, 10_000),
    st.floats(0, 1, exclude_max=True),
)
def test_a_wait_is_within_the_jitter_range(
    first_ms: float, longest_ms: float, jitter: tuple[float, float], failures: int, chance: float
) -> None:
    whole = ExponentialBackoff(first_ms, longest_ms).wait_ms(failures)
    wait_ms = ExponentialBackoff(first_ms, longest_ms, jitter).wait_ms(failures, lambda: chance)
    assert whole <= longest_ms
    assert whole * jitter[0] * (1 - 1e-9) <= wait_ms <= whole * jitter[1] * (1 + 1e-9)


def test_simultaneous_failures_retry_at_different_times() -> None:
    backoff = ExponentialBackoff(100, 1_000, jitter=(0.8, 1.2))
    assert len({backoff.wait_ms(0) for _ in range(20)}) > 1
