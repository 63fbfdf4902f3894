"""How a run went over the last hours: lag, freshness and records, at even distances of time, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.storage.base.clock import epoch_ms

POINTS_MAX: Final = 720
FIRST_STEP_MS: Final = 5_000  # an hour of points
LAST_STEP_MS: Final = 60_000  # twelve hours

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The worst of one step of time. None means that it was unknown.

    at_ms: the beginning of the step (epoch)
    stalest: the table whose newest row was the oldest
    freshness_ms: the age of that row
    records: records since the start, at the end of the step
    """

    at_ms: int
    lag: int | None
    lag_ms: int | None
    freshness_ms: int | None
    stalest: str | None
    records: int

    def joined(self, later: HistoryPoint) -> HistoryPoint:
        """Return the worst of both."""
        stalest = later if (later.freshness_ms or 0) > (self.freshness_ms or 0) else self
        return replace(
            later,
            at_ms=self.at_ms,
            lag=_known(max, self.lag, later.lag),
            lag_ms=_known(max, self.lag_ms, later.lag_ms),
            freshness_ms=stalest.freshness_ms,
            stalest=stalest.stalest,
        )


class RunHistory:
    """The points of a run, oldest first. When they are too many, two neighbours become one; later the oldest go.

    step_ms: the time of one point
    """

    def __init__(self) -> None:
        self.step_ms = FIRST_STEP_MS
        self._points: deque[HistoryPoint] = deque()

    def observe(self, observed: RunObservations) -> None:
        """Add the state of now."""
        self.add(_point(observed, epoch_ms()))

    def add(self, point: HistoryPoint) -> None:
        if self._points and point.at_ms < self._points[-1].at_ms + self.step_ms:
            self._points[-1] = self._points[-1].joined(point)
            return
        self._points.append(point)
        if len(self._points) > POINTS_MAX:
            if self.step_ms < LAST_STEP_MS:
                self._halve()
            else:
                self._points.popleft()

    def _halve(self) -> None:
        self.step_ms = min(2 * self.step_ms, LAST_STEP_MS)
        points, self._points = self._points, deque()
        for point in points:
            self.add(point)

    def document(self) -> dict[str, Any]:
        """Return the document of `/history`: the members of each point as a column."""
        points = list(self._points)
        names = ("at_ms", "lag", "lag_ms", "freshness_ms", "stalest", "records")
        return {"step_ms": self.step_ms, **{name: [getattr(point, name) for point in points] for name in names}}


def _point(observed: RunObservations, now_ms: int) -> HistoryPoint:
    ages = [
        (now_ms - table.newest_committed_ms, name)
        for name, table in list(observed.tables.items())
        if table.newest_committed_ms is not None
    ]
    freshness_ms, stalest = max(ages, default=(None, None))
    return HistoryPoint(
        now_ms,
        observed.lag,
        observed.lag_ms(),
        None if freshness_ms is None else max(0, freshness_ms),
        stalest,
        sum(counts.records for counts in list(observed.topics.values())),
    )


def _known(choose: Callable[[T, T], T], one: T | None, other: T | None) -> T | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)
