"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Waits that double with each failure in a row.

    first_ms: the wait after the first failure.
    longest_ms: where it stops growing.
    jitter: the least and the greatest factor of a wait; chance takes one between them. Those who failed at the same
        moment should not all come back at the same one.
    """

    first_ms: float
    longest_ms: float
    jitter: tuple[float, float] = (1.0, 1.0)

    def wait_ms(self, failures: int, chance: Callable[[], float] = random.random) -> float:
        """failures: before this one, in a row; 0 for the first.
        chance: from 0 up to, not including, 1.
        """
        least, greatest = self.jitter
        doubled = self.first_ms * 2.0 ** min(failures, 64)
        return min(doubled, self.longest_ms) * (least + (greatest - least) * chance())
