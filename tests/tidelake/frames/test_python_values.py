"""Values of dicts and of pandas' object columns are written exactly, or refused, as `docs/writing-tables.md` says."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tidelake
from tests.tidelake.test_writing_page import NAMES, VALUES, is_same
from tidelake import BadInput, Catalog, Table
from tidelake.storage.model.types import DataField, parse_type

NOON: Final = datetime(2026, 5, 1, 12)
NAN: Final = float("nan")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    return catalog


def table_of(catalog: Catalog, kind: str) -> Table:
    return catalog.create_table("shop.t", [DataField(0, "v", parse_type(kind))])


def read_back(table: Table) -> list[Any]:
    found: list[Any] = table.scan().to_arrow()["v"].to_pylist()
    return found


def dicts(values: list[Any]) -> list[dict[str, Any]]:
    return [{"v": value} for value in values]


def frame(values: list[Any]) -> pd.DataFrame:
    series = pd.Series([None] * len(values), dtype=object)
    for at, value in enumerate(values):
        series.iat[at] = value
    return pd.DataFrame({"v": series})


GIVEN: Final = [
    pytest.param(dicts, id="in dicts"),
    pytest.param(frame, id="in objects of pandas"),
]


@pytest.mark.parametrize(
    ("given", "spelled", "wrapped", "unwrapped"),
    [
        pytest.param(dicts, "{}", lambda v: v, lambda v: v, id="in dicts"),
        pytest.param(dicts, "MAP<STRING, {}>", lambda v: {"k": v}, lambda v: v[0][1], id="in a MAP in dicts"),
        pytest.param(dicts, "ARRAY<ROW<f {}>>", lambda v: [{"f": v}], lambda v: v[0]["f"], id="in an ARRAY of ROWs"),
        pytest.param(frame, "ROW<f {}>", lambda v: {"f": v}, lambda v: v["f"], id="in a ROW in objects of pandas"),
    ],
)
@pytest.mark.parametrize(("kind", "text", "is_taken"), VALUES)
def test_values_are_accepted_and_refused_as_documented(
    kind: str, text: str, is_taken: bool, spelled: str, wrapped: Any, unwrapped: Any, given: Any, catalog: Catalog
) -> None:
    value = eval(text, NAMES)
    table = table_of(catalog, spelled.format(kind))
    if not is_taken:
        with pytest.raises(BadInput, match=r"column ['\"]v"):
            table.append(given([wrapped(value)]))
        assert table.snapshots() == []
        return
    table.append(given([wrapped(value)]))
    (found,) = read_back(table)
    assert is_same(unwrapped(found), value), (found, value)


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize(
    ("kind", "values", "found"),
    [
        pytest.param("TIMESTAMP(6)", [date(2026, 5, 1), NOON], [datetime(2026, 5, 1), NOON], id="a date and a time"),
        pytest.param("DECIMAL(10, 2)", [1, Decimal("0.5")], [Decimal(1), Decimal("0.5")], id="an int and a decimal"),
        pytest.param("DECIMAL(38, 0)", [2**70, None], [Decimal(2**70), None], id="a large int"),
        pytest.param("INT", [pd.NA, 1], [None, 1], id="pandas' NA"),
        pytest.param("TIMESTAMP(6)", [pd.NaT, NOON], [None, NOON], id="pandas' NaT"),
        pytest.param("ARRAY<INT>", [None, [], [1, None]], [None, [], [1, None]], id="lists"),
        pytest.param("ARRAY<DOUBLE>", [np.array([0.1, 2]), [3]], [[0.1, 2], [3]], id="an array of NumPy and a list"),
        pytest.param("ARRAY<ARRAY<INT>>", [np.array([[1, 2], [3, 4]])], [[[1, 2], [3, 4]]], id="a matrix of NumPy"),
        pytest.param("MAP<INT, INT>", [{1: 2}, {}, None, [(3, 4)]], [[(1, 2)], [], None, [(3, 4)]], id="maps"),
        pytest.param("ROW<a INT, b INT>", [{"b": 1}, (1, 2)], [{"a": None, "b": 1}, {"a": 1, "b": 2}], id="rows"),
        pytest.param("STRING", [UUID(int=1)], ["00000000-0000-0000-0000-000000000001"], id="a UUID as text"),
        pytest.param("BYTES", [UUID(int=1)], [UUID(int=1).bytes], id="a UUID as bytes"),
        pytest.param("ARRAY<STRING>", [[UUID(int=1)]], [[str(UUID(int=1))]], id="UUIDs in a list"),
        pytest.param("ARRAY<INT>", [[pa.scalar(5)], pa.array([6])], [[5], [6]], id="scalars and arrays of Arrow"),
    ],
)  # fmt: skip
def test_values_of_several_python_types_are_written(
    kind: str, values: list[Any], found: list[Any], given: Any, catalog: Catalog
) -> None:
    table = table_of(catalog, kind)
    table.append(given(values))
    assert read_back(table) == found


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize(
    ("kind", "values", "reason"),
    [
        pytest.param("TIMESTAMP(6)", [NOON, NOON.replace(tzinfo=UTC)], "some times have a time zone", id="one zone"),
        pytest.param("TIMESTAMP_LTZ(6)", [NOON.replace(tzinfo=UTC), NOON], "some times have", id="one without"),
        pytest.param("TIMESTAMP_LTZ(6)", [NOON.replace(tzinfo=UTC), date(2026, 5, 1)], "some times have", id="a date"),
        pytest.param("DATE", [date(2026, 5, 1), NOON], "would", id="a time of day for a DATE"),
        pytest.param("TIME(3)", [time(12, tzinfo=UTC)], "has a time zone", id="a time of day with a zone"),
        pytest.param("TIMESTAMP(6)", [pd.Timestamp("2026-05-01 00:00:00.000000001")], "lose data", id="nanoseconds"),
        pytest.param("TIMESTAMP(6)", [NOON, 5], "of type int", id="a number among times"),
        pytest.param("INT", [1.5, 2], "1.5", id="a fraction"),
        pytest.param("INT", [UUID(int=1)], "", id="a UUID for a number"),
        pytest.param("ARRAY<STRING>", ["ab"], "'ab' is no list", id="a text for a list"),
        pytest.param("ARRAY<STRING>", [{"a": 1}], "is no list", id="a dict for a list"),
        pytest.param("MAP<STRING, INT>", [["a"]], "neither a dict nor a list of pairs", id="a list for a map"),
        pytest.param("ROW<a INT>", [[1]], "no dict of the fields", id="a list for a row"),
        pytest.param("ROW<a INT>", [(1, 2)], "no dict of the fields", id="too many values"),
        pytest.param("ROW<a INT>", [{1: 2}], "named 1", id="a field without a name"),
        pytest.param("ROW<a INT>", [{"a": 1}, {"a": 2, "b": object()}], "'b'", id="an unknown field"),
    ],
)
def test_values_that_would_change_are_refused(
    kind: str, values: list[Any], reason: str, depth: int, given: Any, catalog: Catalog
) -> None:
    table = table_of(catalog, "ARRAY<" * depth + kind + ">" * depth)
    with pytest.raises(BadInput, match=f"column ['\"]v.*{reason}"):
        table.append(given([values] if depth else values))
    assert table.snapshots() == []


@pytest.mark.parametrize("given", GIVEN)
def test_nanoseconds_of_a_timestamp_of_pandas_are_kept(given: Any, catalog: Catalog) -> None:
    times = [pd.Timestamp("2026-05-01 00:00:00.000000001"), None, NOON]
    table = table_of(catalog, "TIMESTAMP(9)")
    table.append(given(times))
    assert table.scan().to_arrow()["v"].cast(pa.int64()).to_pylist() == [
        None if at is None else pd.Timestamp(at).as_unit("ns").value for at in times
    ]


def test_nan_is_null_in_a_column_of_pandas_but_stays_nan_within_its_values(catalog: Catalog) -> None:
    table = table_of(catalog, "ARRAY<DOUBLE>")
    table.append(frame([[0.5, NAN], NAN, np.array([NAN, NAN])]))
    (first, second, third) = read_back(table)
    assert second is None
    assert np.isnan([first[1], third[0]]).all()


@pytest.mark.parametrize("rows", [[{}], [{}, {}], [{}, {"v": 1}]])
def test_a_dict_without_keys_is_a_row(rows: list[dict[str, Any]], catalog: Catalog) -> None:
    table = table_of(catalog, "INT")
    table.append(rows)
    assert read_back(table) == [row.get("v") for row in rows]


def test_the_kind_of_a_row_is_a_whole_number(catalog: Catalog) -> None:
    table = catalog.create_table("shop.k", pa.schema([pa.field("id", pa.int64(), False)]), primary_key=["id"])
    for kind in (1.7, None, "x", 7):
        with pytest.raises(BadInput, match="_VALUE_KIND"):
            table.append([{"id": 1, "_VALUE_KIND": kind}])
    table.append([{"id": 1, "_VALUE_KIND": 0.0}])
    table.append([{"id": 1, "_VALUE_KIND": 3}])
    assert table.scan().count() == 0


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param(pd.DataFrame({"id": [1]}, index=pd.Index([2], name="id")), "column and an index named", id="both"),
        pytest.param(pd.DataFrame({"id": [1]}, index=pd.Index([2], name=5)), "column named 5", id="a number as a name"),
        pytest.param(pd.DataFrame([[1, 2]], columns=["id", "id"]), "'id' occurs 2 times", id="a name twice"),
        pytest.param(pd.DataFrame([[1]], columns=[["id"], ["a"]]), "column named", id="levels"),
        pytest.param(pd.DataFrame(index=[5, 6]), "has 2 rows, but no columns", id="no columns"),
        pytest.param(pd.DataFrame({"id": [1j]}), "Unsupported numpy type", id="complex numbers"),
        pytest.param(pd.DataFrame({"id": pd.period_range("2026", "2027", freq="Y")}), "pandas.period", id="periods"),
        pytest.param(pd.DataFrame({"id": pd.interval_range(0, 2)}), "pandas.interval", id="intervals"),
        pytest.param(pd.DataFrame({"id": pd.to_timedelta([1], unit="s")}), "duration", id="durations"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["BIGINT", "STRING", "TIMESTAMP(6)", "ROW<left BIGINT, right BIGINT>"])
def test_frames_of_pandas_that_would_change_are_refused(
    given: pd.DataFrame, reason: str, kind: str, catalog: Catalog
) -> None:
    table = catalog.create_table("shop.t", [DataField(0, "id", parse_type(kind))])
    with pytest.raises(BadInput, match=reason):
        table.append(given)


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        pytest.param("340282366920938463463374607431768211455::uhugeint", "DECIMAL", id="UHUGEINT"),
        pytest.param("['10101'::bit]", "VARCHAR", id="bits in a list"),
        pytest.param("{'at': timetz '12:00:00+02'}", "VARCHAR", id="a time with a zone in a struct"),
        pytest.param("map {1: [1::uhugeint]}", "DECIMAL", id="UHUGEINT in a list in a map"),
    ],
)
def test_types_that_duckdb_exports_with_other_values_are_refused(value: str, remedy: str, catalog: Catalog) -> None:
    relation = duckdb.sql(f"select {value} as v")
    with pytest.raises(BadInput, match=f"column 'v' of the relation .* {remedy}"):
        table_of(catalog, "STRING").append(relation)


def test_a_refused_stream_lets_its_connection_go(catalog: Catalog) -> None:
    """The error that is kept would keep the stream, and DuckDB runs one at a time."""
    connection = duckdb.connect()
    table = table_of(catalog, "INT")
    kept = []
    for values in ("'a' as v", "2.5 as v", "1 as w", "170141183460469231731687303715884105727::hugeint as v"):
        with pytest.raises(BadInput) as error:
            table.append(connection.sql(f"select {values}"))
        kept.append(error)
        assert connection.execute("select 1").fetchall() == [(1,)]


UUIDS: Final = [UUID(int=1), None, UUID("00112233-4455-6677-8899-aabbccddeeff")]

UUID_ROWS: Final = pa.table({"v": pa.array(UUIDS, pa.uuid())})


def extension(kind: pa.DataType, stored: list[Any]) -> pa.Table:
    return pa.table({"v": pa.ExtensionArray.from_storage(kind, pa.array(stored, kind.storage_type))})


@pytest.mark.parametrize(
    ("kind", "given", "found"),
    [
        pytest.param("STRING", UUID_ROWS, [str(UUIDS[0]), None, str(UUIDS[2])], id="UUIDs as texts"),
        pytest.param("STRING", UUID_ROWS.slice(2), [str(UUIDS[2])], id="a slice of UUIDs"),
        pytest.param("BYTES", UUID_ROWS.slice(2), [UUID(str(UUIDS[2])).bytes], id="UUIDs as bytes"),
        pytest.param("BOOLEAN", extension(pa.bool8(), [5, 0, None]), [True, False, None], id="bool8"),
        pytest.param("STRING", extension(pa.json_(), ["{}", None]), ["{}", None], id="json"),
    ],
)  # fmt: skip
def test_extension_types_mean_their_values(kind: str, given: pa.Table, found: list[Any], catalog: Catalog) -> None:
    table = table_of(catalog, kind)
    table.append(given)
    assert read_back(table) == found


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        pytest.param("DECIMAL(38, 0)", extension(pa.uuid(), [bytes(16)]), id="UUIDs as numbers"),
        pytest.param("STRING", extension(pa.opaque(pa.int64(), "hugeint", "DuckDB"), [5]), id="opaque as text"),
        pytest.param("BIGINT", extension(pa.opaque(pa.int64(), "hugeint", "DuckDB"), [5]), id="opaque as a number"),
    ],
)
def test_extension_types_of_other_values_are_refused(kind: str, given: pa.Table, catalog: Catalog) -> None:
    with pytest.raises(BadInput, match=r"column 'v' is .* extension"):
        table_of(catalog, kind).append(given)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(pd.DataFrame({"id": [1, 2]}, dtype="Int8"), id="nullable integers"),
        pytest.param(pd.DataFrame({"id": [1, 2]}, dtype="category"), id="categories"),
        pytest.param(pd.DataFrame({"id": pd.arrays.SparseArray([1, 2])}), id="sparse"),
        pytest.param(pd.DataFrame({"id": ["1", "2"]}, dtype="string"), id="texts"),
        pytest.param(pd.DataFrame(index=pd.RangeIndex(1, 3, name="id")), id="only an index"),
        pytest.param(pd.DataFrame(index=pd.MultiIndex.from_arrays([[1, 2], [5, 6]], names=["id", None])), id="a level"),
        pytest.param(pd.DataFrame({"id": [1, 2]}, index=pd.date_range("2026-01-01", periods=2)), id="an unnamed index"),
    ],
)  # fmt: skip
def test_frames_of_pandas_are_written(given: pd.DataFrame, catalog: Catalog) -> None:
    table = catalog.create_table("shop.t", pa.schema([("id", pa.int64())]))
    table.append(given)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
