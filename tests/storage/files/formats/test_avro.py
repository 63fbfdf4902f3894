"""Avro files: Java's schema, Java's bytes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.storage.files.formats.test_round_trips import read, write
from tests.storage.files.samples import batch_of_columns
from tests.support.cases import GOLDEN_DATABASE, unpack_golden
from tidelake.errors import CorruptFile, UnsupportedFeature
from tidelake.storage.files.formats.avro_schema import avro_schema
from tidelake.storage.files.formats.file_format import FormatWriterSettings
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import INT, AtomicType, DataField, Root, RowType, decimal, timestamp, timestamp_ltz


def schema_in(data: bytes) -> Any:
    """As its writer spelled it."""
    return json.loads(fastavro.reader(io.BytesIO(data)).metadata["avro.schema"])


@pytest.mark.parametrize("name", ["types_avro", "types_nested_pk_avro"])
def test_the_avro_schema_equals_javas(name: str, tmp_path: Path) -> None:
    root = unpack_golden(f"java/{name}", tmp_path) / f"{GOLDEN_DATABASE}.db" / name
    schema = TableSchema.from_json((root / "schema/schema-0").read_bytes(), "schema-0")
    java = schema_in(sorted(root.glob("bucket-0/*.avro"))[0].read_bytes())
    columns = {f["name"]: f for f in java["fields"]}
    ours = avro_schema(schema.fields)
    assert (ours["name"], ours["namespace"]) == (java["name"], java["namespace"])
    for f in ours["fields"]:
        assert f == columns[f["name"]]


@pytest.mark.parametrize("codec", ["none", "zstd", "snappy"])
def test_a_damaged_block_length_is_corrupt_and_allocates_no_memory(codec: str) -> None:
    fields, batch = batch_of_columns({"a": (INT, list(range(300)))})
    data = write("avro", fields, [batch], FormatWriterSettings(compression=codec))[0].to_pybytes()
    header = data.index(data[-16:]) + 16  # the sync marker ends the header, and each block
    count_bytes = 2  # of 300, as a varint
    for length in (2**20, 2**40, 2**62, -1, -(2**40)):
        varint = bytearray()
        rest = (length << 1) ^ (length >> 63)
        while rest >= 0x80:
            varint.append(rest & 0x7F | 0x80)
            rest >>= 7
        varint.append(rest)
        at = header + count_bytes
        broken = data[:at] + bytes(varint) + data[at + 2 :]
        with pytest.raises(CorruptFile, match=r"f\.avro"):
            read("avro", pa.py_buffer(broken), fields)


def test_local_timestamps_use_the_reversed_avro_names_of_java() -> None:
    fields, batch = batch_of_columns({"t": (timestamp(3), [1]), "l": (timestamp_ltz(6), [1])})
    data, _ = write("avro", fields, [batch])
    types = [f["type"][1]["logicalType"] for f in schema_in(data.to_pybytes())["fields"]]
    assert types == ["timestamp-millis", "local-timestamp-micros"]


def test_decimals_take_as_few_bytes_as_in_java() -> None:
    """BigInteger.toByteArray: 127 fits one byte, 128 needs two, -128 one."""
    numbers = [0, 127, 128, -128, -129, 10**18 - 1]
    fields, batch = batch_of_columns({"d": (decimal(18, 0), numbers)})
    data, _ = write("avro", fields, [batch])
    plain = {"type": "record", "name": "record", "fields": [{"name": "d", "type": ["null", "bytes"]}]}
    block = next(iter(fastavro.block_reader(io.BytesIO(data))))
    content = io.BytesIO(block.bytes_.getvalue())  # type: ignore[attr-defined]
    lengths = [len(fastavro.schemaless_reader(content, plain, None)["d"]) for _ in numbers]  # type: ignore[index,call-overload]
    assert lengths == [1, 1, 2, 1, 2, 8]


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(DataField(0, "größe", INT), id="a column"),
        pytest.param(DataField(0, "1st", INT), id="a digit first"),
        pytest.param(DataField(0, "r", RowType((DataField(1, "a-b", INT),))), id="a part of a row"),
    ],
)
def test_names_invalid_in_avro_are_refused(field: DataField) -> None:
    with pytest.raises(UnsupportedFeature, match=r"column name .* in Avro files"):
        avro_schema([field])


@pytest.mark.parametrize("kind", [timestamp(7), AtomicType(Root.TIME, precision=6), AtomicType(Root.VARIANT)], ids=str)
def test_types_that_java_does_not_write_to_avro_are_refused(kind: AtomicType) -> None:
    with pytest.raises(UnsupportedFeature, match=r"in Avro files: column 'c' .*parquet"):
        avro_schema([DataField(0, "c", kind)])


def test_the_avro_codec_option_wins_over_that_of_the_table() -> None:
    fields, batch = batch_of_columns({"a": (INT, [1])})
    data, _ = write("avro", fields, [batch], FormatWriterSettings(compression="lz4", options={"avro.codec": "deflate"}))
    assert fastavro.reader(io.BytesIO(data)).codec == "deflate"


def test_a_broken_block_is_reported_with_its_offset() -> None:
    fields, batch = batch_of_columns({"a": (INT, range(50_000))})
    data = bytearray(write("avro", fields, [batch], FormatWriterSettings(compression="null"))[0])
    data[len(data) // 2 : len(data) // 2 + 100] = b"\xff" * 100
    with pytest.raises(CorruptFile) as error:
        read("avro", pa.py_buffer(bytes(data)), fields)
    assert error.value.offset is not None
    assert error.value.offset >= len(data) // 2 - 64_000


def test_unwanted_columns_are_not_converted() -> None:
    fields, batch = batch_of_columns({"a": (INT, [1, 2]), "t": (timestamp(6), [None, 5])})
    data, _ = write("avro", fields, [batch])
    assert read("avro", data, fields[:1])[0].to_pydict() == {"a": [1, 2]}
