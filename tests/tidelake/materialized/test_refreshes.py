"""Refreshes in this process: full or incremental, their reports, and their results."""

from __future__ import annotations

import asyncio
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.tidelake.materialized.orders import (
    LARGE,
    LARGE_QUERY,
    ORDERS,
    TOTALS,
    TOTALS_QUERY,
    materialized,
    new_lake,
    order,
    reread,
)
from tidelake.materialized.source_changes import changes_since
from tidelake.materialized.source_state import REFRESH_PROPERTY
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.model.format import CommitKind
from tidelake.storage.model.types import DataField, parse_type

KEYED = {"changelog-producer": "lookup", "bucket": "1"}


def refresh(lake: tidelake.Catalog, name: str, **arguments: object) -> tuple[str, str]:
    done = lake.refresh_table(f"shop.{name}", **arguments)  # type: ignore[arg-type]
    return done.kind.value, done.reason


def test_groups_are_refreshed_from_changes(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, **KEYED)
    materialized(lake, "totals", TOTALS_QUERY, TOTALS, "day")
    order(lake, (1, "mon", "1.25", 3), (2, "mon", None, 9), (3, "tue", "2.00", 7))
    assert refresh(lake, "totals") == ("full", "it is the first refresh")
    assert reread(lake, "totals") == [("mon", Decimal("1.25"), 2, 1), ("tue", Decimal("2.00"), 1, 1)]
    order(lake, (1, "tue", "5.00", 8), (4, "wed", "7.00", 1), deleted=((3, "tue", "2.00", 7),))
    assert refresh(lake, "totals") == ("incremental", "rows that changed: 5")
    assert reread(lake, "totals") == [
        ("mon", None, 1, 0),  # its only amount went elsewhere
        ("tue", Decimal("5.00"), 1, 1),
        ("wed", Decimal("7.00"), 1, 1),
    ]
    order(lake, deleted=((4, "wed", "7.00", 1),))
    assert refresh(lake, "totals") == ("incremental", "rows that changed: 1")
    assert [row[0] for row in reread(lake, "totals")] == ["mon", "tue"]


def test_rows_of_keys_are_updated_and_deleted(tmp_path: Path) -> None:
    lake = new_lake(tmp_path, **KEYED)
    materialized(lake, "large", LARGE_QUERY, LARGE, "number")
    order(lake, (1, "mon", None, 5), (2, "mon", None, 6), (3, "mon", None, 1), (4, "mon", None, 9))
    refresh(lake, "large")
    order(lake, (1, "tue", None, 5), (2, "mon", None, 2), (3, "mon", None, 7), deleted=((4, "mon", None, 9),))
    assert refresh(lake, "large") == ("incremental", "rows that changed: 3")  # of order 1 nothing that the query reads
    assert reread(lake, "large") == [(1, 10), (3, 14)]


def test_new_rows_of_an_append_table_are_appended(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5), (1, "mon", None, 5), (2, "mon", None, 1))
    refresh(lake, "large")
    order(lake, (1, "mon", None, 5))
    order(lake, (9, "mon", None, 8), (3, "mon", None, None))
    lake.table("shop.orders").compact(full=True)
    assert refresh(lake, "large") == ("incremental", "rows that changed: 2")
    assert reread(lake, "large") == [(1, 10), (1, 10), (1, 10), (9, 16)]
    newest = lake.table("shop.large").snapshots()[-1]
    assert newest.commit_kind is CommitKind.APPEND
    assert newest.delta_record_count == 2


def test_without_changes_there_is_no_snapshot(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    table = materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5))
    refresh(lake, "large")
    assert refresh(lake, "large") == ("none", "its source has not changed")
    assert refresh(lake, "large", when_due=True) == ("none", "its rows are younger than 1 day")
    assert len(table.snapshots()) == 1
    assert refresh(lake, "large", full=True) == ("full", "a full refresh was requested")


