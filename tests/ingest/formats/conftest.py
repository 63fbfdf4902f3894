"""Decoders that may only go one way, so that both ways are tested with the same cases."""

from __future__ import annotations

from typing import Any

import pytest

from ingest.formats import debezium


class NoFastReader:
    """Stands in for the fast way: closed."""

    def __init__(self, *_: Any) -> None:
        raise ValueError("left to the careful way")


@pytest.fixture
def careful_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoders read record by record, whatever the records are."""
    monkeypatch.setattr(debezium, "FastReader", NoFastReader)


@pytest.fixture(params=["fast where it can", "carefully"])
def either_way(request: pytest.FixtureRequest) -> str:
    """The test runs twice: with the fast way open, and without."""
    if request.param == "carefully":
        request.getfixturevalue("careful_only")
    return str(request.param)
