"""One raw JSON value, its target column, and the expected result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from tidelake.ingest.formats.connect_schema import (
    UNDECLARED,
    ConnectorSettings,
    SourceType,
    parse_connect_schema,
    source_type,
)
from tidelake.ingest.formats.values.dispatch import value_decoder_for
from tidelake.ingest.formats.values.json_text import BadValue, TooNarrow
from tidelake.storage.model.types import arrow_type, nullable, parse_type


@dataclass(frozen=True)
class CellCase:
    """gives: the value as Arrow hands it back; timestamps, dates, times as integers. refused: pattern of the reason."""

    id: str
    type: str
    raw: str
    gives: Any = None
    refused: str | None = None
    source: SourceType = UNDECLARED
    settings: ConnectorSettings = field(default_factory=ConnectorSettings)
    connector: str = ""
    rounds: bool = False
    fits: str | None = None  # the type that a refusal names

    def check(self) -> None:
        target = parse_type(self.type)
        cell = value_decoder_for(self.source, target, self.connector, self.settings, rounds=self.rounds)
        if self.refused is not None:
            with pytest.raises(BadValue, match=self.refused) as caught:
                cell(self.raw.encode())
            found = str(nullable(caught.value.fits)) if isinstance(caught.value, TooNarrow) else None
            assert self.fits in (found, None)
            return
        column = pa.array([cell(self.raw.encode())], arrow_type(target))
        column.validate(full=True)
        kind = column.type
        if pa.types.is_date(kind) or pa.types.is_time(kind):
            column = column.view(pa.int32())
        elif pa.types.is_timestamp(kind):
            column = column.view(pa.int64())
        found = column[0].as_py()
        assert repr(found) == repr(self.gives)  # -0.0 and 1.50 are not 0.0 and 1.5


def declared(connect: str, name: str | None = None, parameters: Mapping[str, str] | None = None) -> SourceType:
    """The source type of a Connect schema."""
    schema = {"type": connect, "name": name, "parameters": parameters}
    return source_type(parse_connect_schema(json.dumps(schema).encode()))