def test_a_refresh_is_due_after_the_freshness_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5))
    assert refresh(lake, "large", when_due=True)[0] == "full"
    now_ms = epoch_ms()
    for days, reason in ((0.9, "its rows are younger than 1 day"), (1.1, "its source has not changed")):
        monkeypatch.setattr("tidelake.materialized.refresh.epoch_ms", lambda days=days: now_ms + int(days * 86_400_000))
        assert refresh(lake, "large", when_due=True) == ("none", reason)


def test_a_commit_without_effect_on_the_result_is_recorded(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5))
    refresh(lake, "large")
    order(lake, (2, "mon", None, 1))
    assert refresh(lake, "large") == ("incremental", "rows that changed: 0")
    assert refresh(lake, "large") == ("none", "its source has not changed")


def test_a_query_without_result_rows_empties_the_table(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5))
    refresh(lake, "large")
    lake.table("shop.orders").truncate()
    assert refresh(lake, "large") == ("full", "snapshot 2 of shop.orders replaced or deleted rows")
    assert reread(lake, "large") == []


# ---------------------------------------------------------------- when it is full


def test_a_recreated_source_is_read_again(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5))
    refresh(lake, "large")
    lake.drop_table("shop.orders")
    lake.create_table("shop.orders", ORDERS)
    order(lake, (2, "mon", None, 6))
    assert refresh(lake, "large") == ("full", "shop.orders was rolled back or created again since the last refresh")
    assert reread(lake, "large") == [(2, 12)]


def test_rows_of_other_writers_are_replaced(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    table = materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5))
    refresh(lake, "large")
    with table.writer(commit_user="me") as writer:
        writer.write(pa.Table.from_pylist([{"number": 7, "twice": 7}], LARGE))
        writer.commit()
    assert refresh(lake, "large") == ("full", "'me' changed rows of shop.large in snapshot 2")
    assert reread(lake, "large") == [(1, 10)]


def test_expired_snapshots_of_the_source_are_the_reported_reason(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5))
    refresh(lake, "large")
    for number in (2, 3):
        order(lake, (number, "mon", None, 5))
    lake.table("shop.orders").expire(retain_min=1, retain_max=1, retain_ms=0)
    why = "snapshot 1 of shop.orders, which the last refresh read, has expired"
    assert refresh(lake, "large") == ("full", why)
    assert reread(lake, "large") == [(1, 10), (2, 10), (3, 10)]


def test_decoupled_changelogs_are_sufficient(tmp_path: Path) -> None:
    retained = {
        **{f"snapshot.{which}": value for which, value in (("num-retained.min", "1"), ("num-retained.max", "1"))},
        **{f"changelog.{which}": value for which, value in (("num-retained.min", "50"), ("num-retained.max", "60"))},
    }
    lake = new_lake(tmp_path, **KEYED, **retained)
    materialized(lake, "totals", TOTALS_QUERY, TOTALS, "day")
    order(lake, (1, "mon", "1.00", 5))
    refresh(lake, "totals")
    for number in (2, 3):
        order(lake, (number, "mon", "1.00", 5), (1, "tue", "9.00", number))
    lake.table("shop.orders").expire()
    assert lake.table("shop.orders").snapshots()[0].id > 2
    assert refresh(lake, "totals") == ("incremental", "rows that changed: 3")
    assert reread(lake, "totals") == [("mon", Decimal("2.00"), 2, 2), ("tue", Decimal("9.00"), 1, 1)]


