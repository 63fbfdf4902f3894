from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.support.cases import recorded_lines, recorded_topics
from tidelake.ingest.formats.debezium.row_changes import has_values_outside_key

MADE_UP: Final = (
    "null", '""', "0", "0.0", "-0.0", "0E-10", '"0"', '"0.00"', "false", "[]", "{}", '"AA=="', '"AAA="', '"AAAA"',
    '"1970-01-01T00:00:00Z"', '"1970-01-01T00:00:00.000000Z"', '"1970-01-01"', '"00:00:00Z"', '"00:00:00"',
    '"00000000-0000-0000-0000-000000000000"',
)  # fmt: skip
REAL: Final = (
    "1",
    '"a"',
    "true",
    "0.01",
    '"0.01"',
    "[0]",
    '"AAE="',
    '"1970-01-01T00:00:01Z"',
    '{"x":0}',
    '"null"',
    "-1",
)


@pytest.mark.parametrize("raw", MADE_UP)
def test_nulls_and_default_values_do_not_prove_a_full_image(raw: str) -> None:
    assert not has_values_outside_key([raw.encode(), b"null"])


@pytest.mark.parametrize("raw", REAL)
def test_one_real_value_proves_a_full_image(raw: str) -> None:
    assert has_values_outside_key([b"null", raw.encode()])


@pytest.mark.parametrize("variant", ["json-plain", "json-schema", "json-schema-connect", "json-schema-numeric"])
def test_recorded_deletes_are_distinguished_by_replica_identity(variant: str) -> None:
    def images(table: str) -> list[dict[str, Any]]:
        (path,) = (path for topic, path in recorded_topics("pg-shop", variant).items() if topic.endswith(table))
        values = [json.loads(line["value"]) for line in recorded_lines(path) if line["value"] is not None]
        payloads = [value.get("payload", value) for value in values]
        return [payload["before"] for payload in payloads if payload["op"] == "d"]

    def reported(table: str, *key: str) -> set[bool]:
        return {
            has_values_outside_key(json.dumps(value).encode() for name, value in image.items() if name not in key)
            for image in images(table)
        }

    assert reported("inventory", "sku") == {False}, "REPLICA IDENTITY DEFAULT"
    assert reported("customers", "id") == {True}, "REPLICA IDENTITY FULL"
    assert reported("order_items", "order_id", "line_no") == {True}
