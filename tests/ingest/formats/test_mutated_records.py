"""Damaged records of every format give rows, a failure, or a skip count. They never raise another error and are never
lost silently.

`make test-long` decodes more than 100,000 of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.ingest.formats.debezium.changes import Record, batch_of, orders
from tests.ingest.formats.debezium.test_cloud_events import cloud_event
from tests.ingest.formats.envelopes.histories import RENDERED, SCHEMA, Change, debezium, plain_json
from tests.support.cases import recorded_bytes, recorded_lines, recording
from tests.support.change_replay import recorded_batches, target_of
from tests.support.recorded_truth import RECORDED_TABLES
from tests.support.schema_registry import schema_registry
from tidelake.errors import RegistryUnavailable
from tidelake.ingest.formats.base import DecodedBatch, Decoder, Target
from tidelake.ingest.formats.registry import FORMATS, open_format
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.schema.table_schema import TableSchema

BATCH_RECORDS: Final = 200
_ROW: Final[dict[str, Any]] = {
    "note": "a 🦊",
    "price": "12.50",
    "qty": 7,
    "ratio": 0.5,
    "flag": True,
    "at": None,
    "day": None,
}
_HISTORY: Final = [
    change
    for number in range(30)
    for row in [{"id": number, **_ROW, "data": b"\xff\0"}]
    for change in (Change(None, row), Change(row, {**row, "note": None}), Change(row, None))
]
# What a damaged text is likely to trip over.
_FRAGMENTS: Final = (
    *(b"null", b"{}", b"[]", b'""', b"-0", b"1e999999999", b"9" * 40, b"NaN", b"\xff\xfe", b'"\\ud800"', b"{" * 300),
    *(
        b"[" * 300,
        b'"schema":',
        b'"op":"t"',
        b'"type":"QUERY"',
        b"\0",
        b"true",
        b'{"$numberLong":"x"}',
        b"\xe2\x80\xa8",
    ),
)


@dataclass(frozen=True)
class Material:
    """records: good ones. schemas: those of a registry."""

    format: str
    records: Sequence[Record]
    target: Target
    options: dict[str, Any]
    schemas: Path | None = None

    @contextmanager
    def options_with_registry(self) -> Iterator[dict[str, Any]]:
        with schema_registry(self.schemas) as registry:
            of_registry = {} if self.schemas is None else {"schema_registry_url": registry.url}
            yield {**self.options, **of_registry}


@cache
def _samples(name: str) -> tuple[list[Record], Path | None]:
    folder = recording("formats") / name
    if not folder.is_dir():
        return [], None
    lines = recorded_lines(folder / "messages.jsonl")
    schemas = folder / "schemas.json"
    found = [Record(recorded_bytes(line, "key"), recorded_bytes(line, "value")) for line in lines]
    return found, schemas if schemas.exists() else None


def _target_of_samples(name: str, options: dict[str, Any], records: Sequence[Record]) -> Target:
    inferred = open_format(name, options).infer_table(batch_of(records[:1]), 0)
    schema = TableSchema(0, inferred.fields, len(inferred.fields) - 1, (), inferred.primary_key, {"bucket": "1"})
    return Target("shop.samples", schema)


def _captured(name: str) -> Iterator[Material]:
    wanted = {"debezium-json": ("json-plain", "json-schema"), "debezium-avro": ("avro",)}.get(name, ())
    for recorded in RECORDED_TABLES:
        if recorded.variant in wanted and recorded.name in ("customers", "goods", "inventory"):
            batch = next(recorded_batches(recorded.files[0]))
            records = [
                Record(batch.keys[row].as_py(), batch.values[row].as_py(), batch.headers.get(row, ()))
                for row in range(len(batch))
            ]
            options: dict[str, Any] = {**recorded.connector_settings}
            yield Material(name, records, target_of(recorded), options, recorded.schemas)


def materials(name: str) -> list[Material]:
    target = Target("shop.orders", SCHEMA)
    found = list(_captured(name))
    if name in RENDERED:
        found.append(Material(name, list(RENDERED[name](_HISTORY)), target, {}))
    if name == "debezium-json":
        found.append(Material(name, list(debezium(_HISTORY)), target, {}))
    if name == "json":
        found.append(Material(name, plain_json([c.after for c in _HISTORY if c.after is not None]), target, {}))
    if name == "csv":
        lines = [b'%d,"a, ""b""",1.50,2024-02-29' % number for number in range(50)]
        columns = {"id": "BIGINT", "note": "STRING", "price": "DECIMAL(9, 2)", "day": "DATE"}
        found.append(
            Material(name, [Record(None, line) for line in lines], orders(columns), {"columns": list(columns)})
        )
    if name == "debezium-flattened-json":
        rows = [{**(c.after or c.before or {}), "__deleted": str(c.after is None).lower()} for c in _HISTORY]
        records = plain_json(rows)
        found.append(Material(name, records, target, {}))
    if name == "debezium-flattened-avro":
        schemas = Path(__file__).parent / "debezium" / "flattened_schemas.json"
        marks = [b"\0", b"\2" + b"\x08true"]  # __deleted: null, or "true"
        values = [b"\0\0\0\0\1" + bytes([2 * number, 2, 4]) + b"ab" + marks[number % 2] for number in range(60)]
        records = [Record(None, value) for value in values]
        found.append(Material(name, records, orders({"id": "BIGINT", "note": "STRING"}), {}, schemas))
    if name == "debezium-cloudevents":
        records = [Record(record.key, cloud_event(record.value or b"null")) for record in debezium(_HISTORY)]
        found.append(Material(name, records, target, {}))
    if name == "debezium-bson":
        updates = [
            {"updatedFields": json.dumps({"note": "ü🦊", "qty": number}), "removedFields": ["flag"]}
            for number in range(30)
        ]
        changes = [{"op": "u", "updateDescription": update, "source": {"connector": "mongodb"}} for update in updates]
        records = [Record(b'{"id":"7"}', json.dumps(value).encode()) for value in changes]
        columns = {"_id": "STRING", "note": "STRING", "qty": "INT", "flag": "STRING"}
        found.append(Material(name, records, orders(columns, ("_id",)), {}))
    if name == "debezium-outbox":
        headers = (("id", b"4d47e190"), ("eventType", b"OrderCreated"))
        payloads = [json.dumps({"id": number, "note": "ü🦊"}).encode() for number in range(30)]
        values = [*payloads, *(json.dumps(payload.decode()).encode() for payload in payloads)]
        events = [Record(b'"1"', value, headers) for value in values] + [
            Record(b'"1"', value) for value in payloads[:3]
        ]
        columns = {"id": "STRING", "aggregateid": "STRING", "type": "STRING", "payload": "STRING"}
        found.append(Material(name, events, orders(columns, ("id",)), {}))
    if name == "protobuf":
        schemas = Path(__file__).parent / "protobuf" / "schemas.json"
        values = [b"\0\0\0\0\1\0\x08" + bytes([number]) + b"\x12\x02ab\x1a\x02\x01\x02" for number in range(60)]
        columns = {"id": "BIGINT", "note": "STRING", "n": "ARRAY<INT>"}
        found.append(Material(name, [Record(None, value) for value in values], orders(columns), {}, schemas))
    if name == "avro":
        fields = [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]
        schema = json.dumps({"type": "record", "name": "Row", "fields": fields})
        records = [Record(None, bytes([2 * number, 2, 4]) + b"ab") for number in range(60)]
        found.append(Material(name, records, orders({"id": "BIGINT", "note": "STRING"}), {"schema": schema}))
    samples, sample_schemas = _samples(name)
    if samples and name not in ("json",):
        with schema_registry(sample_schemas) as registry:
            options: dict[str, Any] = {} if sample_schemas is None else {"schema_registry_url": registry.url}
            found.append(Material(name, samples, _target_of_samples(name, options, samples), {}, sample_schemas))
    return found


