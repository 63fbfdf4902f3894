"""Decoders restricted to one path, so that both paths are tested with the same cases."""

from __future__ import annotations

from typing import Any

import pytest

from tidelake.ingest.formats.debezium import debezium_json_decoder as decoder_module


class NoColumnarDecoder:
    """Replaces the columnar decoder, and refuses to decode."""

    def __init__(self, *_: Any) -> None:
        raise ValueError("left to the row decoder")


@pytest.fixture
def row_decoder_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoders read record by record, whatever the records are."""
    monkeypatch.setattr(decoder_module, "ColumnarDecoder", NoColumnarDecoder)


@pytest.fixture(params=["columnar where it can", "row by row"])
def either_way(request: pytest.FixtureRequest) -> str:
    """The test runs twice: with the fast way open, and without."""
    if request.param == "row by row":
        request.getfixturevalue("row_decoder_only")
    return str(request.param)