@pytest.mark.parametrize(
    ("query", "schema", "key", "reason"),
    [
        (
            TOTALS_QUERY,
            TOTALS,
            (),
            "rows of groups change, and the table has no primary key by which they could be replaced",
        ),
        (
            LARGE_QUERY,
            LARGE,
            (),
            "rows of the source change, and the table has no primary key by which they could be replaced",
        ),
        ("SELECT day, id AS n FROM orders", [("day", "s"), ("n", "i")], ("day",), "not that of the source: id"),
        ("SELECT day, SUM(pieces) AS n FROM orders GROUP BY day", [("day", "s"), ("n", "i")], ("day",), "COUNT(*)"),
        (
            "SELECT day, MAX(pieces) AS n, COUNT(*) AS c FROM orders GROUP BY day",
            [("day", "s"), ("n", "i"), ("c", "i")],
            ("day",),
            "rows were deleted, and n may be a value of a deleted row",
        ),
        (
            "SELECT day, SUM(pieces) AS n, COUNT(*) AS c FROM orders GROUP BY day",
            [("day", "s"), ("n", "i"), ("c", "i")],
            ("day",),
            "without COUNT(pieces) it is unknown when n is NULL",
        ),
    ],
    ids=["groups without key", "rows without key", "another key", "no count", "a maximum", "no count of values"],
)
def test_queries_that_cannot_be_maintained_are_recomputed(
    query: str, schema: pa.Schema | list[tuple[str, str]], key: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    lake = new_lake(tmp_path, **KEYED)
    if not isinstance(schema, pa.Schema):
        types = {"s": pa.string(), "i": pa.int64()}
        schema = pa.schema([pa.field(name, types[kind], name not in key) for name, kind in schema])
    materialized(lake, "t", query, schema, *key)
    order(lake, (1, "mon", "1.00", 5))
    refresh(lake, "t")
    order(lake, (2, "tue", "1.00", 6), deleted=((1, "mon", "1.00", 5),))
    kind, why = refresh(lake, "t")
    assert (kind, reason in why) == ("full", True), why
    assert lake.table("shop.t").scan().to_arrow().num_rows == 1


def test_sums_and_extremes_without_deletes_need_no_counts(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    schema = pa.schema(
        [pa.field("day", pa.string(), nullable=False), ("n", pa.int64()), ("least", pa.int32()), ("last", pa.string())]
    )
    query = "SELECT day, SUM(pieces) AS n, MIN(pieces) AS least, MAX(day) AS last FROM orders GROUP BY day"
    materialized(lake, "t", query, schema, "day")
    order(lake, (1, "mon", None, 5), (2, "tue", None, None))
    refresh(lake, "t")
    order(lake, (3, "mon", None, 3), (4, "tue", None, None), (5, "wed", None, 1))
    assert refresh(lake, "t")[0] == "incremental"
    assert reread(lake, "t") == [("mon", 8, 3, "mon"), ("tue", None, None, "tue"), ("wed", 1, 1, "wed")]


def test_a_query_with_duplicate_keys_is_refused(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    schema = pa.schema([pa.field("day", pa.string(), nullable=False), ("n", pa.int64())])
    materialized(lake, "t", "SELECT day, id AS n FROM orders", schema, "day")
    order(lake, (1, "mon", None, 1), (2, "tue", None, 1))
    assert refresh(lake, "t")[0] == "full"
    order(lake, (3, "mon", None, 1))
    with pytest.raises(tidelake.BadInput, match="gives several rows with the key day = 'mon'"):
        refresh(lake, "t")
    assert reread(lake, "t") == [("mon", 1), ("tue", 2)]


# ---------------------------------------------------------------- commits


def test_two_concurrent_refreshes_do_not_count_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = new_lake(tmp_path, **KEYED)
    materialized(lake, "totals", TOTALS_QUERY, TOTALS, "day")
    order(lake, (1, "mon", "1.00", 1))
    refresh(lake, "totals")
    order(lake, (2, "mon", "1.00", 1))

    def and_meanwhile(*arguments: Any) -> Any:
        monkeypatch.undo()
        assert refresh(lake, "totals")[0] == "incremental"
        return changes_since(*arguments)

    monkeypatch.setattr("tidelake.materialized.refresh.changes_since", and_meanwhile)
    assert refresh(lake, "totals") == ("none", "another refresh was committed first")
    assert reread(lake, "totals") == [("mon", Decimal("2.00"), 2, 2)]


def test_a_refresh_that_crashes_before_its_commit_leaves_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = new_lake(tmp_path, **KEYED)
    materialized(lake, "totals", TOTALS_QUERY, TOTALS, "day")
    order(lake, (1, "mon", "1.00", 1))
    refresh(lake, "totals")
    order(lake, (2, "mon", "1.00", 1))

    def die(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as dying:
        dying.setattr("tidelake.writer.Writer.commit", die)
        with pytest.raises(OSError, match="the disk is full"):
            refresh(lake, "totals")
    assert refresh(lake, "totals")[0] == "incremental"
    assert reread(lake, "totals") == [("mon", Decimal("2.00"), 2, 2)]


def test_the_snapshot_stores_the_sources_of_its_rows(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    table = materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5))
    refresh(lake, "large")
    assert '"shop.orders":{"snapshot_id":1,' in table.snapshots()[-1].properties[REFRESH_PROPERTY]


# ---------------------------------------------------------------- queries of DuckDB


def test_any_duckdb_query_is_accepted_with_its_dialect(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    lake.create_database("other")
    lake.create_table("other.days", pa.schema([("day", pa.string()), ("name", pa.string())]))
    with lake.table("other.days").writer() as writer:
        writer.write(pa.Table.from_pylist([{"day": "mon", "name": "Monday"}]))
        writer.commit()
    query = "SELECT name, a.id % 4 AS half FROM orders a JOIN orders b USING (id) JOIN other.days d ON a.day = d.day"
    materialized(lake, "t", query, pa.schema([("name", pa.string()), ("half", pa.int64())]))
    order(lake, (6, "mon", None, None), (7, "tue", None, None))
    with pytest.raises(tidelake.BadInput, match="has a join: SQL dialects may interpret that in different ways"):
        lake.refresh_table("shop.t")
    assert refresh(lake, "t", dialect="duckdb") == ("full", "the query has a join")
    assert reread(lake, "t") == [("Monday", 2)]


def test_names_in_the_query_may_be_mapped_to_tables(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", LARGE_QUERY.replace("orders", "o"), LARGE)
    order(lake, (1, "mon", None, 5))
    with pytest.raises(tidelake.BadInput, match=r"shop\.o"):
        refresh(lake, "large")
    assert refresh(lake, "large", sources={"o": "shop.orders"})[0] == "full"
    assert reread(lake, "large") == [(1, 10)]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT content AS t FROM read_text('/etc/hostname')", "file system operations are disabled"),
        ("SELECT 1 / 'x' AS t FROM orders", "can't be run by DuckDB: Conversion Error"),
        ("SELECT pieces AS other FROM orders", "gives the columns other; the table has t"),
        ("DELETE FROM orders", "must be one query"),
    ],
)
def test_an_error_of_duckdb_is_reported_with_its_message(query: str, reason: str, tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "t", query, pa.schema([("t", pa.string())]))
    order(lake, (1, "mon", None, 5))
    with pytest.raises(tidelake.BadInput, match=reason):
        lake.refresh_table("shop.t", dialect="duckdb")
    assert lake.table("shop.t").snapshots() == []


def test_values_of_every_type_are_unchanged(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    columns = {
        "BOOLEAN": pa.array([True, None]),
        "TINYINT": pa.array([-128, None], pa.int8()),
        "FLOAT": pa.array([0.1, float("nan")], pa.float32()),
        "DOUBLE": pa.array([-0.0, float("inf")]),
        "DECIMAL(38, 18)": pa.array([Decimal("12345678901234567890.123456789012345678"), None]),
        "DATE": pa.array([date(1, 1, 1), date(9999, 12, 31)]),
        "TIME(3)": pa.array([1, 86_399_999], pa.time32("ms")),
        "TIMESTAMP(6)": pa.array([1, -62_135_596_800_000_000], pa.timestamp("us")),
        "TIMESTAMP(9)": pa.array([1, -1], pa.timestamp("ns")),
        "TIMESTAMP(9) WITH LOCAL TIME ZONE": pa.array([1, -1], pa.timestamp("ns", "UTC")),
        "CHAR(3)": pa.array(["a  ", ""]),
        "BYTES": pa.array([b"\x00\xff", None]),
        "ARRAY<INT>": pa.array([[1, None], None], pa.list_(pa.int32())),
        "MAP<STRING, INT>": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
        "ROW<x INT, y STRING>": pa.array(
            [{"x": 1, "y": None}, None], pa.struct([("x", pa.int32()), ("y", pa.string())])
        ),
    }
    fields = [DataField(0, f"c{number}", parse_type(text)) for number, text in enumerate(columns)]
    source = lake.create_table("shop.all", fields)
    rows = pa.table(dict(zip((field.name for field in fields), columns.values(), strict=True)))
    definition = tidelake.MaterializedDefinition('SELECT * FROM "all"', 1)
    copy = lake.create_table("shop.copy", fields, options=definition.to_options())
    for expected in ("full", "incremental"):
        with source.writer() as writer:
            writer.write(rows)
            writer.commit()
        assert refresh(lake, "copy", dialect="duckdb")[0] == expected
    assert repr(copy.scan().to_arrow().sort_by("c1")) == repr(source.scan().to_arrow().sort_by("c1"))


def test_a_value_that_does_not_fit_the_table_ends_the_refresh(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    schema = pa.schema([pa.field("day", pa.string(), nullable=False), ("n", pa.int32())])
    materialized(lake, "t", "SELECT day, SUM(pieces) AS n FROM orders GROUP BY day", schema, "day")
    order(lake, (1, "mon", None, 2**31 - 1))
    refresh(lake, "t")
    order(lake, (2, "mon", None, 1))
    for full in (False, True):
        with pytest.raises(tidelake.BadInput, match=r"column 'n' is INT, and .* does not fit"):
            refresh(lake, "t", full=full)
    assert reread(lake, "t") == [("mon", 2**31 - 1)]


def test_errors_of_a_source_are_raised_unchanged(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5))
    (file,) = Path(lake.table("shop.orders").location).glob("**/data-*")
    file.write_bytes(b"damaged")
    with pytest.raises(tidelake.CorruptFile, match=file.name):
        refresh(lake, "large")


def test_without_duckdb_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", LARGE_QUERY, LARGE)
    monkeypatch.setattr("tidelake.materialized.duckdb_sql.find_spec", lambda name: None)
    with pytest.raises(tidelake.UnsupportedFeature, match=r"pip install 'tidelake\[sql\]'"):
        refresh(lake, "large")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"materialized-table.refresh-status": "suspended"}, "is suspended"),
        ({"bucket": "-2"}, "its rows would not be visible before a compaction"),
    ],
)
def test_tables_that_cannot_be_refreshed_raise_with_the_reason(
    options: dict[str, str], reason: str, tmp_path: Path
) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", LARGE_QUERY, LARGE, "number", **options)
    with pytest.raises(tidelake.TidelakeError, match=reason):
        refresh(lake, "large")
    with pytest.raises(tidelake.BadInput, match="is not a materialized table"):
        refresh(lake, "orders")
    with pytest.raises(tidelake.BadInput, match="expected 'duckdb'"):
        refresh(lake, "large", dialect="spark")


def test_the_async_api_does_the_same(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    materialized(lake, "large", LARGE_QUERY, LARGE)
    order(lake, (1, "mon", None, 5))

    async def refreshed() -> str:
        catalog = await tidelake.aio.open_catalog(str(tmp_path / "lake"))
        return (await catalog.refresh_table("shop.large")).kind

    assert asyncio.run(refreshed()) == "full"
    assert reread(lake, "large") == [(1, 10)]
