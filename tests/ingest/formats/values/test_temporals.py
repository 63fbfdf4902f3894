from __future__ import annotations

from datetime import date
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.formats.values.value_case import CellCase, declared
from tidelake.ingest.formats.connect_schema import JSON_VALUE, ConnectorSettings, spelled_source_type
from tidelake.ingest.formats.values.temporals import date_text, interval_text, timestamp_text

_CONNECT_DATE: Final = declared("int32", "org.apache.kafka.connect.data.Date")
_MICRO_TIME: Final = declared("int64", "io.debezium.time.MicroTime")
_NANO_TIME: Final = declared("int64", "io.debezium.time.NanoTime")
_TIMESTAMP: Final = declared("int64", "io.debezium.time.Timestamp")
_MICRO: Final = declared("int64", "io.debezium.time.MicroTimestamp")
_NANO: Final = declared("int64", "io.debezium.time.NanoTimestamp")
_ZONED: Final = declared("string", "io.debezium.time.ZonedTimestamp")
_ISO_DATE: Final = declared("string", "io.debezium.time.IsoDate")
_ISO_TIMESTAMP: Final = declared("string", "io.debezium.time.IsoTimestamp")
_LTZ: Final = "TIMESTAMP(6) WITH LOCAL TIME ZONE"
_BARE_LONG: Final = declared("int64")


def _mode(word: str) -> ConnectorSettings:
    return ConnectorSettings(time_precision_mode=word)


_MICROSECONDS: Final = _mode("microseconds")

