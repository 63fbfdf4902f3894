"""How long to leave a broker alone that did not answer, before it is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

FIRST_MS: Final = 200
LONGEST_MS: Final = 10_000
_JITTER: Final = 0.2  # so that those who lost a broker at the same moment don't all come back at the same one


class Backoff:
    """Twice as long each time, from FIRST_MS to LONGEST_MS, a fifth more or less. random: from 0 up to 1."""

    def __init__(self, random: Callable[[], float] = random.random) -> None:
        self._random = random
        self._failures = 0

    def next_ms(self) -> int:
        """After another failure."""
        wait_ms = min(LONGEST_MS, FIRST_MS << min(self._failures, 30))
        self._failures += 1
        return round(min(LONGEST_MS, wait_ms * (1 - _JITTER + 2 * _JITTER * self._random())))
