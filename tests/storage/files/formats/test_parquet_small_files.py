"""Small Parquet files assembled by Tidelake equal those that Arrow would write."""

from __future__ import annotations

import struct
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelake.errors import BadInput
from tidelake.storage.files.formats.file_format import FormatWriterSettings
from tidelake.storage.files.formats.parquet_writer import SmallParquetFiles
from tidelake.storage.files.formats.thrift import List, Struct, parse
from tidelake.storage.model.types import DataField, arrow_schema, parse_type

_EDGES_OF_NUMBERS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64, "DATE": 32}
_FLOATS = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, -2.25]
_TEXTS = ["", "a", "b", "ab", "é" * 70, "\U0001f600", "\uffff"]
_KINDS = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BYTES", "DATE", "TIMESTAMP(3)",
    "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_a_small_file_has_the_same_rows_and_footer_as_one_by_arrow(seed: int) -> None:
    fields, rows, edges = _drawn(Random(seed))
    bounds_for = frozenset(field.name for number, field in enumerate(fields) if number % 4)
    files = SmallParquetFiles(rows, fields, FormatWriterSettings(bounds_for=bounds_for), edges)
    assert files._plain is not None
    for number, (start, stop) in enumerate(pairwise(edges.tolist())):
        ours, arrows = files.file(number), _by_arrow(files, start, stop)
        assert _footer(ours) == _footer(arrows)
        found = pq.ParquetFile(pa.BufferReader(ours), page_checksum_verification=True).read()
        expected = pq.read_table(pa.BufferReader(arrows))
        assert found.schema.equals(expected.schema, check_metadata=True)
        for name in found.column_names:  # bit by bit: NaN equals NaN
            assert _bits(found.column(name)) == _bits(expected.column(name))


def _drawn(random: Random) -> tuple[list[DataField], pa.RecordBatch, np.ndarray[Any, np.dtype[np.intp]]]:
    """Columns of any kind, with and without nulls, and files of one row and more."""
    kinds = [random.choice(_KINDS) for _ in range(random.randint(1, 20))]
    fields = [
        DataField(number, f"c{number}", parse_type(kind + random.choice(["", " NOT NULL"])))
        for number, kind in enumerate(kinds)
    ]
    edges = np.cumsum([0, *(random.randint(1, 12) for _ in range(random.randint(1, 6)))]).astype(np.intp)
    columns = []
    for field, kind, arrow in zip(fields, kinds, arrow_schema(fields), strict=True):
        share = random.choice([0, 0.3, 0.9]) if field.type.nullable else 0
        drawn = [None if random.random() < share else _value(random, kind) for _ in range(edges[-1])]
        counts = pa.int32() if pa.types.is_date(arrow.type) else pa.int64()
        is_counted = pa.types.is_temporal(arrow.type)  # days, milliseconds, …
        columns.append(pa.array(drawn, counts).cast(arrow.type) if is_counted else pa.array(drawn, arrow.type))
    return fields, pa.RecordBatch.from_arrays(columns, schema=arrow_schema(fields)), edges


def _value(random: Random, kind: str) -> object:
    if kind == "BOOLEAN":
        return random.random() < 0.5
    if kind in ("FLOAT", "DOUBLE"):
        return random.choice(_FLOATS)
    if kind in ("STRING", "BYTES"):
        text = random.choice(_TEXTS)
        return text if kind == "STRING" else text.encode() + bytes([random.randint(0, 255)])
    half = 1 << (_EDGES_OF_NUMBERS.get(kind, 63) - 1)
    return random.choice([-half, half - 1, 0, -1, random.randint(-half, half - 1)])


def test_a_changed_page_is_detected() -> None:
    fields = [DataField(0, "c", parse_type("BIGINT NOT NULL"))]
    rows = pa.RecordBatch.from_arrays([pa.array([7, 8])], schema=arrow_schema(fields))
    content = SmallParquetFiles(rows, fields, FormatWriterSettings(), np.array([0, 2])).file(0)
    damaged = content.replace(struct.pack("<q", 8), struct.pack("<q", 9), 1)
    assert damaged != content
    with pytest.raises(OSError, match=r"(?i)checksum|crc"):
        pq.ParquetFile(pa.BufferReader(damaged), page_checksum_verification=True).read()