CASES: Final = (
    CellCase("days", "DATE", "19782", 19782),
    CellCase("days of year 1", "DATE", "-719162", -719162),
    CellCase("Connect's days", "DATE", "-1", -1, source=_CONNECT_DATE),
    CellCase("more days than there are", "DATE", "2147483648", refused="2147483648 is out of the range of DATE"),
    CellCase("ISO date", "DATE", '"9999-12-31"', 2932896),
    CellCase("a year of five digits", "DATE", '"+10000-01-01"', 2932897),
    CellCase("a year before Christ", "DATE", '"-0001-01-01"', -719893),
    CellCase("no such day", "DATE", '"2023-02-29"', refused='text "2023-02-29" is not a valid date'),
    CellCase("half a day", "DATE", "1.5", refused="number 1.5 is not a valid DATE"),
    CellCase("a plain number has no unit", "DATE", "1", refused="source_types", source=_BARE_LONG),
    CellCase("adaptive: ms up to TIME(3)", "TIME(0)", "86399000", 86399000),
    CellCase("adaptive: us from TIME(4)", "TIME(6)", "45296700000", 45296700),
    CellCase("adaptive: us from TIME(4), cut", "TIME(6)", "45296700999", 45296700, rounds=True),
    CellCase("adaptive: us from TIME(4), finer than ms", "TIME(6)", "45296700999", refused="finer", fits="STRING"),
    CellCase("adaptive: ns from TIME(7)", "TIME(9)", "45296700000000", 45296700),
    CellCase("adaptive: ns from TIME(7), cut", "TIME(9)", "45296700999999", 45296700, rounds=True),
    CellCase("MariaDB: always us", "TIME(0)", "86399000000", 86399000, connector="mariadb"),
    CellCase(
        "a mode overrules the connector", "TIME(0)", "86399000", 86399000, connector="mysql", settings=_mode("adaptive")
    ),
    CellCase("mode connect: always ms", "TIME(6)", "86399999", 86399999, settings=_mode("connect")),
    CellCase("MicroTime says so itself", "TIME(0)", "1000", 1, source=_MICRO_TIME, settings=_mode("connect")),
    CellCase("NanoTime", "TIME(0)", "86399999000000", 86399999, source=_NANO_TIME),
    CellCase("NanoTime, cut", "TIME(0)", "86399999999999", 86399999, source=_NANO_TIME, rounds=True),
    CellCase("NanoTime, finer", "TIME(0)", "1", refused=r"finer than the ms of TIME\(0\)", source=_NANO_TIME),
    CellCase(
        "a MariaDB time of more than a day",
        "TIME(0)",
        "3020399000000",
        refused=r"838:59:59 \(3020399000000\) is no",
        fits="STRING",
        source=_MICRO_TIME,
    ),
    CellCase("a MariaDB time below zero", "TIME(0)", "-1500000", refused="-00:00:01.5", source=_MICRO_TIME),
    CellCase("midnight at the end of the day", "TIME(3)", "86400000", refused="24:00:00"),
    CellCase("a MariaDB time in a BIGINT", "BIGINT", "3020399000000", 3020399000000, source=_MICRO_TIME),
    CellCase("a MariaDB time in a STRING", "STRING", "-45000000000", "-12:30:00", source=_MICRO_TIME),
    CellCase("time as text", "TIME(3)", '"23:59:59.9990"', 86399999),
    CellCase("time as text, cut", "TIME(3)", '"23:59:59.9999"', 86399999, rounds=True),
    CellCase("time as text, finer", "TIME(3)", '"23:59:59.9999"', refused="finer than the ms", fits="STRING"),
    CellCase("time without seconds", "TIME(0)", '"07:30"', 27000000),
    CellCase("time with a zone becomes UTC", "TIME(0)", '"00:30:00+02:00"', 81000000),
    CellCase("no such hour", "TIME(0)", '"24:00:00"', refused="is not a valid time of day"),
    CellCase("adaptive: ms up to TIMESTAMP(3)", "TIMESTAMP(3)", "-1", -1),
    CellCase("adaptive: ms for whole seconds", "TIMESTAMP(0)", "-1000", -1),
    CellCase("adaptive: ms for whole seconds, cut downwards", "TIMESTAMP(0)", "-1", -1, rounds=True),
    CellCase(
        "a part of a second in TIMESTAMP(0)", "TIMESTAMP(0)", "-1", refused="finer than the s", fits="TIMESTAMP(3)"
    ),
    CellCase("adaptive: us from TIMESTAMP(4)", "TIMESTAMP(4)", "-62135596800000000", -62135596800000000),
    CellCase("adaptive: ns from TIMESTAMP(7)", "TIMESTAMP(9)", "7", 7),
    CellCase("mode connect: always ms", "TIMESTAMP(6)", "1506379009500", 1506379009500000, settings=_mode("connect")),
    CellCase("Timestamp into a finer column", "TIMESTAMP(6)", "253402300799000", 253402300799000000, source=_TIMESTAMP),
    CellCase("MicroTimestamp of whole ms", "TIMESTAMP(3)", "-1000", -1, source=_MICRO),
    CellCase("MicroTimestamp cut", "TIMESTAMP(3)", "-1001", -2, source=_MICRO, rounds=True),
    CellCase(
        "MicroTimestamp into a coarser column",
        "TIMESTAMP(3)",
        "-1001",
        refused=r"-1001 is finer than the ms of TIMESTAMP\(3\)",
        fits="TIMESTAMP(6)",
        source=_MICRO,
    ),
    CellCase("NanoTimestamp, cut", "TIMESTAMP(6)", "1999", 1, source=_NANO, rounds=True),
    CellCase("NanoTimestamp, finer", "TIMESTAMP(6)", "1999", refused="finer", fits="TIMESTAMP(9)", source=_NANO),
    CellCase(
        "past 2262 in nanoseconds",
        "TIMESTAMP(9)",
        "253402300799000",
        refused="out of the range of TIMESTAMP",
        source=_TIMESTAMP,
    ),
    CellCase("a date in a timestamp column", "TIMESTAMP(0)", "1", 86400, source=_CONNECT_DATE),
    CellCase(
        "a timestamp in a date column",
        "DATE",
        "1",
        refused="io.debezium.time.Timestamp can't become DATE",
        source=_TIMESTAMP,
    ),
    CellCase("a bare long, told its unit", "TIMESTAMP(0)", "5", 5, source=spelled_source_type("t", "timestamp s")),
    CellCase(
        "an instant",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        '"1900-01-01T00:00:00.000000Z"',
        -2208988800000000,
        source=_ZONED,
    ),
    CellCase(
        "an instant in a plain timestamp is UTC",
        "TIMESTAMP(3)",
        '"2012-08-06T05:36:13.174Z"',
        1344231373174,
        source=_ZONED,
    ),
    CellCase("an instant with an offset", "TIMESTAMP(0)", '"1970-01-01T02:00:00+02:00"', 0),
    CellCase("an offset with seconds", "TIMESTAMP(0)", '"1970-01-01T00:00:00-00:00:01"', 1),
    CellCase("zeros at the end of a fraction", "TIMESTAMP(3)", '"1969-12-31T23:59:59.999000Z"', -1),
    CellCase("finer than the column: cut", "TIMESTAMP(3)", '"1969-12-31T23:59:59.9999999Z"', -1, rounds=True),
    CellCase(
        "finer than the column",
        "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        '"1969-12-31T23:59:59.9999Z"',
        refused="finer than the ms",
        fits="TIMESTAMP(6) WITH LOCAL TIME ZONE",
        source=_ZONED,
    ),
    CellCase(
        "finer than the column, whose numbers would count something else",
        "TIMESTAMP(3)",
        '"1969-12-31T23:59:59.9999Z"',
        refused="read in us instead of ms. Declare the unit in source_types of the table, for example 'timest",
    ),
    CellCase("finer than whole seconds", "TIMESTAMP(0)", '"1970-01-01T00:00:00.5Z"', refused="s", fits="TIMESTAMP(3)"),
    CellCase(
        "finer than the column, whose numbers have a mode",
        "TIMESTAMP(3)",
        '"1969-12-31T23:59:59.9999Z"',
        refused="finer than the ms",
        fits="TIMESTAMP(6)",
        settings=_mode("connect"),
    ),
    CellCase("finer than nanoseconds", "TIMESTAMP(9)", '"1970-01-01T00:00:00.0000000001"', refused="ns", fits="STRING"),
    CellCase("no zone: UTC", "TIMESTAMP(0) WITH LOCAL TIME ZONE", '"1970-01-02 00:00:00"', 86400),
    CellCase("no clock: midnight", "TIMESTAMP(0)", '"1970-01-02"', 86400),
    CellCase("a year of six digits", "TIMESTAMP(0)", '"+294276-12-31T23:59:59Z"', 9224318015999),
    CellCase("infinity", "TIMESTAMP(6)", '"infinity"', 9223372036825200000),
    CellCase("minus infinity", "TIMESTAMP(6)", '"-infinity"', -9223372036832400000),
    CellCase("infinity with time zone", _LTZ, '"infinity"', 9223372036825200000, source=_ZONED),
    CellCase(
        "infinity as MicroTimestamp is the same instant",
        _LTZ,
        "9223372036825200000",
        9223372036825200000,
        source=_MICRO,
    ),
    CellCase("infinity in ms", "TIMESTAMP(3)", '"infinity"', 9223372036825200),
    CellCase("infinity as Timestamp", "TIMESTAMP(3)", "9223372036825200", 9223372036825200, source=_TIMESTAMP),
    CellCase("infinity as IsoTimestamp", "TIMESTAMP(6)", '"+294247-01-10T04:00:25.2Z"', 9223372036825200000),
    CellCase("infinity in s, cut downwards", "TIMESTAMP(0)", '"-infinity"', -9223372036833),
    CellCase("infinity in ns", "TIMESTAMP(9)", '"infinity"', refused="out of the range", fits="STRING"),
    CellCase("infinity as a text", "STRING", '"infinity"', "infinity", source=_ZONED),
    CellCase("infinity of a date, as Debezium sends it", "DATE", '"-5877611-06-21Z"', -2147472692, source=_ISO_DATE),
    CellCase("infinity of a date, as nobody sends it", "DATE", '"infinity"', refused="is not a valid date"),
    CellCase("another word", "TIMESTAMP(6)", '"Infinity"', refused='text "Infinity" is not a valid timestamp'),
    CellCase("IsoDate", "DATE", '"2017-09-15Z"', 17424, source=_ISO_DATE),
    CellCase("IsoDate without a schema", "DATE", '"2017-09-15Z"', 17424, source=JSON_VALUE),
    CellCase("IsoDate before Christ", "DATE", '"-0001-01-01Z"', -719893, source=_ISO_DATE),
    CellCase("a date with an offset of zero", "DATE", '"2017-09-15+00:00"', 17424),
    CellCase("a date in another zone is no day in UTC", "DATE", '"2017-09-15+02:00"', refused="is not a valid date"),
    CellCase("IsoDate in a timestamp column", "TIMESTAMP(3)", '"1970-01-02Z"', 86400000, source=_ISO_DATE),
    CellCase("IsoDate in a text", "STRING", '"2017-09-15Z"', "2017-09-15Z", source=_ISO_DATE),
    CellCase("IsoTime", "TIME(3)", '"10:15:30.25Z"', 36930250, source=declared("string", "io.debezium.time.IsoTime")),
    CellCase("IsoTime of whole seconds", "TIME(0)", '"10:15:30Z"', 36930000),
    CellCase("IsoTimestamp", "TIMESTAMP(6)", '"1970-01-01T00:00:00.123456Z"', 123456, source=_ISO_TIMESTAMP),
    CellCase(
        "a widening that would not hold the value",
        "TIMESTAMP(6)",
        '"9999-12-31T23:59:59.1234567Z"',
        refused="finer than the us",
        fits="STRING",
        source=_ZONED,
    ),
    CellCase("ms where us are assumed", "TIMESTAMP(6)", "1795196154000", refused="1970-01-21 in us.*2026-11-20 in ms"),
    CellCase("ns where us are assumed", "TIMESTAMP(6)", "1795196154000000000", refused="2026-11-20 in ns"),
    CellCase("us where ms are assumed", "TIMESTAMP(3)", "1795196154000000", refused="2026-11-20 in us"),
    CellCase("ms where ns are assumed", "TIMESTAMP(9)", "1795196154000", refused="2026-11-20 in ms"),
    CellCase("the end of time in ms is no year 1978", "TIMESTAMP(3)", "253402300799000", 253402300799000),
    CellCase("the end of time in us", "TIMESTAMP(6)", "253402300799000000", 253402300799000000),
    CellCase("1970 in us", "TIMESTAMP(6)", "0", 0),
    CellCase("1975 in us", "TIMESTAMP(6)", "157766400000000", 157766400000000),
    CellCase(
        "a configured unit is believed", "TIMESTAMP(6)", "1795196154000", 1795196154000, settings=_mode("microseconds")
    ),
    CellCase(
        "a declared unit is believed",
        "TIMESTAMP(6)",
        "1795196154000",
        1795196154000000,
        source=spelled_source_type("t", "timestamp ms"),
    ),
    CellCase("Vitess: always us", "TIME(0)", "5000000", 5000, connector="vitess"),
    CellCase("TiCDC: always us", "TIME(0)", "5000000", 5000, connector="TiCDC"),
    CellCase("Cassandra: always ns", "TIME(0)", "5000000000", 5000, connector="cassandra"),
    CellCase("Cassandra: always ms", "TIMESTAMP(6)", "1795196154000", 1795196154000000, connector="cassandra"),
    CellCase(
        "a connector that is not known", "TIME(0)", "5000000", refused="not known.*'yugabytedb'", connector="yugabytedb"
    ),
    CellCase("its texts are read", "TIME(0)", '"00:00:05"', 5000, connector="yugabytedb"),
    CellCase("its days are read", "DATE", "1", 1, connector="yugabytedb"),
    CellCase("its numbers, with a unit", "TIME(0)", "5000000", 5000, connector="x", settings=_MICROSECONDS),
    CellCase("Spanner sends texts", "TIMESTAMP(9)", '"1970-01-01T00:00:00.000000001Z"', 1, connector="spanner"),
    CellCase(
        "Spanner sends no numbers", "TIMESTAMP(9)", "1", refused="Spanner's connector sends no", connector="spanner"
    ),
    CellCase("isostring has no numbers", "TIMESTAMP(6)", "1", refused="is a text", settings=_mode("isostring")),
    CellCase("a leap second", "TIMESTAMP(0)", '"2016-12-31T23:59:60Z"', refused="is not a valid timestamp"),
    CellCase("a boolean", "TIMESTAMP(0)", "true", refused=r"boolean true is not a valid TIMESTAMP\(0\)"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_json_value_in_a_temporal_column(case: CellCase) -> None:
    case.check()


@given(st.dates())
def test_days_print_as_the_date(day: date) -> None:
    assert date_text(day.toordinal() - date(1970, 1, 1).toordinal()) == day.isoformat()


def test_days_beyond_the_calendar_of_python_print_with_a_sign_or_more_digits() -> None:
    assert [date_text(days) for days in (2932897, -719528, -719529, -719893)] == [
        "10000-01-01",
        "0000-01-01",
        "-0001-12-31",
        "-0001-01-01",
    ]


def test_times_print_as_databases_print_them() -> None:
    assert interval_text(-12_345_678, 1_000_000) == "-00:00:12.345678"
    assert interval_text(3_020_399_000, 1_000) == "838:59:59"
    assert timestamp_text(-1, 1_000) == "1969-12-31 23:59:59.999"
    assert timestamp_text(1_500_000_000, 1_000_000_000) == "1970-01-01 00:00:01.5"
