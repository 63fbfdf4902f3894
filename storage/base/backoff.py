"""Computes how long to wait before a failed operation is retried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelake.storage.base import env


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Waits that double with each consecutive failure.

    first_ms: the wait after the first failure.
    longest_ms: the longest wait.
    jitter: the smallest and the largest factor of a wait; the factor is random in this range. So callers that failed at
        the same time don't all retry at the same time.
    """

    first_ms: float
    longest_ms: float
    jitter: tuple[float, float] = (1.0, 1.0)

    def wait_ms(self, failures: int, random_fraction: Callable[[], float] = lambda: env.random_fraction()) -> float:
        """Return the next wait.

        failures: number of consecutive failures before this one; 0 for the first.
        random_fraction: returns a number from 0 up to, not including, 1.
        """
        least, greatest = self.jitter
        doubled = self.first_ms * 2.0 ** min(failures, 64)
        return min(doubled, self.longest_ms) * (least + (greatest - least) * random_fraction())
