"""What real connectors sent, decoded to the end and folded by key, is what the database held."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from ingest.formats.registry import open_format
from tests.support.cases import is_overridden
from tests.support.change_replay import fold_recording, target_of
from tests.support.recorded_truth import RECORDED_TABLES, RecordedTable, differences, format_options_for

MYSQL_VARIANTS: Final = ("json-schema", "json-schema-numeric", "json-plain", "avro")
# Cells whose truth is not in the records, by column; each has its reason in UNRECOVERABLE. No others are passed over.
EXCUSED: Final = {
    "pg-shop/json-schema/customers": {"signup": 15},
    "pg-shop/json-schema-numeric/customers": {"signup": 15},
    "pg-shop/json-schema-connect/customers": {"signup": 148, "huge": 119, "score": 58, "wakes": 49},
    "pg-shop/json-plain/customers": {"signup": 15},
    "pg-shop/avro/customers": {"signup": 15},
    "mysql-shop/json-schema/goods": {"day": 46},
    "mysql-shop/json-schema-numeric/goods": {"day": 46},
    "mysql-shop/json-plain/goods": {"day": 46, "flag": 58, "colour": 89},
    "mysql-shop/avro/goods": {"day": 46},
    **{f"mysql-shop/{v}/clients": {"gold_member": 116} for v in MYSQL_VARIANTS},
    **{f"mysql-shop/{v}/carts": {"channel": 121} for v in MYSQL_VARIANTS},
}


@pytest.mark.parametrize(
    "recorded",
    [
        # The truth of the large one is compared after the service has read it, too (tests/integration).
        pytest.param(recorded, id=recorded.id, marks=[pytest.mark.interop] if recorded.capture == "orders-100k" else [])
        for recorded in RECORDED_TABLES
    ],
)
def test_a_recording_ends_as_the_database_did(recorded: RecordedTable) -> None:
    target = target_of(recorded)
    truncates = "skip" if recorded.truncates else "fail"
    with format_options_for(recorded) as options:
        decoder = open_format(recorded.format, {**options, "truncates": truncates}).decoder(lambda source: target)
        folded = fold_recording(recorded, decoder, target)
    excused: Counter[str] = Counter()
    assert differences(recorded, folded.table(), excused) == []
    assert (folded.filled_cells > 0) == (recorded.name == "inventory")
    if not is_overridden("TIDELAKE_RECORDED"):  # other recordings have other numbers
        assert dict(excused) == EXCUSED.get(recorded.id, {})