def damaged(record: Record, others: Sequence[Record], chance: random.Random) -> Record:
    """The record as it is, or changed in its value, its key or both."""
    value, key = record.value, record.key
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
        if key is not None and chance.random() < 0.2:
            key = _damaged_bytes(key, others[chance.randrange(len(others))].key or b"", chance)
        elif value is not None:
            value = _damaged_bytes(value, others[chance.randrange(len(others))].value or b"", chance)
    if chance.random() < 0.01:
        value = None
    return Record(key, value, record.headers)


def _damaged_bytes(data: bytes, other: bytes, chance: random.Random) -> bytes:
    at, end = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
    ways: list[Callable[[], bytes]] = [
        lambda: data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :],
        lambda: data[:at] + chance.choice(_FRAGMENTS) + data[at:],
        lambda: data[:at] + chance.choice(_FRAGMENTS) + data[at + chance.randrange(12) :],
        lambda: data[:at] + data[at + chance.randrange(8) :],
        lambda: data[:at],
        lambda: data[:at] + data[end:],
        lambda: data[:at] + other[chance.randrange(len(other) + 1) :],
        lambda: data[:end] + data[at:],
    ]
    return chance.choice(ways)()


def check_conserved(batch: RawBatch, decoded: DecodedBatch) -> None:
    """Every record is rows of one table, a failure, or skipped; and exactly one of these."""
    with_rows = [np.unique(part.offsets) for part in decoded.tables]
    failed = [failure.offset for failure in decoded.failures]
    all_ = np.concatenate([*with_rows, np.array(failed, np.int64)])
    assert len(np.unique(all_)) == len(all_), "a record that is two things"
    assert len(all_) + sum(decoded.skipped.values()) == len(batch)
    for part in decoded.tables:
        part.rows.validate(full=True)
    assert all(failure.reason for failure in decoded.failures)


