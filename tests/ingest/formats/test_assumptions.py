"""Each unit and encoding that nothing declares is named, for `plan` and for the log."""

from __future__ import annotations

import logging

import pytest

from tests.ingest.formats.debezium.changes import SOURCE, batch_of, change, orders, orders_schema
from tidelake.ingest.formats.assumptions import assumptions
from tidelake.ingest.formats.connect_schema import ConnectorSettings
from tidelake.ingest.formats.debezium.debezium_json_decoder import DebeziumJsonDecoder


@pytest.mark.parametrize(
    ("column", "connector", "options", "text"),
    [
        (
            "TIMESTAMP(6)",
            "mysql",
            {},
            "numbers count us since 1970; declare another unit in source_types: 'timestamp ms'",
        ),
        (
            "TIMESTAMP(3)",
            "oracle",
            {},
            "numbers count ms since 1970; declare another unit in source_types: 'timestamp us'",
        ),
        ("TIME(0)", "vitess", {}, "numbers count us since midnight; declare another unit in source_types: 'time ms'"),
        (
            "TIME(0)",
            None,
            {},
            "numbers count ms since midnight (us from MySQL, MariaDB, Vitess, TiCDC; ns from Cassandra)",
        ),
        ("TIME(0)", "yugabytedb", {}, "numbers are refused: it is not known in which unit the connector 'yugabytedb'"),
        ("TIME(0)", "x", {"time_precision_mode": "microseconds"}, "numbers count us since midnight; declare another"),
        ("DATE", "x", {}, "numbers are days since 1970-01-01"),
        ("BYTES", "x", {}, "texts are base64"),
        ("BYTES", "x", {"binary_handling_mode": "hex"}, "texts are hex"),
        ("DECIMAL(8, 2)", "x", {}, "texts are digits"),
        ("DECIMAL(8, 2)", "x", {"decimal_handling_mode": "precise"}, "texts are base64 of the unscaled number"),
        ("ARRAY<STRING>", "mariadb", {}, "texts are the labels of a SET"),
        ("ARRAY<STRING>", "postgresql", {}, None),
        ("STRING", "mysql", {}, None),
        ("BIGINT", "mysql", {}, None),
    ],
)
def test_what_is_assumed_about_a_column(
    column: str, connector: str | None, options: dict[str, str], text: str | None
) -> None:
    fields = orders_schema({"id": "BIGINT", "c": column}).fields
    found = assumptions(fields, (), connector, ConnectorSettings(**options))
    assert [one.column for one in found] == ([] if text is None else ["c"])
    assert text is None or found[0].text.startswith(text)


def test_nothing_is_assumed_about_a_column_whose_source_type_is_configured() -> None:
    fields = orders_schema({"id": "BIGINT", "c": "TIME(0)"}).fields
    assert assumptions(fields, {"c": "time us"}, "mysql", ConnectorSettings()) == []


def test_the_log_names_each_assumption_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    target = orders({"id": "BIGINT", "placed": "TIMESTAMP(6)"})
    decoder = DebeziumJsonDecoder(lambda source: target)
    for number in range(2):
        records = [change("c", None, {"id": number, "placed": None}), change("c", None, {"id": 7, "placed": None})]
        decoder.decode(batch_of(records))
    (text,) = [record.getMessage() for record in caplog.records if "without a schema" in record.getMessage()]
    assert "table='shop.orders' connector='postgresql' column='placed' assumed=\"numbers count us since 1970" in text


@pytest.mark.parametrize("op", ["c", "u", "d", "r"])
def test_a_record_of_mongodb_is_refused_with_the_format_that_reads_it(op: str) -> None:
    decoder = DebeziumJsonDecoder(lambda source: orders())
    source = {**SOURCE, "connector": "mongodb"}
    (failure,) = decoder.decode(batch_of([change(op, None, {"id": 1}, source=source)])).failures
    assert failure.reason == (
        "it is a record of MongoDB's connector: its images are documents in a text. Set `format: debezium-bson`"
    )