@pytest.mark.parametrize(
    ("kind", "values", "options", "reason"),
    [
        ("INT", [1, 2, 3], {"parquet.enable.dictionary": "true"}, "a dictionary is asked for"),
        ("INT", [1, 2, 3], {"parquet.enable.dictionary#c": "true"}, "a dictionary is asked for"),
        ("INT", [1, 2, 3], {"parquet.page.size": "100"}, "pages are to be small"),
        ("INT", list(range(300)), {}, "a file has many rows"),
        ("STRING", ["x" * 1001, "", ""], {}, "a text is long"),
        ("DECIMAL(30, 2)", [1, 2, 3], {}, "a type has no plain form here"),
        ("TIMESTAMP(9)", [1, 2, 3], {}, "times are INT96"),
        ("ARRAY<INT>", [[1], [2], [3]], {}, "a column is nested"),
    ],
)
def test_arrow_writes_unsupported_files(kind: str, values: list[Any], options: dict[str, str], reason: str) -> None:
    fields = [DataField(0, "c", parse_type(kind))]
    arrow = arrow_schema(fields)
    column = pa.array(values).cast(arrow.field(0).type) if kind != "ARRAY<INT>" else pa.array(values, arrow[0].type)
    rows = pa.RecordBatch.from_arrays([column], schema=arrow)
    files = SmallParquetFiles(rows, fields, FormatWriterSettings(options=options), np.array([0, len(values)]))
    assert files._plain is None, reason
    assert pq.read_table(pa.BufferReader(files.file(0))).num_rows == len(values)


def test_a_large_file_among_small_ones_is_written_by_arrow() -> None:
    fields = [DataField(0, "c", parse_type("STRING"))]
    rows = pa.RecordBatch.from_arrays([pa.array(["x"] * 400)], schema=arrow_schema(fields))
    edges = np.array([*range(100), 400])
    files = SmallParquetFiles(rows, fields, FormatWriterSettings(), edges)
    encodings = [pq.read_metadata(pa.BufferReader(files.file(n))).row_group(0).column(0).encodings for n in (0, 99)]
    assert "RLE_DICTIONARY" not in encodings[0]
    assert "RLE_DICTIONARY" in encodings[1]


def test_a_null_in_a_not_null_column_is_refused() -> None:
    fields = [DataField(0, "c", parse_type("INT NOT NULL"))]
    rows = pa.RecordBatch.from_arrays([pa.array([1, None], pa.int32())], names=["c"])
    with pytest.raises((BadInput, pa.ArrowInvalid), match="null"):
        SmallParquetFiles(rows, fields, FormatWriterSettings(), np.array([0, 2])).file(0)


def _by_arrow(files: SmallParquetFiles, start: int, stop: int) -> bytes:
    form = {"use_dictionary": False, "column_encoding": None, "compression": "NONE", "compression_level": None}
    return files._written(start, stop, {**files._arguments, **form})


def _bits(column: pa.ChunkedArray) -> list[object]:
    kinds = {pa.float32(): "<f", pa.float64(): "<d"}
    values = (
        column.cast(pa.int64() if column.type.bit_width == 64 else pa.int32())
        if (pa.types.is_temporal(column.type))
        else column
    )
    code = kinds.get(column.type)
    return [value if code is None or value is None else struct.pack(code, value) for value in values.to_pylist()]


def _footer(content: bytes) -> object:
    """Without what depends on the sizes of page headers, in which Arrow has the bounds once more, and without
    histograms of levels.
    """
    size = int.from_bytes(content[-8:-4], "little")
    footer = parse(content[-8 - size : -8])
    (group,) = footer.get(4).items
    for number in (2, 6):
        group.remove(number)
    for chunk in group.get(1).items:
        for number in (6, 7, 9, 16):
            chunk.get(3).remove(number)
    return _shown(footer)


def _shown(value: object) -> object:
    if isinstance(value, Struct):
        return {number: (kind, _shown(of)) for number, (kind, of) in value.fields.items()}
    return [_shown(item) for item in value.items] if isinstance(value, List) else value
