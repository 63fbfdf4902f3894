"""How long to wait before a failed operation is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Wait times that double with each consecutive failure.

    first_ms: the wait after the first failure.
    longest_ms: the upper limit.
    jitter: the smallest and the largest random factor of a wait. It keeps processes that failed at the same time from
        retrying at the same time.
    """

    first_ms: float
    longest_ms: float
    jitter: tuple[float, float] = (1.0, 1.0)

    def wait_ms(self, failures: int, chance: Callable[[], float] = random.random) -> float:
        """Return the next wait.

        failures: consecutive failures before this one; 0 for the first.
        chance: returns a number from 0 up to, not including, 1.
        """
        least, greatest = self.jitter
        doubled = self.first_ms * 2.0 ** min(failures, 64)
        return min(doubled, self.longest_ms) * (least + (greatest - least) * chance())