def _decoder(name: str, options: dict[str, Any], target: Target) -> Decoder:
    return open_format(name, options).decoder(lambda source: target)


def _run(name: str, records: int, seed: int) -> int:
    """How many records were decoded."""
    chance = random.Random(seed)
    found = materials(name)
    done = 0
    for material in found:
        with material.options_with_registry() as options:
            targets: list[Any] = [
                material.target,
                Target(
                    material.target.name, material.target.schema, emit_update_before=True, is_ordered_by_columns=True
                ),
            ]
            decoders = [_decoder(name, options, target) for target in targets]
            for number in range(-(-records // len(found) // BATCH_RECORDS)):
                drawn = [
                    damaged(chance.choice(material.records), material.records, chance) for _ in range(BATCH_RECORDS)
                ]
                batch = batch_of(drawn, number * BATCH_RECORDS)
                check_conserved(batch, decoders[number % 2].decode(batch))
                done += len(batch)
    return done


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_records_give_rows_or_failures(name: str) -> None:
    assert _run(name, 400, seed=14) >= 400


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("name", FORMATS)
def test_many_damaged_records_give_rows_or_failures(name: str) -> None:
    assert _run(name, 12_000, seed=41) >= 12_000


def test_the_long_run_is_of_100_000_records_and_more() -> None:
    assert len(FORMATS) * 12_000 >= 100_000


def test_a_registry_that_becomes_unavailable_stops_with_a_clear_error() -> None:
    (material, *_) = materials("debezium-avro")
    with material.options_with_registry() as options:
        url = options["schema_registry_url"]
    given = {**material.options, "schema_registry_url": url, "schema_registry_timeout_s": "0.2"}
    decoder = open_format("debezium-avro", given).decoder(lambda source: material.target)
    with pytest.raises(RegistryUnavailable):
        decoder.decode(batch_of(material.records[:10]))
