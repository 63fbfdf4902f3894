"""Samples of each format give the rows of Paimon's own parsers, except where those fail or lose values.

`recorded/formats/README.md` says what the samples are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from tests.support.cases import recorded_bytes, recorded_folder, recorded_lines, sample_folders
from tests.support.schema_registry import schema_registry
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import DecodedBatch, FailureKind, Format, InferredTable, Target
from tidelake.ingest.formats.registry import FORMATS, open_format
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import INT, DataField, not_null, nullable

NOT_YET: Final[frozenset[str]] = frozenset()
# Formats whose records declare no types: Paimon turns nulls into the text `null`, and reformats numbers.
UNTYPED: Final = frozenset({"aws-dms-json", "json", "maxwell-json", "ogg-json"})
# Column types that hold what the sample brings, where Paimon's does not.
OTHER_TYPES: Final = {
    ("canal-json", "t"): "STRING",  # a time of 26 hours
    ("aliyun-json", "day"): "TIMESTAMP(3)",  # milliseconds since 1970, with a time of day
    ("debezium-avro", "day"): "DATE",  # of Paimon the parser says INT, and gives `2025-10-09`
    ("debezium-avro", "at_us"): "TIMESTAMP(6)",
    ("debezium-avro", "seen"): "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    ("debezium-avro", "flag"): "SMALLINT",  # a TINYINT(1) need not be 0 or 1
}
_PARCEL: Final = {
    "id": 7,
    "name": "Größe 🦊",
    "ratio": 0.1,
    "score": 1.5,
    "price": "-12.50",
    "day": date(2025, 10, 9),
    "at_us": datetime(2025, 10, 9, 8, 53, 24, 123456),
    "seen": datetime(2025, 10, 9, 8, 53, 24, 123456, UTC),
    "raw": b"\0bytes",
    "ok": True,
    "tags": ["a", None],
}
# Samples that Paimon refuses, and their rows.
READ_ALL_THE_SAME: Final[Mapping[tuple[str, str], Sequence[tuple[Any, ...]]]] = {
    ("maxwell-json", "bootstrap-insert"): [("+I", {"id": "4"})],
    # Both images of an update that moves a row; Paimon forgets the old one.
    ("aliyun-json", "both images in one message"): [
        ("-D", {"id": 1, "name": "a", "amount": 21.0, "day": None}),
        ("+I", {"id": 2, "name": "a", "amount": 21.0, "day": None}),
    ],
    ("debezium-avro", "update without before image"): [("+U", _PARCEL)],
    ("debezium-avro", "decimal as bytes (decimal.handling.mode=precise)"): [
        ("+I", {"id": 1, "price": Decimal("-12.50")})
    ],
    ("debezium-bson", "update without before image"): [("+U", {"_id": "68e7764f1f2b3c4d5e6f7081", "n": "8"})],
    # The record does not contain the old row. Paimon uses the new one instead.
    ("aws-dms-json", "update without before image"): [("+U", {"id": "2", "name": "Noël", "pay": "3000", "left": None})],
}


ANY_TABLE: Final = Target(
    "depot.any", TableSchema(0, (DataField(0, "id", not_null(INT)),), 0, (), ("id",), {"bucket": "1"})
)


@dataclass(frozen=True)
class Sample:
    format: str
    record: Mapping[str, Any]
    expected: Mapping[str, Any]

    @property
    def id(self) -> str:
        return f"{self.format}: {self.expected['what']}"

    @property
    def name(self) -> tuple[str, str]:
        return self.format, self.expected["what"]

    @property
    def batch(self) -> RawBatch:
        return RawBatch(
            self.record["topic"],
            self.record["partition"],
            np.array([self.record["offset"]], np.int64),
            np.array([self.record["timestamp_ms"]], np.int64),
            pa.array([recorded_bytes(self.record, "key")], pa.binary()),
            pa.array([recorded_bytes(self.record, "value")], pa.binary()),
            self.record["offset"] + 1,
        )


def _samples(folder: Path) -> Iterator[Sample]:
    expected = {case["offset"]: case for case in json.loads((folder / "expected.json").read_text(encoding="utf-8"))}
    for record in recorded_lines(folder / "messages.jsonl"):
        yield Sample(folder.name, record, expected[record["offset"]])


FOLDERS: Final = sample_folders()
SAMPLES: Final = [sample for folder in FOLDERS if folder.name not in NOT_YET for sample in _samples(folder)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_format_with_samples_is_decoded_or_listed_as_missing(folder: Path) -> None:
    assert (folder.name in FORMATS) != (folder.name in NOT_YET)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_a_sample_gives_the_rows_of_paimon(sample: Sample) -> None:
    if sample.name in READ_ALL_THE_SAME:
        inferred, decoded = _decoded(sample)
        assert [(kind, row) for kind, row in _rows(decoded)] == READ_ALL_THE_SAME[sample.name]
    elif "error" in sample.expected:
        assert _failure(sample)
    elif records := sample.expected.get("records"):
        inferred, decoded = _decoded(sample)
        assert not decoded.failures
        first = records[-1]
        assert inferred.primary_key == tuple(first["primary_keys"])
        types = [(name, OTHER_TYPES.get((sample.format, name), type_)) for name, type_ in first["columns"]]
        assert [(f.name, str(nullable(f.type))) for f in inferred.fields] == types
        found = _rows(decoded)
        assert [kind for kind, _ in found] == _kinds(records)
        for (_, row), record in zip(found, records, strict=True):
            expected = {name: record["row"].get(name) for name, _ in types}
            assert row.keys() == expected.keys()
            for name, type_ in types:
                assert _same(row[name], expected[name], type_, sample.format), (name, row[name], expected[name])
    else:
        with opened(sample, truncates="skip") as format_:
            decoded = format_.decoder(lambda source: ANY_TABLE).decode(sample.batch)
        assert not decoded.tables
        # DDL that changes columns is no row and no bad record: the pipeline decides what it does
        assert {failure.kind for failure in decoded.failures} <= {FailureKind.SCHEMA_CHANGE}
        assert sum(decoded.skipped.values()) + len(decoded.failures) == 1
        assert not decoded.unrouted


@contextmanager
def opened(sample: Sample, **options: str) -> Iterator[Format]:
    schemas = recorded_folder() / "formats" / sample.format / "schemas.json"
    with schema_registry(schemas if schemas.exists() else None) as registry:
        if schemas.exists():
            options["schema_registry_url"] = registry.url
        yield open_format(sample.format, options)


def _decoded(sample: Sample) -> tuple[InferredTable, DecodedBatch]:
    with opened(sample) as format_:
        return _decoded_by(format_, sample)


def _decoded_by(format_: Format, sample: Sample) -> tuple[InferredTable, DecodedBatch]:
    inferred = format_.infer_table(sample.batch, 0)
    fields = inferred.fields
    schema = TableSchema(0, fields, len(fields) - 1, (), inferred.primary_key, {"bucket": "1"})
    target = Target("depot.sample", schema, emit_update_before=True)
    names = {(record["database"], record["table"]) for record in sample.expected.get("records", ())}

    def target_of(source: Any) -> Target:
        spelled = [".".join(part for part in name if part) for name in names]
        assert not spelled or source.spellings[0] in (*spelled, sample.record["topic"])
        return target

    return inferred, format_.decoder(target_of).decode(sample.batch)


def _failure(sample: Sample) -> str:
    """The reason why the sample gives no row. Its table is that of another sample."""
    others = [other for other in SAMPLES if other.format == sample.format and other.expected.get("records")]
    inferred = open_format(sample.format, {}).infer_table(others[0].batch, 0)
    schema = TableSchema(0, inferred.fields, len(inferred.fields) - 1, (), inferred.primary_key, {"bucket": "1"})
    target = Target("depot.sample", schema, emit_update_before=True)
    decoded = open_format(sample.format, {}).decoder(lambda source: target).decode(sample.batch)
    assert not decoded.tables
    (failure,) = decoded.failures
    return failure.reason


def _rows(decoded: DecodedBatch) -> list[tuple[str, dict[str, Any]]]:
    (found,) = decoded.tables
    return [(RowKind(row.pop(KIND_COLUMN)).symbol, row) for row in found.rows.to_pylist()]


def _kinds(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of an update Paimon makes -D and +I; here that is -U and +U, unless its key changes."""
    kinds = [record["kind"] for record in records]
    for at, (one, other) in enumerate(pairwise(records)):
        if (one["kind"], other["kind"]) == ("-D", "+I") and _key(one) == _key(other):
            kinds[at : at + 2] = ["-U", "+U"]
    return kinds


