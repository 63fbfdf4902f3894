"""When a row is too old."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from compaction.record_expiry import kept_rows, seconds_of
from tests.support.cases import Case, case_id, vectors

TYPES: dict[str, Any] = {"int": pa.int32(), "bigint": pa.int64(), "timestamp_millis": pa.timestamp("ms")}


@pytest.mark.parametrize("case", vectors("record_level_expire"), ids=case_id)
def test_record_level_expire(case: Case) -> None:
    times = pa.array([case["value"]], TYPES[case["type"]])
    assert seconds_of(times).to_pylist() == [case["expect_seconds"]]
    kept = kept_rows(times, case["expire_time_seconds"], case["now_seconds"])
    assert kept.tolist() == [case["expect_row_kept"]]
    assert case["expect_file_is_expired_when_min"] is not case["expect_row_kept"]  # one rule for rows and for files


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


def test_an_empty_batch_has_nothing_to_expire() -> None:
    assert kept_rows(pa.array([], pa.int32()), 10, 100).tolist() == []
