"""Counts durations in buckets, for metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class DurationHistogram:
    """Durations counted in buckets, in the form that Prometheus needs.

    bounds_s: upper bounds of the buckets, rising. Longer durations are counted in an additional bucket.
    """

    def __init__(self, bounds_s: Sequence[float] = BOUNDS_S) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def observe(self, duration_s: float) -> None:
        self._counts[bisect_left(self._bounds_s, duration_s)] += 1
        self.sum_s += duration_s

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> list[tuple[str, float]]:
        """Return (upper bound, number of durations up to it). The last bound is `+Inf`."""
        ends = [*map(str, self._bounds_s), "+Inf"]
        return list(zip(ends, map(float, accumulate(self._counts)), strict=True))
