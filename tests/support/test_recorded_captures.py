"""Captures of any name are found in a folder, and described by their own files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.cases import NotUnderstood, recording
from tests.support.change_replay import fold_recording, target_of
from tests.support.database_text import same_value
from tests.support.recorded_columns import Wire, column_type, source_type
from tests.support.recorded_truth import RecordedTable, differences, format_options_for, recorded_tables
from tidelake.ingest.formats.registry import open_format


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """A folder with one capture: pg-evolve under another name."""
    shutil.copytree(recording("pg-evolve"), tmp_path / "depot", copy_function=shutil.copyfile)
    return tmp_path


def ids(captures: Path) -> list[str]:
    return [recorded.id for recorded in recorded_tables(captures)]


def found(captures: Path, id_: str) -> RecordedTable:
    (table,) = (recorded for recorded in recorded_tables(captures) if recorded.id == id_)
    return table


def final(recorded: RecordedTable) -> pa.Table:
    target = target_of(recorded)
    with format_options_for(recorded) as options:
        decoder = open_format(recorded.format, options).decoder(lambda source: target)
        return fold_recording(recorded, decoder, target).table()


def rename_table(capture: Path, old: str, new: str) -> None:
    path = capture / "expected.json"
    truth = json.loads(path.read_text(encoding="utf-8"))
    truth["tables"] = {new if name == old else name: table for name, table in truth["tables"].items()}
    path.write_text(json.dumps(truth), encoding="utf-8")


def test_every_table_of_every_variant_is_a_case(captures: Path) -> None:
    shutil.rmtree(captures / "depot" / "avro")
    assert ids(captures) == [
        f"depot/{variant}/{table}"
        for variant in ("json-plain", "json-schema", "json-schema-numeric")
        for table in ("products", "visits")
    ]


def test_a_folder_without_database_rows_is_not_a_capture(captures: Path) -> None:
    (captures / "depot" / "expected.json").unlink()
    assert ids(captures) == []


def test_tables_of_one_name_in_two_schemas_are_separate(captures: Path) -> None:
    rename_table(captures / "depot", "public.visits", "sales.products")
    assert ids(captures)[:2] == ["depot/avro/public_products", "depot/avro/sales_products"]


def test_a_renamed_capture_without_remarks_is_recognised_as_ours(captures: Path) -> None:
    (captures / "depot" / "unrecoverable.json").unlink()
    recorded = found(captures, "depot/json-plain/products")
    assert differences(recorded, final(recorded)) == []


def test_the_remarks_of_a_capture_are_used(captures: Path) -> None:
    (captures / "depot" / "unrecoverable.json").write_text("[]")
    recorded = found(captures, "depot/json-plain/products")
    found_differences = differences(recorded, final(recorded))
    assert "id=6: brand is 'none', not None" in found_differences
    assert len(found_differences) == 75
    (captures / "depot" / "unrecoverable.json").write_text(
        json.dumps(
            {
                "cells": [
                    {"table": "products", "column": "brand", "reason": "sent as its default"},
                    {"table": "public.products", "column": "rating", "keys": [[3]], "reason": "filled"},
                    {"table": "products", "column": "weight", "keys": [3], "variants": ["avro"], "reason": "widened"},
                ]
            }
        )
    )
    recorded = found(captures, "depot/json-plain/products")
    assert differences(recorded, final(recorded)) == ["id=3: weight is 0.1, not '0.10000000149011612'"]


def test_unknown_remarks_raise(captures: Path) -> None:
    (captures / "depot" / "unrecoverable.json").write_text('[{"table": "products", "cloumn": "brand"}]')
    with pytest.raises(NotUnderstood, match="cloumn in a case; its runner knows column, "):
        _ = found(captures, "depot/avro/products").unrecoverable


def test_an_unknown_variant_raises_with_its_name(captures: Path) -> None:
    (captures / "depot" / "json-plain").rename(captures / "depot" / "protobuf")
    recorded = found(captures, "depot/protobuf/products")
    with pytest.raises(NotUnderstood, match="capture depot has a variant 'protobuf'; known are json-schema, "):
        _ = recorded.schema


def test_a_variant_with_another_name_follows_its_connector_configuration(captures: Path) -> None:
    capture = captures / "depot"
    (capture / "json-plain").rename(capture / "lean")
    settings = json.loads((capture / "connectors.json").read_text(encoding="utf-8"))
    (capture / "connectors.json").write_text(
        json.dumps({"lean": {**settings["json-plain"], "binary.handling.mode": "hex"}})
    )
    recorded = found(captures, "depot/lean/visits")
    assert recorded.connector_settings == {"binary_handling_mode": "hex"}
    assert differences(recorded, final(recorded)) == []


def test_a_table_without_records_has_no_topic(captures: Path) -> None:
    rename_table(captures / "depot", "public.visits", "public.guests")
    recorded = found(captures, "depot/json-plain/guests")
    assert recorded.files == []
    assert recorded.schema.names == ["id", "product_id", "at", "note", "extra"]
    assert len(differences(recorded, recorded.schema.empty_table())) == 50


PLAIN, TYPED = Wire(has_schema=False), Wire(has_schema=True)


@pytest.mark.parametrize(
    ("database_type", "wire", "column", "message"),
    [
        ("int", TYPED, pa.int32(), None),  # MySQL 8 prints no width
        ("int unsigned", TYPED, pa.int64(), None),
        ("bigint unsigned", TYPED, pa.decimal128(20, 0), "bigint unsigned"),
        ("bigint unsigned", Wire(True, sends_unsigned_decimals=True), pa.decimal128(20, 0), None),
        ("numeric(50,2)", TYPED, pa.string(), None),
        ("numeric(30,2)", Wire(True, sends_doubles=True), pa.float64(), None),
        ("timestamp(0) without time zone", TYPED, pa.timestamp("s"), None),
        ("timestamp(6)", TYPED, pa.timestamp("us", "UTC"), None),
        ("time without time zone", PLAIN, pa.int64(), None),
        ("time(3) without time zone", PLAIN, pa.time32("ms"), None),
        ("bit(9)", PLAIN, pa.string(), "bits(9)"),
        ("bit(9)", TYPED, pa.string(), None),
        ("smallint[]", TYPED, pa.list_(pa.int16()), None),
        ("mood", TYPED, pa.string(), None),
        ("varchar(20)", TYPED, pa.string(), None),
        ("longblob", TYPED, pa.binary(), None),
    ],
)
def test_a_column_follows_the_source_type(
    database_type: str, wire: Wire, column: pa.DataType, message: str | None
) -> None:
    assert column_type(database_type, wire) == column
    assert source_type(database_type, wire) == message


def test_arrays_are_compared_by_their_members() -> None:
    assert same_value("smallint[]", "{1,NULL}", [1, None])
    assert not same_value("smallint[]", "{1,2}", [1, 3])
