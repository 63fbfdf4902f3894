"""A column of every type, with critical values: nulls, extremes, NaN, -0.0, times before 1970, unicode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
    arrow_schema,
    arrow_type,
    decimal,
    not_null,
    parse_type,
    timestamp,
    timestamp_ltz,
)

FORMATS: Final = ("parquet", "orc", "avro")


@dataclass(frozen=True)
class Sample:
    """values: what `pa.array` takes for the type's in-memory form; times as ticks of its unit. refused_by: formats."""

    id: str
    type: DataType
    values: Sequence[Any]
    refused_by: tuple[str, ...] = ()

    @property
    def column(self) -> pa.Array:
        return column_of(self.type, self.values)

    @property
    def field(self) -> DataField:
        return DataField(7, "column", self.type)


def column_of(data_type: DataType, values: Sequence[Any]) -> pa.Array:
    kind = arrow_type(data_type)
    if data_type.root in TIMESTAMP_ROOTS:
        return pa.array(values, pa.int64()).cast(kind)
    if data_type.root in (Root.DATE, Root.TIME):
        return pa.array(values, pa.int32()).cast(kind)
    return pa.array(values, kind)


def ticks(text: str, unit: str) -> int:
    return int(np.array([text], f"datetime64[{unit}]").astype(np.int64)[0])


_YEAR_1: Final = "0001-01-01T00:00:00"
_YEAR_9999: Final = "9999-12-31T23:59:59"
_NAN: Final = float("nan")
_INFINITE: Final = float("inf")
_NESTED_ROW: Final = RowType(
    (
        DataField(20, "x", INT),
        DataField(21, "名前", STRING),
        DataField(22, "inner", RowType((DataField(23, "d", decimal(20, 2)), DataField(24, "t", timestamp(6))))),
    )
)
_TIME: Final = AtomicType(Root.TIME, precision=3)


