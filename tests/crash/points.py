"""Counts at how many points something was made to go wrong; the test run's summary tells."""

from __future__ import annotations

from collections import Counter

import pytest

_TRIED: Counter[str] = Counter()


class Points:
    """Of one test."""

    def __init__(self, record: object) -> None:
        self.total = 0

    def tried(self, kind: str) -> None:
        self.total += 1
        _TRIED[kind] += 1


def summary() -> list[str]:
    """A line for each kind of point, and the sum."""
    if not _TRIED:
        return []
    lines = [f"{count:>6} {kind}" for kind, count in sorted(_TRIED.items())]
    return [*lines, f"{_TRIED.total():>6} in all"]


@pytest.fixture
def points(record_property: object) -> Points:
    return Points(record_property)
