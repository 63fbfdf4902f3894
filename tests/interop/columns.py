"""A column of every type, with critical values: extremes, NaN, negative zero, 1969, other alphabets, nulls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tests.support.expected import Json

NAN: Final = float("nan")
INF: Final = float("inf")

_DAY: Final = 86_400
_YEAR_1: Final = -719_162 * _DAY  # seconds of 0001-01-01T00:00:00
_YEAR_9999: Final = 253_402_300_799  # of 9999-12-31T23:59:59
_LAST_OF_1969: Final = -1
_ORC_START: Final = -9_223_372_000  # 1677-09-22: what ORC's Arrow writer, nanoseconds, reaches


@dataclass(frozen=True)
class Column:
    """sql: as Java spells the type, or a schema file's JSON of it. values: for pa.array; a null is added in tests.

    orc_values: the values that an ORC file can hold, if not all (tests/storage/files tests the refused ones).
    """

    name: str
    sql: Json
    arrow: pa.DataType
    values: tuple[Any, ...]
    orc_values: tuple[Any, ...] | None = None
    is_key: bool = True  # may be part of a key

    def values_for(self, file_format: str) -> tuple[Any, ...]:
        return self.orc_values if file_format == "orc" and self.orc_values is not None else self.values

    @property
    def declaration(self) -> dict[str, Json]:
        """As the oracle's `create` takes it."""
        return {"name": self.name, "type": self.sql}


def _ticks(per_second: int, *, years: tuple[int, int] = (_YEAR_1, _YEAR_9999)) -> tuple[int, ...]:
    """Around 1970, far away, and a common time with every digit of the fraction."""
    common = 1_715_690_096 * per_second + (987_654_321 * per_second) // 10**9
    near = (-1, 0, 1, -per_second, -per_second - 1)
    return (common, *near, years[0] * per_second, years[1] * per_second)


def _orc_ticks(per_second: int) -> tuple[int, ...]:
    """Whole milliseconds before 1970, and none in its last second (Java reads that one a second late)."""
    common = 1_715_690_096 * per_second + (987_654_321 * per_second) // 10**9
    fraction = 0 if per_second == 1 else per_second // 1000
    return (
        common,
        0,
        1,
        -per_second,
        -5 * per_second - fraction,
        -2_000_000_000 * per_second,
        9_000_000_000 * per_second,
    )


def _timestamps(name: str, per_second: int, unit: str, digits: int) -> tuple[Column, Column]:
    reach = (_YEAR_1, _YEAR_9999) if unit != "ns" else (-9_223_372_036, 9_223_372_035)
    values, orc = _ticks(per_second, years=reach), _orc_ticks(per_second)
    local = Column(name, f"TIMESTAMP({digits})", pa.timestamp(unit), values, orc)
    zoned = Column(
        f"{name}_ltz", f"TIMESTAMP({digits}) WITH LOCAL TIME ZONE", pa.timestamp(unit, tz="UTC"), values, orc
    )
    return local, zoned


TEXTS: Final = (
    "",
    "a",
    "plain",
    "Ünï-çødé",
    "日本語の文字列",
    "🌊🐟",
    "line\u2028separator\n\t",
    "\x00zero",
    "\uffff",
    "z" * 9,
)
LONG_TEXTS: Final = (*TEXTS, "a text that is longer than sixteen characters", "\U0010ffff" * 17, "é" * 40)

