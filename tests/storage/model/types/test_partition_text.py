from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.case_values import column_of
from tests.support.cases import Case, check_members, vectors
from tidelake.errors import UnsupportedFeature
from tidelake.storage.model.paths import partition_path
from tidelake.storage.model.types import arrow_type, parse_type
from tidelake.storage.model.types.partition_text import java_float_text, partition_texts


@pytest.mark.parametrize("case", vectors("partition_path"), ids=lambda case: f"{case['type']} {case['dir']}")
def test_partition_directories_equal_javas(case: Case) -> None:
    data_type = parse_type(case["type"])
    check_members(case, {"type", "internal_value", "partition.legacy-name", "dir"})
    (value,) = column_of([case["internal_value"]], data_type)
    texts = partition_texts([value], [data_type], case["partition.legacy-name"])
    assert partition_path(["dt"], texts, "__DEFAULT_PARTITION__") + "/" == case["dir"]


@pytest.mark.parametrize(
    ("data_type", "value", "legacy", "sql"),
    [
        ("DATE", -719_162, "-719162", "0001-01-01"),
        ("DATE", 2_932_897, "2932897", "0000-01-01"),  # 10000-01-01: Java prints the last four digits of a year
        ("TIME(3)", 0, "0", "00:00:00.0"),
        ("TIME(3)", 45_296_780, "45296780", "12:34:56.78"),
        ("TIME(3)", 45_296_007, "45296007", "12:34:56.007"),
        ("TIME(0)", 45_296_000, "45296000", "12:34:56"),
        ("TIMESTAMP(0)", 0, "1970-01-01T00:00", "1970-01-01 00:00:00"),
        ("TIMESTAMP(3)", -1, "1969-12-31T23:59:59.999", "1969-12-31 23:59:59.999"),
        ("TIMESTAMP(6)", 1, "1970-01-01T00:00:00.000001", "1970-01-01 00:00:00.000001"),
        ("TIMESTAMP(6)", 60_000_000, "1970-01-01T00:01", "1970-01-01 00:01:00.000000"),
        ("TIMESTAMP(6)", -62_135_596_800_000_000, "0001-01-01T00:00", "0001-01-01 00:00:00.000000"),
        ("TIMESTAMP(6)", 253_402_300_800_000_000, "+10000-01-01T00:00", "0000-01-01 00:00:00.000000"),
        ("TIMESTAMP(6)", -62_198_755_200_000_000, "-0001-01-01T00:00", "9999-01-01 00:00:00.000000"),
        ("TIMESTAMP(9)", 1_500_000_000, "1970-01-01T00:00:01.500", "1970-01-01 00:00:01.500000000"),
        ("TIMESTAMP(9)", -1, "1969-12-31T23:59:59.999999999", "1969-12-31 23:59:59.999999999"),
        ("DECIMAL(38, 10)", Decimal("-1E-10"), "-0.0000000001", "-0.0000000001"),
        ("DECIMAL(10, 0)", Decimal(120), "120", "120"),
        ("BOOLEAN", False, "false", "false"),
        ("FLOAT", 3.4028234663852886e38, "3.4028235E38", "3.4028235E38"),
        ("STRING", None, None, None),
    ],
)
def test_partition_texts_equal_javas(data_type: str, value: Any, legacy: str | None, sql: str | None) -> None:
    parsed = parse_type(data_type)
    scalar = pa.array([value], arrow_type(parsed))[0]
    assert partition_texts([scalar, scalar], [parsed, parsed], True) == [legacy, legacy]
    assert partition_texts([scalar], [parsed], False) == [sql]


@pytest.mark.parametrize(
    ("zone", "sql"),
    [
        pytest.param(UTC, "2024-01-31 10:20:30.400", id="UTC"),
        pytest.param(ZoneInfo("Asia/Shanghai"), "2024-01-31 18:20:30.400", id="east of it"),
        pytest.param(ZoneInfo("America/New_York"), "2024-01-31 05:20:30.400", id="west of it"),
    ],
)
def test_local_zoned_timestamps_have_the_zone_only_without_legacy_names(zone: Any, sql: str) -> None:
    data_type = parse_type("TIMESTAMP(3) WITH LOCAL TIME ZONE")
    value = pa.scalar(datetime(2024, 1, 31, 10, 20, 30, 400_000, tzinfo=UTC), arrow_type(data_type))
    assert partition_texts([value], [data_type], True, zone) == ["2024-01-31T10:20:30.400"]
    assert partition_texts([value], [data_type], False, zone) == [sql]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (np.float64(0.0), "0.0"),
        (np.float64(-0.0), "-0.0"),
        (np.float64("nan"), "NaN"),
        (np.float64("inf"), "Infinity"),
        (np.float64("-inf"), "-Infinity"),
        (np.float64(100.0), "100.0"),
        (np.float64(9_999_999.0), "9999999.0"),
        (np.float64(1e7), "1.0E7"),
        (np.float64(0.001), "0.001"),
        (np.float64(9.999e-4), "9.999E-4"),
        (np.float64(-123456.789), "-123456.789"),
        (np.float64(5e-324), "4.9E-324"),
        (np.float64(2e23), "2.0E23"),
        (np.float64(1.7976931348623157e308), "1.7976931348623157E308"),
        (np.float32(0.1), "0.1"),
        (np.float32(1e-45), "1.4E-45"),
        (np.float32(16777216.0), "1.6777216E7"),
    ],
    ids=str,
)
def test_numbers_print_as_in_java(number: np.float32 | np.float64, text: str) -> None:
    assert java_float_text(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_number_parses_back(number: float) -> None:
    assert float(java_float_text(np.float64(number))) == number


@pytest.mark.parametrize(
    ("data_type", "value"),
    [("BYTES", b"x"), ("ARRAY<INT>", [1]), ("VARIANT", {"value": b"x", "metadata": b"x"})],
)
def test_types_without_a_directory_name_are_refused(data_type: str, value: Any) -> None:
    parsed = parse_type(data_type)
    with pytest.raises(UnsupportedFeature, match="Partition by a column of another type"):
        partition_texts([pa.scalar(value, arrow_type(parsed))], [parsed], True)
