"""Values that a record left out because they did not change."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.ingest.formats.debezium.changes import SOURCE, Record, batch_of, change, orders, rows_of
from tidelake.ingest.formats.base import FailureKind, UnavailableValues
from tidelake.ingest.formats.connect_schema import ConnectorSettings
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER
from tidelake.ingest.formats.debezium.debezium_json_decoder import DebeziumJsonDecoder
from tidelake.ingest.formats.values.unavailable_placeholders import UnavailablePlaceholders

TEXT: Final = "__debezium_unavailable_value"
IN_BASE64: Final = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
CODES: Final = [95, 95, 100, 101, 98, 101, 122, 105, 117, 109, 95, 117, 110, 97, 118, 97, 105, 108, 97, 98, 108, 101,
                95, 118, 97, 108, 117, 101]  # fmt: skip

# column type: (placeholder, a real value, what that is in the table)
SHAPES: Final[dict[str, tuple[Any, Any, Any]]] = {
    "STRING": (TEXT, "a", "a"),
    "VARCHAR(5)": (TEXT, "a", "a"),
    "BYTES": (IN_BASE64, "AAE=", b"\x00\x01"),
    "ARRAY<STRING>": ([TEXT], ["a"], ["a"]),
    "ARRAY<INT>": (CODES, [95], [95]),
    "ARRAY<BIGINT>": (CODES, [95, 95], [95, 95]),
    "ARRAY<BYTES>": ([IN_BASE64], ["AAE="], [b"\x00\x01"]),
    "MAP<STRING, STRING>": ({TEXT: TEXT}, {"k": TEXT}, [("k", TEXT)]),
    "DECIMAL(10, 2)": (TEXT, "1.5", None),
    "ROW<a INT>": (TEXT, {"a": 1}, {"a": 1}),
}


def _unchanged(records: list[Record], *types: str, **settings: str) -> UnavailableValues | None:
    target = orders({"id": "INT", **{f"v{i}": text for i, text in enumerate(types)}})
    decoder = DebeziumJsonDecoder(lambda source: target, ConnectorSettings(**settings))
    decoded = decoder.decode(batch_of(records))
    assert decoded.failures == ()
    return decoded.tables[0].unavailable


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("column_type", SHAPES)
def test_a_placeholder_is_recognised_in_the_shape_of_its_column(column_type: str) -> None:
    placeholder, value, held = SHAPES[column_type]
    target = orders({"id": "INT", "v": column_type})
    records = [change("u", None, {"id": i, "v": v}) for i, v in enumerate([value, placeholder, None, placeholder])]
    decoded = DebeziumJsonDecoder(lambda source: target).decode(batch_of(records))
    assert decoded.failures == ()
    unavailable = decoded.tables[0].unavailable
    assert unavailable is not None
    assert unavailable.rows.tolist() == [1, 3]
    assert unavailable.columns["v"].tolist() == [True, True]
    assert unavailable.keys.to_pydict() == {"id": [1, 3]}
    cells = [row[2] for row in rows_of(decoded)]
    assert cells[1:] == [None, None, None]
    if held is not None:
        assert cells[0] == held


def test_uuids_in_an_array_have_their_own_placeholder() -> None:
    by_java = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"  # UUID.nameUUIDFromBytes of the text
    assert UnavailablePlaceholders(TEXT).is_placeholder(f'["{by_java}"]'.encode())


@pytest.mark.usefixtures("either_way")
def test_the_placeholder_of_hex_columns_is_the_plain_text() -> None:
    records = [change("u", None, {"id": 1, "v0": TEXT}), change("u", None, {"id": 2, "v0": "0001"})]
    unavailable = _unchanged(records, "BYTES", binary_handling_mode="hex")
    assert unavailable is not None
    assert unavailable.rows.tolist() == [0]


@pytest.mark.usefixtures("either_way")
def test_a_configured_placeholder_replaces_the_default() -> None:
    records = [change("u", None, {"id": 1, "v0": "(gone)"}), change("u", None, {"id": 2, "v0": TEXT})]
    unavailable = _unchanged(records, "STRING", unavailable_value_placeholder="(gone)")
    assert unavailable is not None
    assert unavailable.rows.tolist() == [0]


@pytest.mark.usefixtures("either_way")
def test_unavailable_values_are_stored_sparsely() -> None:
    records = [
        change("u", None, {"id": 1, "v0": "a", "v1": ["b"]}),
        change("u", None, {"id": 2, "v0": TEXT, "v1": ["b"]}),
        change("u", None, {"id": 3, "v0": "a", "v1": [TEXT]}),
        change("u", None, {"id": 4, "v0": TEXT, "v1": [TEXT]}),
    ]
    records = [r for i, r in enumerate(records) if i not in (0,)] + [change("u", None, {"id": 5, "v0": None})]
    unavailable = _unchanged(records, "STRING", "ARRAY<STRING>")
    assert unavailable is not None
    assert unavailable.rows.tolist() == [0, 1, 2]
    assert unavailable.columns["v0"].tolist() == [True, False, True]
    assert unavailable.columns["v1"].tolist() == [False, True, True]


@pytest.mark.usefixtures("either_way")
def test_a_batch_without_placeholders_has_no_unavailable_values() -> None:
    assert _unchanged([change("u", None, {"id": 1, "v0": "a"})], "STRING") is None


def test_reformatted_json_is_still_a_placeholder() -> None:
    assert UnavailablePlaceholders(TEXT).is_placeholder(json.dumps(CODES).encode())
    assert UnavailablePlaceholders(TEXT).is_placeholder(json.dumps({TEXT: TEXT}, indent=2).encode())
    assert not UnavailablePlaceholders(TEXT).is_placeholder(b'{"a": 1}')


def _moved(old_key: bytes, **row: Any) -> Record:
    return change("c", after=row, headers=((OLD_KEY_HEADER, old_key),))


@pytest.mark.usefixtures("either_way")
def test_values_of_a_moved_row_are_looked_up_under_its_old_key() -> None:
    records = [
        change("u", None, {"id": 7, "v0": TEXT}),
        change("d", {"id": 1}, headers=((NEW_KEY_HEADER, b'{"id":2}'),)),
        _moved(b'{"id":1}', id=2, v0=TEXT),
        _moved(b'{"schema":null,"payload":{"id":3}}', id=4, v0=TEXT),
        _moved(b'{"id":5}', id=6, v0="sent again"),
    ]
    unavailable = _unchanged(records, "STRING")
    assert unavailable is not None
    assert unavailable.rows.tolist() == [0, 2, 3]
    assert unavailable.keys == pa.record_batch({"id": pa.array([7, 1, 3], pa.int32())}, schema=unavailable.keys.schema)


@pytest.mark.usefixtures("either_way")
def test_an_old_key_of_fewer_columns_is_completed_from_the_row() -> None:
    target = orders({"id": "INT", "region": "STRING", "v": "STRING"}, primary_key=("region", "id"))
    record = change(
        "c",
        after={"id": 2, "region": "eu", "v": TEXT},
        key={"id": 2, "region": "eu"},
        headers=((OLD_KEY_HEADER, b'{"id":1}'),),
    )
    unavailable = DebeziumJsonDecoder(lambda source: target).decode(batch_of([record])).tables[0].unavailable
    assert unavailable is not None
    assert unavailable.keys.to_pylist() == [{"region": "eu", "id": 1}]


@pytest.mark.usefixtures("either_way")
def test_an_old_key_that_cannot_be_read_fails_only_where_it_is_needed() -> None:
    target = orders({"id": "INT", "v0": "STRING"})
    records = [_moved(b"Struct{id=1}", id=2, v0=TEXT), _moved(b"Struct{id=3}", id=4, v0="whole")]
    decoded = DebeziumJsonDecoder(lambda source: target).decode(batch_of(records))
    (failure,) = decoded.failures
    assert (failure.row, failure.kind) == (0, FailureKind.BAD_RECORD)
    assert failure.reason.startswith(f"header {OLD_KEY_HEADER}, which is needed to find values that did not change: ")
    assert rows_of(decoded) == [("+I", 4, "whole")]


def test_in_a_table_without_key_nothing_can_be_looked_up() -> None:
    target = orders({"id": "INT", "v": "STRING"}, primary_key=())
    decoded = DebeziumJsonDecoder(lambda source: target).decode(batch_of([change("c", after={"id": 1, "v": TEXT})]))
    unavailable = decoded.tables[0].unavailable
    assert unavailable is not None
    assert (unavailable.keys.num_rows, unavailable.keys.num_columns) == (1, 0)


@pytest.mark.usefixtures("either_way")
def test_unavailable_cells_keep_their_rows_with_alternating_source_tables() -> None:
    target = orders({"id": "INT", "v": "STRING"})
    records = [
        change(
            "c",
            after={"id": i, "v": TEXT if i % 3 else "whole"},
            source={**SOURCE, "table": "ab"[i % 2]},
            headers=((OLD_KEY_HEADER, b'{"id":%d}' % (100 + i)),) if i % 4 == 0 else (),
        )
        for i in range(12)
    ]
    decoded = DebeziumJsonDecoder(lambda source: target).decode(batch_of(records))
    assert [row[1:] for row in rows_of(decoded)] == [(i, None if i % 3 else "whole") for i in range(12)]
    unavailable = decoded.tables[0].unavailable
    assert unavailable is not None
    assert unavailable.rows.tolist() == [1, 2, 4, 5, 7, 8, 10, 11]
    assert unavailable.keys["id"].to_pylist() == [1, 2, 104, 5, 7, 108, 10, 11]
