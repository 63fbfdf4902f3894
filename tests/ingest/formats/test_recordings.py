"""What real connectors sent, decoded to the end and folded by key, is what the database held."""

from __future__ import annotations

from collections import Counter

import pytest

from ingest.formats.connect_schema import ConnectorSettings
from ingest.formats.debezium import DebeziumJsonDecoder
from tests.support.folding import fold_recording, target_of
from tests.support.recorded_truth import RECORDED_TABLES, RecordedTable, differences


@pytest.mark.parametrize("recorded", RECORDED_TABLES, ids=lambda recorded: recorded.id)
def test_a_recording_ends_as_the_database_did(recorded: RecordedTable) -> None:
    target = target_of(recorded)
    settings = ConnectorSettings(**recorded.connector_settings)
    decoder = DebeziumJsonDecoder(lambda source: target, settings, "skip" if recorded.truncates else "fail")
    folded = fold_recording(recorded, decoder, target)
    excused: Counter[str] = Counter()
    assert differences(recorded, folded.table(), excused) == []
    print(recorded.id, dict(excused), decoder.careful_records, folded.filled_cells)
