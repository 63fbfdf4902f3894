"""ORC files between Arrow and Java."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from tests.storage.files.formats.test_round_trips import read, write
from tests.storage.files.samples import batch_of_columns, column_of, ticks
from tests.support.cases import GOLDEN_DATABASE, golden_expected, unpack_golden
from tests.support.expected import json_values
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.files.formats.file_format import FormatWriterSettings
from tidelake.storage.files.formats.orc import OrcFormat
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import (
    DATE,
    INT,
    STRING,
    ArrayType,
    AtomicType,
    DataField,
    Root,
    RowType,
    arrow_schema,
    timestamp,
    timestamp_ltz,
)


@pytest.mark.parametrize("name", ["types_orc", "types_nested_orc", "pk_dedup_orc"])
def test_columns_have_the_same_ids_as_in_java(name: str, tmp_path: Path) -> None:
    root = unpack_golden(f"java/{name}", tmp_path) / f"{GOLDEN_DATABASE}.db" / name
    schema = TableSchema.from_json((root / "schema/schema-0").read_bytes(), "schema-0")
    data, _ = write("orc", schema.fields, [])
    java = orc.ORCFile(str(sorted(root.glob("**/*.orc"))[0])).schema
    ours = orc.ORCFile(pa.BufferReader(data)).schema
    for f in schema.fields:
        assert ours.field(f.name).equals(java.field(f.name), check_metadata=True), f


def test_timestamps_that_java_alters_are_read_as_in_java(tmp_path: Path) -> None:
    """Before 1582 Java counts days by another calendar; the last second before 1970 moves. The file holds it so."""
    warehouse = unpack_golden("java/orc_time_quirks", tmp_path)
    (path,) = warehouse.glob("**/*.orc")
    fields = [
        DataField(0, "written", STRING),
        DataField(1, "t", timestamp(6)),
        DataField(2, "l", timestamp_ltz(6)),
        DataField(3, "d", DATE),
    ]
    table = pa.Table.from_batches(OrcFormat().read(pa.OSFile(str(path)), str(path), fields, batch_rows=5))
    expected = {row[0]: row[1:] for row in golden_expected(warehouse, "orc_time_quirks")["rows"]}
    for written, *values in zip(*(json_values(column) for column in table.columns), strict=True):
        whole = [text[:26] + ("Z" if text.endswith("Z") else "") for text in expected[written][:2]]
        assert values == [*whole, expected[written][2]], written


def test_timestamps_outside_the_nanosecond_range_are_refused_as_nanoseconds() -> None:
    fields, batch = batch_of_columns({"t": (timestamp(6), [ticks("9999-12-31", "us")])})
    data, _ = write("orc", fields, [batch])
    with pytest.raises(UnsupportedFeature, match="1677 to 2262"):
        read("orc", data, [DataField(0, "t", timestamp(9))])


def test_out_of_range_timestamps_in_nested_columns_are_refused_with_the_column() -> None:
    column = column_of(ArrayType(timestamp(3)), [[ticks("2500-01-01", "ms")]])
    fields = [DataField(0, "a", ArrayType(timestamp(3))), DataField(1, "b", INT)]
    batch = pa.RecordBatch.from_arrays([column, pa.array([1], pa.int32())], schema=arrow_schema(fields))
    data, _ = write("orc", fields, [batch])
    with pytest.raises(UnsupportedFeature, match="within column 'a'"):
        read("orc", data, fields)
    assert read("orc", data, fields[1:])[0].to_pydict() == {"b": [1]}


def test_timestamps_before_1970_are_written_only_in_whole_milliseconds() -> None:
    fields, batch = batch_of_columns({"t": (timestamp(6), [-1_000, -62_135_596_800_000_000, None])})
    data, _ = write("orc", fields, [batch])
    assert read("orc", data, fields)[0].column("t").cast(pa.int64()).to_pylist() == [
        -1_000,
        -62_135_596_800_000_000,
        None,
    ]
    _, finer = batch_of_columns({"t": (timestamp(6), [-1])})
    with pytest.raises(BadInput, match=r"column 't': 1969-12-31 23:59:59.999999 .*parquet"):
        write("orc", fields, [finer])


def test_char_loses_blanks_at_its_end_and_texts_are_cut_to_their_length() -> None:
    char, varchar = AtomicType(Root.CHAR, length=3), AtomicType(Root.VARCHAR, length=3)
    values = ["a", "b  ", "über", None]
    fields, batch = batch_of_columns(
        {"c": (char, values), "v": (varchar, values), "a": (ArrayType(char), [values] * 4)}
    )
    data, _ = write("orc", fields, [batch])
    (back,) = read("orc", data, fields)
    assert back.column("c").to_pylist() == ["a", "b", "übe", None]
    assert back.column("v").to_pylist() == ["a", "b  ", "übe", None]
    assert back.column("a")[0].as_py() == ["a", "b", "übe", None]


def test_stripes_are_as_large_as_asked_for() -> None:
    fields, batch = batch_of_columns({"t": (STRING, [f"text {i * 7919 % 100_003}" for i in range(100_000)])})
    sizes = []
    for block in (100_000, 10_000_000):
        data, _ = write("orc", fields, [batch] * 3, FormatWriterSettings(block_size_bytes=block))
        sizes.append(orc.ORCFile(pa.BufferReader(data)).nstripes)
        assert sum(b.num_rows for b in read("orc", data, fields, 7_000)) == 300_000
    assert sizes[0] > sizes[1] == 1


def test_rows_with_out_of_range_timestamps_keep_other_columns_across_stripes_and_batches() -> None:
    row = RowType((DataField(5, "x", INT),))
    noise = np.random.default_rng(1).integers(0, 10**14, 40_000)
    fields, batch = batch_of_columns(
        {"t": (timestamp(3), noise), "i": (INT, range(40_000)), "r": (row, [{"x": i} for i in range(40_000)])}
    )
    data, _ = write("orc", fields, [batch] * 4, FormatWriterSettings(block_size_bytes=200_000))
    assert orc.ORCFile(pa.BufferReader(data)).nstripes > 1
    back = pa.Table.from_batches(read("orc", data, fields, 1_000))
    assert back.equals(pa.Table.from_batches([batch] * 4))
