"""Columns decoded from Avro blocks equal the values of fastavro, or decoding is refused."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final
from unittest.mock import patch

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.levels import examples
from tidelake.storage.commit.manifests import record_file
from tidelake.storage.commit.manifests.record_file import AvroRecordWriter
from tidelake.storage.model.avro.blocks import blocks_of, read_columns

SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "text", "type": "string"},
        {
            "name": "inside",
            "type": {"type": "record", "name": "i", "fields": [{"name": "octets", "type": "bytes"}]},
        },
        {"name": "maybe", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "texts", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "numbers", "type": {"type": "array", "items": ["null", "long"]}},
        {"name": "last", "type": ["null", "int"]},
    ],
}
WANTED: Final = {
    "number": pa.int64(),
    "text": pa.string(),
    "inside.octets": pa.binary(),
    "texts": pa.list_(pa.string()),
    "numbers": pa.list_(pa.int64()),
    "last": pa.int32(),
    "unknown": pa.string(),
}
LARGEST: Final = 2**63 - 1

RECORDS: Final = st.fixed_dictionaries(
    {
        "number": st.one_of(st.integers(-70, 70), st.integers(-LARGEST - 1, LARGEST)),
        "text": st.text(max_size=9),
        "inside": st.fixed_dictionaries({"octets": st.binary(max_size=200)}),
        "maybe": st.none() | st.integers(0, 1 << 41),
        "texts": st.none() | st.lists(st.text(max_size=4), max_size=4),
        "numbers": st.lists(st.none() | st.integers(-LARGEST - 1, LARGEST), max_size=5),
        "last": st.none() | st.integers(-(2**31), 2**31 - 1),
    }
)


def container(records: Sequence[dict[str, Any]], block_bytes: int, codec: str = "zstandard") -> bytes:
    with patch.object(record_file, "_SYNC_INTERVAL_BYTES", block_bytes):
        writer = AvroRecordWriter(SCHEMA, codec, 1)
        writer.write(records)
        return writer.finish()


def columns(*files: bytes) -> dict[str, pa.Array] | None:
    source = blocks_of(files)
    return None if source is None else read_columns(source, WANTED)


def reported(records: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    found = {name: [record.get(name) for record in records] for name in WANTED}
    return {**found, "inside.octets": [record["inside"]["octets"] for record in records]}


@settings(max_examples=examples(150))
@given(st.lists(RECORDS, max_size=30), st.integers(1, 600), st.sampled_from(["null", "deflate", "zstandard"]))
def test_columns_contain_the_written_values(records: list[dict[str, Any]], block_bytes: int, codec: str) -> None:
    half = len(records) // 2
    found = columns(container(records[:half], block_bytes, codec), container(records[half:], block_bytes, codec))
    assert found is not None
    assert {name: column.to_pylist() for name, column in found.items()} == reported(records)
    assert all(column.type == WANTED[name] for name, column in found.items())


@pytest.mark.parametrize("counts", [(1, 2), (2, 1), (1, 3, 2), (1, 1)], ids=str)
@pytest.mark.parametrize("name", ["last", "texts", "numbers"])
def test_blocks_of_several_lengths_stay_in_order(counts: tuple[int, ...], name: str) -> None:
    """Only the first record of each block has a value."""
    value: Any = 7 if name == "last" else [7] if name == "numbers" else ["a"]
    empty: Any = [] if name == "numbers" else None
    files, records = [], []
    for block, count in enumerate(counts):
        filled = block + value if name == "last" else value * (block + 1)
        rows = [{**RECORD, name: filled if number == 0 else empty} for number in range(count)]
        files.append(container(rows, 100_000))
        records += rows
    found = columns(*files)
    assert found is not None
    assert found[name].to_pylist() == [row[name] for row in records]


RECORD: Final = {
    "number": 1,
    "text": "a",
    "inside": {"octets": b"b"},
    "maybe": 5,
    "texts": ["c", "d"],
    "numbers": [1, None],
    "last": 3,
}


@pytest.mark.parametrize("number", [2**55 - 1, 2**55, 2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_numbers_of_eight_nine_and_ten_bytes_are_read(number: int) -> None:
    records = [RECORD, {**RECORD, "number": number, "numbers": [number]}]
    found = columns(container(records, 1))
    assert found is not None
    assert {name: column.to_pylist() for name, column in found.items()} == reported(records)


def test_a_value_of_another_type_than_wanted_is_left_to_fastavro() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "text", "type": "bytes"}]}
    file = io.BytesIO()
    fastavro.writer(file, schema, [{"text": b"a"}])
    assert columns(file.getvalue()) is None


def test_files_of_several_schemas_are_left_to_fastavro() -> None:
    shorter = {**SCHEMA, "fields": SCHEMA["fields"][:2]}
    other = AvroRecordWriter(shorter, "null", 1)
    other.write([RECORD])
    assert columns(container([RECORD], 1), other.finish()) is None


def test_types_unused_in_metadata_are_left_to_fastavro() -> None:
    file = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "number", "type": "double"}]}
    fastavro.writer(file, schema, [{"number": 0.5}])
    assert columns(file.getvalue()) is None


@settings(max_examples=examples(200))
@given(st.lists(RECORDS, min_size=1, max_size=6), st.data())
def test_damaged_blocks_never_give_other_columns_than_fastavro(records: list[dict[str, Any]], data: Any) -> None:
    """Of bytes that happen to be records again, the same ones."""
    good = container(records, 1, "null")
    at = data.draw(st.integers(len(good) - 60 * len(records), len(good) - 17).filter(lambda i: i > 0))
    bad = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    try:
        found = columns(bad)
    except Exception:  # the container itself
        return
    if found is None:
        return
    read = list(fastavro.reader(io.BytesIO(bad)))
    assert {name: column.to_pylist() for name, column in found.items()} == reported(read)  # type: ignore[arg-type]