SAMPLES: Final = [
    Sample("boolean", BOOLEAN, [True, None, False]),
    Sample("tinyint", AtomicType(Root.TINYINT), [-128, None, 127, 0]),
    Sample("smallint", AtomicType(Root.SMALLINT), [-32768, 32767, None]),
    Sample("int", INT, [-(2**31), None, 2**31 - 1]),
    Sample("bigint", BIGINT, [-(2**63), 2**63 - 1, None, 0]),
    Sample("float", FLOAT, [1.5, None, -0.0, 0.0, _NAN, -_INFINITE, 3.4028234663852886e38]),
    Sample("double", DOUBLE, [_NAN, None, -0.0, 5e-324, _INFINITE, -1.7976931348623157e308]),
    Sample("decimal in 32 bits", decimal(9, 9), [Decimal("-0.999999999"), None, Decimal("0.000000001")]),
    Sample("decimal in 64 bits", decimal(18, 2), [Decimal("9999999999999999.99"), None, Decimal("-0.01")]),
    Sample("decimal of 19 digits", decimal(19, 0), [Decimal(10**19 - 1), None, Decimal(1 - 10**19)]),
    Sample("decimal of 38 digits", decimal(38, 18), [Decimal(10**20 - 1), None, Decimal("-1E-18"), Decimal(0)]),
    Sample("char", AtomicType(Root.CHAR, length=3), ["abc", None, "é"]),
    Sample("varchar", AtomicType(Root.VARCHAR, length=9), ["", None, "短い 😀", "blank  "]),
    Sample("string", STRING, ["", None, "ключ", "\x00\n\u2028", "😀" * 2000]),
    Sample("binary", AtomicType(Root.BINARY, length=4), [b"\x00\xff\x10\xaa", None]),
    Sample("varbinary", AtomicType(Root.VARBINARY, length=8), [b"", None, b"\x80"]),
    Sample("bytes", BYTES, [b"\xff" * 5000, None, b""]),
    Sample("date", DATE, [-719162, None, 2932896, 0, -1]),
    Sample("time", _TIME, [0, None, 86_399_999]),
    Sample("timestamp(0)", timestamp(0), [ticks(_YEAR_1, "s"), None, -1, ticks(_YEAR_9999, "s")]),
    Sample("timestamp(3)", timestamp(3), [ticks(_YEAR_1, "ms"), -1, None, ticks(_YEAR_9999, "ms") + 999]),
    Sample("timestamp(6)", timestamp(6), [ticks(_YEAR_1, "us"), None, ticks(_YEAR_9999, "us") + 999_999]),
    Sample("timestamp(6) before 1970", timestamp(6), [-1, None, -1_500_001], refused_by=("orc",)),
    Sample("timestamp(9)", timestamp(9), [0, None, 2**63 - 1], refused_by=("avro",)),
    Sample("timestamp(9) before 1970", timestamp(9), [-1, None, -(2**63) + 1], refused_by=("avro", "orc")),
    Sample("local timestamp(3)", timestamp_ltz(3), [ticks(_YEAR_1, "ms"), None, ticks(_YEAR_9999, "ms")]),
    Sample("local timestamp(6)", timestamp_ltz(6), [1, None, ticks("2200-01-01", "us")]),
    Sample("local timestamp(9)", timestamp_ltz(9), [1, None, 2**62], refused_by=("avro",)),
    Sample("array", ArrayType(INT), [[1, None, 3], [], None]),
    Sample("array of arrays", ArrayType(ArrayType(STRING)), [[["a"], [], None, ["b", None]], None, []]),
    Sample("array of times", ArrayType(_TIME), [[1, None], None, []]),
    Sample("map", MapType(STRING, INT), [[("", None), ("k", 1)], [], None]),
    Sample("map with numbers as keys", MapType(INT, ArrayType(STRING)), [[(-2, None), (1, ["x", None])], None, []]),
    Sample("multiset", MultisetType(STRING), [[("m", 2), ("n", 1)], None, []]),
    Sample(
        "row",
        _NESTED_ROW,
        [
            {"x": 1, "名前": "ы", "inner": {"d": Decimal("1.25"), "t": None}},
            None,
            {"x": None, "名前": None, "inner": None},
        ],
        refused_by=("avro",),  # whose names are ASCII
    ),
    Sample(
        "array of rows",
        ArrayType(RowType((DataField(30, "a", INT), DataField(31, "b", BYTES)))),
        [[{"a": 1, "b": b"\x00"}, None, {"a": None, "b": None}], [], None],
    ),
    Sample("vector", VectorType(FLOAT, 3), [[1.0, -2.5, _NAN], None, [0.0, 3.0, _INFINITE]], refused_by=("orc",)),
    Sample(
        "variant",
        AtomicType(Root.VARIANT),
        [{"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}, None],
        refused_by=("orc", "avro"),
    ),
    Sample("not null", not_null(BIGINT), [1, 2, 3]),
    Sample("only nulls", STRING, [None, None]),
]

WRITABLE: Final = [(name, s) for name in FORMATS for s in SAMPLES if name not in s.refused_by]
REFUSED: Final = [(name, s) for name in FORMATS for s in SAMPLES if name in s.refused_by]


def sample_id(value: object) -> str | None:
    return value.id if isinstance(value, Sample) else None


def batch_of_columns(columns: Mapping[str, tuple[DataType, Any]]) -> tuple[list[DataField], pa.RecordBatch]:
    """Fields with ids 0, 1, 2, … and their values."""
    fields = [DataField(i, name, kind) for i, (name, (kind, _)) in enumerate(columns.items())]
    arrays = [column_of(kind, values) for kind, values in columns.values()]
    return fields, pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(fields))


def table_schema(
    columns: Mapping[str, str],
    *,
    primary_keys: Sequence[str] = (),
    partition_keys: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    schema_id: int = 0,
) -> TableSchema:
    """columns: name -> type as SQL text. Ids 0, 1, 2, …; key columns become NOT NULL."""
    fields = []
    for i, (name, text) in enumerate(columns.items()):
        kind = parse_type(text)
        fields.append(DataField(i, name, not_null(kind) if name in primary_keys else kind))
    return TableSchema(
        schema_id,
        tuple(fields),
        len(fields) - 1,
        tuple(partition_keys),
        tuple(primary_keys),
        {"bucket": "1", **(options or {})},
    )


def options_of(schema: TableSchema) -> TableOptions:
    return TableOptions(schema.options)
