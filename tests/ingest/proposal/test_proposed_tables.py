"""What sampled topics would feed: names, columns and keys of tables, and why a topic feeds none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ingest.proposal.samples import Record, change, proposed, sample
from tidelake.ingest.formats.recognition import Recognizer
from tidelake.ingest.proposal.proposed_tables import recognize
from tidelake.ingest.proposal.topic_samples import TopicSample, is_internal
from tidelake.storage.catalog.identifier import Identifier

ID = {"id": 1}


@pytest.mark.parametrize(
    ("topic", "internal"),
    [
        ("__consumer_offsets", True),
        ("_schemas", True),
        ("__debezium-heartbeat.shop", True),
        ("connect-offsets", True),
        ("my_connect_configs", True),
        ("docker-connect-status", True),
        ("shop.public.orders", False),
        ("connect-orders", False),
        ("reconnect-status", False),
        ("shop._orders", False),
    ],
)
def test_topics_of_kafka_and_its_tools_are_internal(topic: str, internal: bool) -> None:
    assert is_internal(topic) is internal


@pytest.mark.parametrize(
    ("topics", "database", "expected"),
    [
        pytest.param([("a", change())], None, {"shop.orders": "shop.orders"}, id="database and table of the source"),
        pytest.param([("a", change(schema="public"))], None, {"shop.orders": "shop.public.orders"}, id="with a schema"),
        pytest.param([("a", change())], "raw", {"raw.orders": "shop.orders"}, id="a database for all"),
        pytest.param(
            [("a", change(schema="public")), ("b", change(schema="old"))],
            None,
            {"shop.public_orders": "shop.public.orders", "shop.old_orders": "shop.old.orders"},
            id="two schemas with one table",
        ),
        pytest.param(
            [("a", change(db="s1")), ("b", change(db="s2"))],
            "raw",
            {"raw.s1_orders": "s1.orders", "raw.s2_orders": "s2.orders"},
            id="two databases with one table",
        ),
        pytest.param(
            [("a", change(table="Orders")), ("b", change(table="orders"))],
            None,
            {"shop.shop_Orders": "shop.Orders", "shop.shop_orders_2": "shop.orders"},
            id="names that differ only in case",
        ),
        pytest.param(
            [("a", change(table="a.b/c $d{e}"))], None, {"shop.a_b_c_d_e_": "shop.a.b/c $d{e}"}, id="unusual characters"
        ),
        pytest.param([("a", change(table="bücher*"))], None, {"shop.bücher*": "shop.bücher[*]"}, id="a pattern"),
        pytest.param([("a", change(db="sys"))], None, {"sys_.orders": "sys.orders"}, id="a reserved database"),
    ],
)
def test_tables_are_named_after_the_source_s(
    topics: list[tuple[str, Any]], database: str | None, expected: dict[str, str]
) -> None:
    found = proposed(*(sample(topic, [(ID, record)]) for topic, record in topics), database=database)
    assert {table.name: table.match for table in found.tables} == expected
    assert all(Identifier.parse(table.name).is_plain for table in found.tables)


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("clicks", "default.clicks"),
        ("events.clicks", "events.clicks"),
        ("eu.events.clicks", "events.clicks"),
        ("eu-1_clicks", "default.eu-1_clicks"),
    ],
)
def test_a_row_without_a_source_is_named_after_its_topic(topic: str, name: str) -> None:
    (table,) = proposed(sample(topic, [(None, {"id": 1})]), format_="json").tables
    assert (table.name, table.match, table.topics) == (name, topic, [topic])


def test_shards_in_two_topics_are_one_table() -> None:
    found = proposed(sample("s1.orders", [(ID, change())]), sample("s2.orders", [(ID, change())] * 2))
    (table,) = found.tables
    assert (table.name, table.topics, table.records) == ("shop.orders", ["s1.orders", "s2.orders"], 3)


def test_a_topic_of_several_tables_has_an_entry_each() -> None:
    records = [(ID, change(table=name)) for name in ("orders", "items", "orders", "_orders_gho")]
    found = proposed(sample("shop", records))
    assert {table.name: table.records for table in found.tables} == {"shop.orders": 2, "shop.items": 1}


@pytest.mark.parametrize(
    ("record", "key", "primary_key"),
    [
        pytest.param(({"id": 1}, {"id": 1, "n": 2}), (), ("id",), id="the key names a column"),
        pytest.param(({"b": 1, "a": 2}, {"a": 2, "b": 1}), (), ("b", "a"), id="the key names two columns"),
        pytest.param(({"x": 1}, {"id": 1}), (), (), id="the key names another column"),
        pytest.param((b"7", {"id": 7, "n": 2}), (), ("id",), id="the key is the value of a number"),
        pytest.param((b"a-7", {"id": "a-7", "n": 2}), (), ("id",), id="the key is the value of a text"),
        pytest.param((b"7", {"id": 7, "n": 7}), (), (), id="the key is the value of two columns"),
        pytest.param((b"\xff", {"id": 7}), (), (), id="the key is binary"),
        pytest.param((None, {"id": 7}), (), (), id="no key"),
    ],
)
def test_the_key_of_rows_is_guessed_from_the_keys_of_records(
    record: Record, key: tuple[str, ...], primary_key: tuple[str, ...]
) -> None:
    (table,) = proposed(sample("t", [record]), format_="json").tables
    assert (table.key, table.primary_key) == (key, primary_key)


def test_a_key_that_the_records_name_is_not_written_again() -> None:
    (table,) = proposed(sample("t", [(ID, change({"id": 1, "n": None}))])).tables
    assert (table.key, table.primary_key, [*table.columns]) == (("id",), (), ["id", "n"])


def test_types_that_the_records_do_not_declare_are_those_of_all_sampled_values() -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "n": 1, "x": None, "ok": True, "t": "a", "mixed": 1, "list": [1], "big": 10**30},
        {"id": 2, "n": 1.5, "x": None, "ok": None, "t": "b", "mixed": "one", "list": [], "big": 1},
    ]
    expected = {"id": "BIGINT", "n": "DOUBLE", "ok": "BOOLEAN", "big": "DOUBLE"}
    (of_rows,) = proposed(sample("t", [(None, row) for row in rows]), format_="json").tables
    (of_changes,) = proposed(sample("t", [(ID, change(row)) for row in rows])).tables
    assert of_rows.seen_types == of_changes.seen_types == expected


def test_declared_types_are_shown_and_not_guessed() -> None:
    fields = [{"field": "id", "type": "int64"}, {"field": "at", "type": "int32", "name": "io.debezium.time.Date"}]
    row = {"type": "struct", "field": "after", "optional": True, "fields": fields}
    record = {"schema": {"type": "struct", "fields": [row]}, "payload": change({"id": 1, "at": 20_000})}
    (table,) = proposed(sample("t", [(ID, record)])).tables
    assert table.columns == {"id": "BIGINT NOT NULL", "at": "DATE"}
    assert (table.declares_types, table.seen_types) == (True, {})


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        pytest.param(
            [(None, {"status": "END", "id": "1", "event_count": 1, "data_collections": []})],
            "it has only transaction markers",
            id="transactions",
        ),
        pytest.param([(ID, None)], "it has only tombstones", id="tombstones"),
        pytest.param([(None, {"id": 1})], "its records look like json", id="rows"),
        pytest.param([(None, b"1,Ada\n")], "not a JSON object", id="no json"),
    ],
)
def test_a_topic_without_a_table_has_a_reason(records: list[Record], reason: str) -> None:
    found = proposed(sample("other", records), sample("t", [(ID, change())]))
    assert [table.topics for table in found.tables] == [["t"]]
    assert reason in found.left_out["other"]


def test_deletes_alone_show_no_columns() -> None:
    (table,) = proposed(sample("t", [(ID, change(op="d"))])).tables
    assert (table.name, table.columns, table.key) == ("shop.orders", {}, ())


def test_a_topic_without_records_is_kept_apart_and_takes_no_name_of_another() -> None:
    empty, compacted = sample("eu.shop.orders", []), TopicSample("gone", 1, has_records=True)
    found = proposed(sample("shop.orders", [(ID, change())]), empty, compacted)
    assert [table.name for table in found.tables] == ["shop.shop_orders"]
    assert {one.name: one.notes for one in found.empty} == {
        "shop.eu_shop_orders": ["it has no records yet"],
        "default.gone": ["none of its newest records is left"],
    }


@pytest.mark.parametrize(
    ("records", "format_", "note"),
    [
        pytest.param(
            [(ID, change()), (None, b"{")], "debezium-json", "a record can't be read: topic t", id="a bad record"
        ),
        pytest.param(
            [(ID, change()), (ID, change()), (None, {"id": 1})], "debezium-json", "1 look like json", id="two formats"
        ),
        pytest.param(
            [(ID, {"id": 1}), (ID, None)], "json", "the format is debezium-flattened-json", id="rows with tombstones"
        ),
        pytest.param([({"region": 1}, change())], "debezium-json", "keys also have region", id="a wider key"),
    ],
)
def test_what_a_person_should_know_is_noted(records: list[Record], format_: str, note: str) -> None:
    (table,) = proposed(sample("t", records), format_=format_).tables
    assert note in "; ".join(table.notes)


def test_rows_may_be_flattened_records_of_debezium() -> None:
    found = proposed(sample("t", [(ID, {"id": 1, "n": 2})]), format_="debezium-flattened-json")
    assert [(table.key, table.primary_key) for table in found.tables] == [(("id",), ())]


def test_the_format_of_a_topic_is_that_of_most_records() -> None:
    like = recognize(sample("t", [(ID, change()), (ID, change()), (None, b"?"), (ID, None)]), Recognizer())
    assert (like.format, dict(like.formats), like.example) == ("debezium-json", {"debezium-json": 2, None: 1}, "?")
