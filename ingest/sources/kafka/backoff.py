"""The waiting times before a broker that did not answer is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tidelake.storage.base.backoff import ExponentialBackoff

INITIAL_BACKOFF_MS: Final = 200
MAX_BACKOFF_MS: Final = 10_000
_BACKOFF: Final = ExponentialBackoff(INITIAL_BACKOFF_MS, MAX_BACKOFF_MS, jitter=(0.8, 1.2))


class BrokerBackoff:
    """The waiting times for one broker, from INITIAL_BACKOFF_MS to MAX_BACKOFF_MS.

    random: returns a number from 0 up to 1.
    """

    def __init__(self, random: Callable[[], float] = random.random) -> None:
        self._random = random
        self._failures = 0

    def next_ms(self) -> int:
        """Return the waiting time after another failure."""
        wait_ms = _BACKOFF.wait_ms(self._failures, self._random)
        self._failures += 1
        return round(min(MAX_BACKOFF_MS, wait_ms))
