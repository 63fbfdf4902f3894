"""Seeds that failed once. They run with each `make test`."""

from __future__ import annotations

from typing import Final

# (seed, operations, what it found)
FAILED_ONCE: Final[tuple[tuple[int, int, str], ...]] = ()
