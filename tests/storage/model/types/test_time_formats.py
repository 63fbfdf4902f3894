"""Texts parsed as times, as in Java."""

from __future__ import annotations

from datetime import datetime

import pytest

from tidelake.errors import BadInput
from tidelake.storage.model.types.time_formats import TimeFormat, parse_leniently


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2024-05-01", datetime(2024, 5, 1)),
        ("2024-5-1", datetime(2024, 5, 1)),
        ("2024-05-01 7:08:09", datetime(2024, 5, 1, 7, 8, 9)),
        ("2024-05-01 07:08:09.5", datetime(2024, 5, 1, 7, 8, 9, 500_000)),
        ("2024-05-01 07:08:09.123456789", datetime(2024, 5, 1, 7, 8, 9, 123_456)),
        ("2024-13-01", datetime(2025, 1, 1)),
        ("2024-02-30", datetime(2024, 3, 1)),
        ("2024-00-01", datetime(2023, 12, 1)),
        ("2024-05-01 25:61:61", datetime(2024, 5, 2, 2, 2, 1)),
        ("99999-01-01", datetime.max),
        ("-5-01-01", datetime.min),
        ("2024-05-01 07:08", None),
        ("2024-05-01T07:08:09", None),
        ("20240501", None),
        ("2024/05/01", None),
        (" 2024-05-01", None),
        ("", None),
        ("x", None),
    ],
)
def test_without_a_pattern_numbers_are_epoch_units(text: str, time: datetime | None) -> None:
    assert parse_leniently(text) == time


@pytest.mark.parametrize(
    ("pattern", "text", "time"),
    [
        ("yyyyMMdd", "20240501", datetime(2024, 5, 1)),
        ("yyyyMMdd", "2024051", None),
        ("yyyyMMddHH", "2024050123", datetime(2024, 5, 1, 23)),
        ("yyyyMMdd HHmmss", "20240501 070809", datetime(2024, 5, 1, 7, 8, 9)),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-05-01 07:08:09.120", datetime(2024, 5, 1, 7, 8, 9, 120_000)),
        ("dd/MM/yyyy", "01/05/2024", datetime(2024, 5, 1)),
        ("d.M.yy", "1.5.24", datetime(2024, 5, 1)),
        ("yyyy'T'MM'o''clock'dd", "2024T05o'clock01", datetime(2024, 5, 1)),
        ("yyyy-MM-dd hh a", "2024-05-01 12 AM", datetime(2024, 5, 1)),
        ("yyyy-MM-dd hh a", "2024-05-01 11 pm", datetime(2024, 5, 1, 23)),
        ("yyyy-MM-dd", "2023-02-31", datetime(2023, 2, 28)),
        ("yyyy-MM-dd HH", "2024-05-01 24", datetime(2024, 5, 2)),
        ("yyyy-MM-dd HH:mm", "2024-05-01 24:01", None),
        ("yyyy-MM-dd", "2024-13-01", None),
        ("yyyy-MM-dd", "2024-05-32", None),
        ("yyyy-MM", "2024-05", None),
        ("HH:mm", "07:08", None),
    ],
)
def test_with_a_pattern_the_text_must_fit(pattern: str, text: str, time: datetime | None) -> None:
    assert TimeFormat(pattern).parse(text) == time


@pytest.mark.parametrize("pattern", ["yyyy-MMM-dd", "EEE", "yyyy-MM-dd z", "[yyyy]", "yyyy'", "yyyy yyyy"])
def test_unsupported_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="is not supported"):
        TimeFormat(pattern)
