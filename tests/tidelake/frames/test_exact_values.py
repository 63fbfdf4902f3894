"""Each library gets each value unchanged, or an error that names the column and the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import uuid4

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidelake
from tidelake import Scan
from tidelake.storage.model.types import DataField, parse_type


@dataclass(frozen=True)
class Values:
    """Values of one column.

    refused_by: library -> a part of its error
    """

    id: str
    type: str
    values: list[Any]
    refused_by: dict[str, str]


def of(name: str, type: str, *values: Any, **refused_by: str) -> Values:
    return Values(name, type, [*values, None], refused_by)


NANOSECOND: Final = pa.scalar(1_700_000_000_000_000_001, pa.timestamp("ns", "UTC"))

CASES: Final = [
    of("booleans", "BOOLEAN", True, False),
    of("the smallest integers", "TINYINT", -128, 127),
    of("small integers", "SMALLINT", -(2**15), 2**15 - 1),
    of("integers", "INT", -(2**31), 2**31 - 1),
    of("integers that no double holds", "BIGINT", 2**53 + 1, -(2**63), 2**63 - 1),
    of("floats with NaN", "FLOAT", 0.5, float("nan"), float("inf"), -0.0),
    of("doubles with NaN", "DOUBLE", 0.1, float("nan"), float("-inf"), -0.0),
    of("texts", "STRING", "", "ä\n", "null", "NaN"),
    of("bytes", "BYTES", b"", b"\x00\xff"),
    of("bytes of one length", "BINARY(2)", b"\x00\xff"),
    of(
        "decimals of all digits",
        "DECIMAL(38, 10)",
        Decimal("9999999999999999999999999999.9999999999"),
        Decimal("0E-10"),
    ),
    of("decimals without digits after the point", "DECIMAL(38, 0)", Decimal(10**38 - 1)),
    of("dates", "DATE", date(1, 1, 1), date(9999, 12, 31)),
    of("times", "TIME(3)", time(0), time(23, 59, 59, 999000)),
    of("seconds", "TIMESTAMP(0)", datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)),
    of("milliseconds", "TIMESTAMP(3)", datetime(1969, 12, 31, 23, 59, 59, 999000)),
    of("microseconds", "TIMESTAMP(6)", datetime(1, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)),
    of("nanoseconds", "TIMESTAMP(9)", pa.scalar(1_700_000_000_000_000_001, pa.timestamp("ns"))),
    of("times with a zone", "TIMESTAMP(6) WITH LOCAL TIME ZONE", datetime(2026, 5, 1, 12, 0, 0, 1, UTC)),
    of("nanoseconds with a zone", "TIMESTAMP(9) WITH LOCAL TIME ZONE", NANOSECOND, duckdb="can't hold exactly"),
    of("lists with nulls", "ARRAY<BIGINT>", [2**53 + 1, None], []),
    of("lists of floats", "ARRAY<DOUBLE>", [float("nan"), None]),
    of("maps with nulls", "MAP<STRING, BIGINT>", [("a", 2**53 + 1), ("b", None)], []),
    of("rows", "ROW<a BIGINT, b ROW<c STRING>>", {"a": None, "b": {"c": "x"}}, {"a": 2**53 + 1, "b": None}),
    of("variants", "VARIANT", {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}),
]


def scanned(case: Values) -> Scan:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    fields = [DataField(0, "n", parse_type("INT")), DataField(0, "x", parse_type(case.type))]
    table = catalog.create_table("db.t", fields)
    values = [
        value.as_py() if isinstance(value, pa.Scalar) and value.type.unit != "ns" else value for value in case.values
    ]
    kind = table.schema.field("x").type
    if any(isinstance(value, pa.Scalar) for value in values):
        column = pa.array([None if value is None else value.value for value in values], pa.int64()).cast(kind)
    else:
        column = pa.array(values, kind)
    rows = pa.table({"n": pa.array(range(len(column)), pa.int32()), "x": column})
    table.append(rows)
    assert plain(table.scan().to_arrow()) == plain(rows)
    return table.scan()


def plain(rows: pa.Table) -> list[str]:
    """Return the values as texts, in which NaN equals NaN, and -0.0 does not equal 0.0."""
    column = rows.sort_by("n").column("x")
    ns = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    return [repr(value) for value in (column.cast(pa.int64()) if ns else column).to_pylist()]


def by_pandas(scan: Scan) -> pa.Table:
    frame = scan.to_pandas()
    return pa.table({name: pa.array(frame[name], scan.schema.field(name).type, from_pandas=None) for name in frame})


def by_polars(scan: Scan) -> pa.Table:
    return scan.to_polars().collect().to_arrow().cast(as_cast(scan.schema))


def as_cast(schema: pa.Schema) -> pa.Schema:
    """Return the schema without NOT NULL within nulls, to which Arrow casts nothing."""
    return pa.schema([field.with_type(loose(field.type)) for field in schema])


def loose(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_struct(kind):
        return kind
    return pa.struct([pa.field(field.name, loose(field.type)) for field in kind])


def by_duckdb(scan: Scan) -> pa.Table:
    return scan.to_duckdb("t").sql("select * from t").to_arrow_table().cast(as_cast(scan.schema))


def by_stream(scan: Scan) -> pa.Table:
    return pa.table(scan)


LIBRARIES: Final[dict[str, Callable[[Scan], pa.Table]]] = {
    "pandas": by_pandas,
    "polars": by_polars,
    "duckdb": by_duckdb,
    "an Arrow stream": by_stream,
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_value_is_the_same_or_refused(case: Values, library: str) -> None:
    scan = scanned(case)
    reason = case.refused_by.get(library)
    if reason is not None:
        with pytest.raises((tidelake.TidelakeError, duckdb.Error), match=reason):
            LIBRARIES[library](scan)
        return
    assert plain(LIBRARIES[library](scan)) == plain(scan.to_arrow())


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_empty_table_has_its_columns(library: str) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", [DataField(0, "n", parse_type("INT")), DataField(0, "x", parse_type("STRING"))]
    )
    found = LIBRARIES[library](table.scan())
    assert (found.num_rows, found.schema.names) == (0, ["n", "x"])
    assert pl.DataFrame(table).shape == (0, 2)
    assert isinstance(table.scan().to_pandas(types_mapper=pd.ArrowDtype), pd.DataFrame)
