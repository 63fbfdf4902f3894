"""The format of a record is recognized by its members, its frame or its writer's schema."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.support.cases import recorded_bytes, recorded_lines, recorded_topics, recording, sample_folders
from tests.support.schema_registry import schema_registry
from tidelake.errors import RegistryUnavailable
from tidelake.ingest.formats.recognition import Recognition, Recognizer

ROW = {"id": 1, "name": "Ada"}
SOURCE = {"connector": "mysql", "db": "shop", "table": "orders"}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(ROW, Recognition("json"), id="a row"),
        pytest.param({}, Recognition("json"), id="an empty row"),
        pytest.param({"naïve": "ü", "id": None}, Recognition("json"), id="a row with nulls and unicode"),
        pytest.param({"op": "c", "source": SOURCE, "after": ROW}, Recognition("debezium-json"), id="an envelope"),
        pytest.param(
            {"schema": {"type": "struct"}, "payload": {"op": "c", "source": SOURCE, "after": ROW}},
            Recognition("debezium-json"),
            id="an envelope with a schema",
        ),
        pytest.param(
            {"schema": None, "payload": {"op": "c", "source": {"connector": "mongodb"}, "after": "{}"}},
            Recognition("debezium-bson"),
            id="an envelope of MongoDB",
        ),
        pytest.param({**ROW, "__deleted": "false"}, Recognition("debezium-flattened-json"), id="a flattened row"),
        pytest.param(
            {"schema": {"type": "struct"}, "payload": ROW},
            Recognition("debezium-flattened-json"),
            id="a row with a schema",
        ),
        pytest.param(
            {"status": "END", "id": "7", "event_count": 1, "data_collections": [], "ts_ms": 1},
            Recognition(is_control=True),
            id="a transaction marker",
        ),
        pytest.param({"status": "paid", "id": 7}, Recognition("json"), id="a row with a status and an id"),
        pytest.param(
            {"schema": {}, "payload": {"source": SOURCE, "databaseName": "shop", "ddl": "DROP TABLE t"}},
            Recognition(is_control=True),
            id="a schema change",
        ),
        pytest.param({"ts_ms": 1}, Recognition(is_control=True), id="a heartbeat"),
        pytest.param({"schema": None, "payload": None}, Recognition(is_control=True), id="a tombstone with a schema"),
    ],
)
def test_a_json_record_is_recognized(record: object, expected: Recognition) -> None:
    assert Recognizer().recognize(json.dumps(record).encode()) == expected


@pytest.mark.parametrize("value", [b"", b"1,Ada,2", b"[1]", b'"x"', b"\xff\xfe", b"{", b"\x03\x00" + bytes(20)])
def test_other_records_are_not_recognized(value: bytes) -> None:
    assert Recognizer().recognize(value) == Recognition()


@pytest.mark.parametrize(
    "folder", [path for path in sample_folders() if path.name != "debezium-avro"], ids=lambda path: path.name
)
def test_samples_of_each_json_format_are_recognized(folder: Path) -> None:
    values = [recorded_bytes(line, "value") for line in recorded_lines(folder / "messages.jsonl")]
    found = Counter(Recognizer().recognize(value).format for value in values if value is not None)
    assert set(found) == {folder.name}


def test_the_schema_tells_the_formats_of_avro_apart() -> None:
    def schema(*fields: str) -> str:
        image = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]}
        nested = {"before": ["null", image], "after": ["null", "Row"]}
        types = [{"name": name, "type": nested.get(name, "string")} for name in fields]
        return json.dumps({"type": "record", "name": "Value", "fields": types})

    def framed(id_: int) -> bytes:
        return b"\0" + id_.to_bytes(4, "big") + b"rest"

    with schema_registry() as registry:
        registry.schemas = {
            "1": schema("before", "after", "op", "source"),
            "2": schema("id", "__deleted"),
            "3": schema("id", "name"),
            "4": schema("status", "id", "event_count", "data_collections"),
        }
        recognizer = Recognizer({"schema.registry.url": registry.url, "truncates": "skip"})
        found = [recognizer.recognize(framed(id_)) for id_ in (1, 2, 3, 4, 5)]
        by_header = recognizer.recognize(b"rest", (("__value_schema_id", framed(3)[:5]),))
    assert [one.format for one in found] == ["debezium-avro", "debezium-flattened-avro", "avro", None, None]
    assert [one.is_control for one in found] == [False, False, False, True, False]
    assert all(one.needs_registry for one in found)
    assert by_header == Recognition("avro", needs_registry=True)


def test_without_a_registry_avro_only_needs_one() -> None:
    (path, *_) = recorded_topics("pg-shop", "avro").values()
    value = next(recorded_bytes(line, "value") for line in recorded_lines(path))
    assert value is not None
    assert Recognizer().recognize(value) == Recognition(needs_registry=True)
    with schema_registry(recording("pg-shop", "avro") / "schemas.json") as registry:
        found = Recognizer({"schema_registry_url": registry.url}).recognize(value)
        registry.status, registry.failing = 401, 1
        with pytest.raises(RegistryUnavailable, match="basic_auth_user_info"):
            Recognizer({"schema_registry_url": registry.url}).recognize(value)
    assert found == Recognition("debezium-avro", needs_registry=True)
