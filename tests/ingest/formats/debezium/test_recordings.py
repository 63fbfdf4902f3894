"""The records of real connectors, decoded and applied by key, equal the content of the database."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.cases import is_overridden
from tests.support.change_replay import fold_recording, target_of
from tests.support.recorded_truth import RECORDED_TABLES, RecordedTable, differences, format_options_for
from tidelake.ingest.formats.registry import open_format


@pytest.mark.exhaustive(kept=26)
@pytest.mark.parametrize(
    "recorded",
    [
        # The truth of large ones is compared after the service has read them, too (tests/integration).
        pytest.param(recorded, id=recorded.id, marks=[pytest.mark.interop] if recorded.is_large else [])
        for recorded in RECORDED_TABLES
    ],
)
def test_a_recording_ends_as_the_database_did(recorded: RecordedTable) -> None:
    target = target_of(recorded)
    with format_options_for(recorded) as options:
        decoder = open_format(recorded.format, options).decoder(lambda source: target)
        folded = fold_recording(recorded, decoder, target)
    excused: Counter[str] = Counter()
    assert differences(recorded, folded.table(), excused) == []
    if not is_overridden("TIDELAKE_RECORDED"):  # reports for other recordings need not be as exact
        reported = Counter({entry.column or "": 0 for entry in recorded.unrecoverable})
        for entry in recorded.unrecoverable:
            reported[entry.column or ""] += len(entry.rows or ())
        if recorded.primary_key:
            assert excused == reported, "unrecoverable.json lists what the records do tell"
