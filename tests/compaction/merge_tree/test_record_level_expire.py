"""When a row expires."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pytest

from tests.support.case_errors import refused_as
from tests.support.case_values import column_of, column_type
from tests.support.cases import Case, case_id, check_members, vectors
from tests.support.column_merge import table_schema
from tidelake.compaction.merge_tree.record_level_expire import seconds_of, unexpired_rows
from tidelake.storage.ddl.schema_validation import check_new_schema
from tidelake.storage.model.types import INT

MEMBERS: Final = {
    *("type", "value", "now_seconds", "expire_time_seconds"),
    *("expect_seconds", "expect_row_kept", "expect_file_is_expired_when_min", "expect_error"),
}


@pytest.mark.parametrize("case", vectors("record_level_expire"), ids=case_id)
def test_record_level_expire(case: Case) -> None:
    check_members(case, MEMBERS)
    data_type = column_type(case["type"], [case.get("value")])
    if "expect_error" in case:
        options = {"bucket": "1", "record-level.expire-time": "10 s", "record-level.time-field": "t"}
        with refused_as(case["expect_error"]):
            check_new_schema(table_schema({"k": INT, "t": data_type}, options))
        return
    times = column_of([case["value"]], data_type)
    if "expect_seconds" in case:
        assert seconds_of(times).to_pylist() == [case["expect_seconds"]]
    (is_kept,) = unexpired_rows(times, case["expire_time_seconds"], case["now_seconds"]).tolist()
    assert is_kept is case["expect_row_kept"]
    assert is_kept is not case.get("expect_file_is_expired_when_min", not is_kept)  # one rule for rows and for files


@pytest.mark.parametrize(
    ("unit", "value", "seconds"),
    [
        pytest.param("us", 1_999_999, 1, id="microseconds are cut"),
        pytest.param("us", -1_500_000, -1, id="before 1970 milliseconds are cut towards it"),
        pytest.param("us", -1, 0, id="a microsecond before 1970 is the millisecond before it"),
        pytest.param("ns", -1_000_000_001, -1, id="nanoseconds"),
        pytest.param("ms", None, None, id="no time"),
    ],
)
def test_timestamps(unit: str, value: int | None, seconds: int | None) -> None:
    assert seconds_of(pa.array([value], pa.timestamp(unit))).to_pylist() == [seconds]
    assert seconds_of(pa.array([value], pa.timestamp(unit, "UTC"))).to_pylist() == [seconds]


def test_an_empty_batch_stays_empty() -> None:
    assert unexpired_rows(pa.array([], pa.int32()), 10, 100).tolist() == []
