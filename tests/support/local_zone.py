"""Changes the time zone of this process temporarily."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

MoveTo: TypeAlias = Callable[[str], None]


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[MoveTo]:
    """`local_zone("Asia/Tokyo")`"""

    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()