def _key(record: Mapping[str, Any]) -> list[Any]:
    return [record["row"].get(name) for name in record["primary_keys"]]


def _same(value: Any, text: str | None, type_: str, format_: str) -> bool:
    if text is None or (text == "null" and format_ in UNTYPED):
        return value is None
    return bool(value == _value(text, type_)) or (type_ == "STRING" and _means(value) == _means(text))


def _value(text: str, type_: str) -> Any:
    match type_.partition("(")[0].partition("<")[0]:
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return int(text)
        case "DECIMAL":
            return Decimal(text)
        case "FLOAT" | "DOUBLE":
            return float(text)
        case "BOOLEAN":
            return {"1": True, "0": False, "true": True}[text]
        case "TIMESTAMP" if type_.endswith("LOCAL TIME ZONE"):
            return datetime.fromisoformat(text).replace(tzinfo=UTC)
        case "TIMESTAMP":
            since_1970 = timedelta(milliseconds=int(text)) if text.isdigit() else None
            return datetime.fromisoformat(text) if since_1970 is None else datetime(1970, 1, 1) + since_1970
        case "DATE":
            return date.fromisoformat(text)
        case "BINARY" | "VARBINARY" | "BYTES":
            return text.encode("latin-1")  # Canal's texts have a character a byte
        case "ARRAY" if text.startswith('["'):
            return json.loads(text)
        case "ARRAY":
            return text.strip("[]").split(",")
        case _:
            return text


def _means(text: str | None) -> Any:
    """Of an untyped value: numbers and nested values by their meaning, not by their spelling."""
    try:
        return json.loads(text or "", parse_float=Decimal, parse_int=Decimal)
    except (ValueError, InvalidOperation):
        return text


def test_a_record_without_a_row_creates_no_table() -> None:
    ddl = next(sample for sample in SAMPLES if sample.name == ("canal-json", "alter: dropped"))
    with pytest.raises(BadInput, match=r"topic sample\.canal-json, partition 0, offset 6: no table can be derived"):
        open_format("canal-json", {}).infer_table(ddl.batch, 0)