SCALARS: Final = (
    Column("boolean", "BOOLEAN", pa.bool_(), (True, False)),
    Column("tinyint", "TINYINT", pa.int8(), (-128, -1, 0, 127)),
    Column("smallint", "SMALLINT", pa.int16(), (-(2**15), 0, 2**15 - 1)),
    Column("int", "INT", pa.int32(), (-(2**31), -1, 0, 1, 2**31 - 1)),
    Column("bigint", "BIGINT", pa.int64(), (-(2**63), -1, 0, 1, 2**63 - 1)),
    Column("float", "FLOAT", pa.float32(), (0.1, -0.0, 0.0, NAN, INF, -INF, 3.4028234663852886e38, 1e-45, -1.5)),
    Column("double", "DOUBLE", pa.float64(), (0.1, -0.0, 0.0, NAN, INF, -INF, 1.7976931348623157e308, 5e-324, -1.5)),
    Column(
        "decimal_small",
        "DECIMAL(9, 2)",
        pa.decimal128(9, 2),
        tuple(map(Decimal, ("0.00", "-9999999.99", "9999999.99"))),
    ),
    Column(
        "decimal_middle",
        "DECIMAL(18, 6)",
        pa.decimal128(18, 6),
        tuple(map(Decimal, ("-999999999999.999999", "0.000001", "-1.500000"))),
    ),
    Column(
        "decimal_large",
        "DECIMAL(38, 10)",
        pa.decimal128(38, 10),
        tuple(map(Decimal, ("-9999999999999999999999999999.9999999999", "0.0000000001", "12345678901234567890.5"))),
    ),
    Column("char", "CHAR(20)", pa.string(), TEXTS),
    Column("varchar", "VARCHAR(30)", pa.string(), TEXTS),
    Column("string", "STRING", pa.string(), LONG_TEXTS),
    Column("binary", "BINARY(4)", pa.binary(), (b"\x00\x01\xfe\xff", b"abcd")),
    Column("varbinary", "VARBINARY(8)", pa.binary(), (b"", b"\x00", b"\xff" * 8)),
    Column("bytes", "BYTES", pa.binary(), (b"", b"\x00\xff", bytes(range(256)), b"\xff" * 20)),
    Column(
        "date",
        "DATE",
        pa.date32(),
        (date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)),
    ),
    Column("time", "TIME(3)", pa.time32("ms"), (time(0), time(12, 34, 56, 789000), time(23, 59, 59, 999000))),
    *_timestamps("timestamp_s", 1, "s", 0),
    *_timestamps("timestamp_ms", 10**3, "ms", 3),
    *_timestamps("timestamp_us", 10**6, "us", 6),
    *_timestamps("timestamp_ns", 10**9, "ns", 9),
)


def _row(**fields: str) -> Json:
    return {"type": "ROW", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


_POINT: Final = pa.struct([("x", pa.int32()), ("label", pa.string())])

NESTED: Final = (
    Column(
        "array_int",
        {"type": "ARRAY", "element": "INT"},
        pa.list_(pa.int32()),
        ([], [1], [None, -(2**31), 7]),
        is_key=False,
    ),
    Column(
        "array_double",
        {"type": "ARRAY", "element": "DOUBLE"},
        pa.list_(pa.float64()),
        ([NAN, -0.0, INF, None],),
        is_key=False,
    ),
    Column(
        "array_decimal",
        {"type": "ARRAY", "element": "DECIMAL(20, 3)"},
        pa.list_(pa.decimal128(20, 3)),
        ([Decimal("12345678901234567.890"), None],),
        is_key=False,
    ),
    Column(
        "map_string_int",
        {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"},
        pa.map_(pa.string(), pa.int32()),
        ([], [("a", 1)], [("ü", None), ("", 2)]),
        is_key=False,
    ),
    Column(
        "map_int_array",
        {"type": "MAP", "key": "INT NOT NULL", "value": {"type": "ARRAY", "element": "STRING"}},
        pa.map_(pa.int32(), pa.list_(pa.string())),
        ([(1, ["a", None]), (2, None), (3, [])],),
        is_key=False,
    ),
    Column(
        "point",
        _row(x="INT", label="STRING"),
        _POINT,
        ({"x": 1, "label": "🌊"}, {"x": None, "label": None}),
        is_key=False,
    ),
    Column(
        "deep",
        _row(when="TIMESTAMP(6)", amount="DECIMAL(10, 2)")
        | {
            "fields": [
                {"name": "when", "type": "TIMESTAMP(6)"},
                {"name": "points", "type": {"type": "ARRAY", "element": _row(x="INT", label="STRING")}},
            ]
        },
        pa.struct([("when", pa.timestamp("us")), ("points", pa.list_(_POINT))]),
        (
            {"when": 1_715_690_096_987_654, "points": [{"x": 1, "label": "a"}, None]},
            {"when": None, "points": []},
            {"when": 0, "points": None},
        ),
        is_key=False,
    ),
)

ALL: Final = (*SCALARS, *NESTED)
BY_NAME: Final[Mapping[str, Column]] = {column.name: column for column in ALL}


def columns(names: Iterable[str]) -> tuple[Column, ...]:
    return tuple(BY_NAME[name] for name in names)


def cycled(column: Column, file_format: str, count: int, *, start: int = 0, with_nulls: bool = True) -> pa.Array:
    """`count` values of a column: its own in turn, from the start-th on, with nulls between."""
    values: Sequence[Any] = (*column.values_for(file_format), *([None] if with_nulls else []))
    return pa.array([values[(start + i) % len(values)] for i in range(count)], column.arrow)
