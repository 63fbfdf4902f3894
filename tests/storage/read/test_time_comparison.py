"""Conditions on dates and times: exact, whatever precision the value and the column have."""

from __future__ import annotations

import operator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.read.condition_text import parse_condition
from tidelake.storage.read.predicate import Compare

NOON: Final = datetime(2026, 5, 1, 12)
HALF: Final = timedelta(microseconds=500)
OPERATORS: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
DAYS: Final = [date(2026, 4, 30), date(2026, 5, 1), date(2026, 5, 2)]
CASES: Final[dict[str, tuple[pa.DataType, list[Any], Any, Any]]] = {
    # the column's type, its values, the value of the condition, that value beside the column's values in Python
    "a date and a time of that day": (pa.date32(), DAYS, NOON, NOON),
    "a date and midnight": (pa.date32(), DAYS, datetime(2026, 5, 1), datetime(2026, 5, 1)),
    "a date and a scalar of Arrow": (pa.date32(), DAYS, pa.scalar(NOON, pa.timestamp("ns")), NOON),
    "a finer timestamp": (pa.timestamp("ms"), [NOON, NOON + 2 * HALF], NOON + HALF, NOON + HALF),
    "a timestamp and a date": (
        pa.timestamp("ms"),
        [NOON, datetime(2026, 5, 1)],
        date(2026, 5, 1),
        datetime(2026, 5, 1),
    ),
    "an instant, finer": (
        pa.timestamp("ms", "UTC"),
        [(NOON + n * HALF).replace(tzinfo=UTC) for n in (0, 2)],
        (NOON + HALF).replace(tzinfo=UTC),
        (NOON + HALF).replace(tzinfo=UTC),
    ),
    "a finer time of day": (pa.time32("ms"), [time(12), time(12, 0, 0, 1000)], time(12, 0, 0, 1), time(12, 0, 0, 1)),
    "before 1677, beside nanoseconds": (pa.timestamp("ns"), [NOON], datetime(1, 1, 1), datetime(1, 1, 1)),
    "after 2262, beside nanoseconds": (pa.timestamp("ns"), [NOON], datetime(9999, 1, 1), datetime(9999, 1, 1)),
}


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize(("kind", "values", "given", "meant"), CASES.values(), ids=CASES)
def test_a_time_is_compared_exactly(kind: pa.DataType, values: list[Any], given: Any, meant: Any, sign: str) -> None:
    rows = pa.table({"x": pa.array(values, kind)})
    found = rows.filter(Compare("x", sign, given).expression(rows.schema)).column("x")
    beside = [datetime.combine(v, time()) if type(v) is date else v for v in values]
    wanted = [v for v, at in zip(values, beside, strict=True) if OPERATORS[sign](at, meant)]
    assert found.cast(pa.timestamp("us") if kind == pa.timestamp("ns") else kind).to_pylist() == wanted


TEXTS: Final = {
    "a time of day": (pa.time32("ms"), time(12, 30, 0, 500000), "x = '12:30:00.5'"),
    "a time of day as a literal of SQL": (pa.time32("ms"), time(12, 30), "x = TIME '12:30:00'"),
    "hours and minutes": (pa.time32("ms"), time(12, 30), "x in ('12:30', '7:15')"),
    "more digits than a time of day has": (
        pa.time32("ms"),
        time(12, 30),
        "x < '12:30:00.000001' and x >= '12:30:00.000000000'",
    ),
    "zeros behind the digits of a timestamp": (pa.timestamp("ms"), NOON, "x = '2026-05-01 12:00:00.000000'"),
    "more digits than a timestamp has": (pa.timestamp("ms"), NOON, "x < '2026-05-01 12:00:00.000001'"),
    "a time beside a date": (
        pa.date32(),
        date(2026, 5, 1),
        "x < '2026-05-01 12:00:00' and not x = '2026-05-01 12:00:00'",
    ),
    "a time with zone beside a date and time": (
        pa.timestamp("us", "UTC"),
        NOON.replace(tzinfo=UTC),
        "x = '2026-05-01 14:00:00+02:00'",
    ),
    "a year beyond nanoseconds": (pa.timestamp("ns"), NOON, "x < '9999-12-31 00:00:00' and x > '0001-01-01 00:00:00'"),
    "digits beyond a decimal's": (pa.decimal128(4, 2), None, "x is null or x < '1.505'"),
    "a fraction beside whole numbers": (pa.int32(), 5, "x < '5.5' and x <> '5.5'"),
}


@pytest.mark.parametrize(("kind", "value", "text"), TEXTS.values(), ids=TEXTS)
def test_a_text_takes_the_type_of_its_column(kind: pa.DataType, value: Any, text: str) -> None:
    rows = pa.table({"x": pa.array([value], kind)})
    assert len(rows.filter(parse_condition(text).expression(rows.schema))) == 1


REFUSED: Final = {
    "no time of day": (pa.time32("ms"), "25:00:00", "write a time of day, as in '12:30:00'"),
    "a date beside a time of day": (pa.time32("ms"), "2026-05-01", "write a time of day"),
    "no date": (pa.date32(), "1. Mai", "write a date, as in '2026-05-01'"),
    "a zone where there is none": (pa.timestamp("ms"), "2026-05-01T12:00:00Z", "write a time without a time zone"),
    "no zone where there is one": (
        pa.timestamp("ms", "UTC"),
        "2026-05-01 12:00:00",
        r"write a time with a time zone, as in '.*Z'",
    ),
    "a time of day beside a timestamp": (pa.timestamp("ms"), time(12), "write a time without a time zone"),
    "a number beside a timestamp": (pa.timestamp("ms"), 7, "write a time without a time zone"),
    "a number beside a text": (pa.string(), 7, "write a text, as in 'abc'"),
    "a text beside a number": (pa.int32(), "seven", "write a number"),
    "a text beside a boolean": (pa.bool_(), "maybe", "write TRUE or FALSE"),
}


@pytest.mark.parametrize(("kind", "value", "remedy"), REFUSED.values(), ids=REFUSED)
def test_a_value_that_is_refused_comes_with_how_to_write_one(kind: pa.DataType, value: Any, remedy: str) -> None:
    with pytest.raises(tidelake.BadInput, match=f"compares column 'x' .*; {remedy}"):
        Compare("x", "<", value).expression(pa.schema([("x", kind)]))


def test_a_day_is_read_and_deleted_by_times(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("d")
    table = catalog.create_table("d.t", pa.schema([("day", pa.date32())]))
    for day in DAYS:  # a file for each
        table.append([{"day": day}])
    assert table.scan(filter=tidelake.col("day") < NOON).to_arrow()["day"].to_pylist() == DAYS[:2]
    assert table.scan(filter=tidelake.col("day") == NOON).to_arrow().num_rows == 0
    table.delete(tidelake.col("day") >= NOON)
    assert table.scan().to_arrow()["day"].to_pylist() == DAYS[:2]
