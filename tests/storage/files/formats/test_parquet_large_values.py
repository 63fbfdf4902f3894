"""Row groups with pages written by Tidelake are read like any others, by Arrow and with their checksums."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelake.storage.files.formats.file_format import LARGE_ROW_BYTES, FormatWriterSettings
from tidelake.storage.files.formats.parquet import ParquetFormat
from tidelake.storage.files.formats.parquet_writer import ParquetWriter
from tidelake.storage.model.types import BIGINT, BYTES, STRING, AtomicType, DataField, Root, arrow_schema, not_null

FIELDS = [
    DataField(0, "k", not_null(BIGINT)),
    DataField(1, "text", STRING),
    DataField(2, "data", not_null(BYTES)),
    DataField(3, "at", AtomicType(Root.TIMESTAMP, precision=9)),  # INT96 in the file
]
LARGE = np.random.default_rng(7).integers(32, 127, LARGE_ROW_BYTES + 4321, dtype=np.uint8).tobytes()
AT = dt.datetime(2024, 5, 6, 7, 8, 9)


def rows(first: int, texts: Sequence[str | None], data: Sequence[bytes]) -> pa.RecordBatch:
    keys = range(first, first + len(texts))
    return pa.record_batch([list(keys), list(texts), list(data), [AT] * len(texts)], schema=arrow_schema(FIELDS))


TEXT = LARGE.decode()
SMALL = rows(0, ["a", None], [b"x", b""])
BATCHES = {
    "one row": [rows(1, [TEXT], [b"x"])],
    "nulls and empty values beside it": [rows(1, [TEXT, None, "", "b"], [LARGE, b"", b"y", LARGE + LARGE])],
    "large rows one after the other": [rows(k, [TEXT + str(k)], [b"x"]) for k in range(3)],
    "a slice of a larger batch": [rows(0, ["a", TEXT, "b"], [b"x", b"y", b"z"]).slice(1, 1)],
    "large in one column after the other": [rows(1, [TEXT], [b"x"]), rows(2, [None], [LARGE])],
    "small rows behind": [rows(1, [TEXT], [b"x"]), SMALL],
}


def written(path: Path, batches: Sequence[pa.RecordBatch], compression: str) -> ParquetWriter:
    with pa.OSFile(str(path), "wb") as stream:
        settings = FormatWriterSettings(compression=compression, bounds_for=frozenset({"k", "text"}), bounds_length=17)
        writer = ParquetWriter(stream, FIELDS, settings)
        for batch in batches:
            writer.write(batch)
        bounds = writer.close()
    keys = pa.Table.from_batches(batches).column("k").to_pylist()
    assert (bounds["k"].minimum.as_py(), bounds["k"].maximum.as_py()) == (min(keys), max(keys))
    return writer


@pytest.mark.parametrize("compression", ["zstd", "none", "lz4"])
@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES)
def test_written_rows_are_read_back(batches: Sequence[pa.RecordBatch], compression: str, tmp_path: Path) -> None:
    written(tmp_path / "t.parquet", batches, compression)
    source = pa.OSFile(str(tmp_path / "t.parquet"))
    found = list(ParquetFormat().read(source, "t.parquet", FIELDS, batch_rows=100))
    assert pa.Table.from_batches(found).combine_chunks().equals(pa.Table.from_batches(batches).combine_chunks())
    arrow = pq.read_table(tmp_path / "t.parquet", page_checksum_verification=True)
    assert arrow.column("at").to_pylist() == [AT] * arrow.num_rows  # INT96
    assert arrow.column("data").to_pylist() == pa.Table.from_batches(batches).column("data").to_pylist()


@pytest.mark.parametrize("rows_before", [70_000, 2_000_000], ids=["in the row group", "in row groups of their own"])
def test_large_rows_after_many_small_ones_are_written(rows_before: int, tmp_path: Path) -> None:
    fields = FIELDS[:2]
    schema = arrow_schema(fields)
    small = pa.record_batch([np.arange(rows_before), pa.nulls(rows_before, pa.string())], schema=schema)
    many = [pa.record_batch([[rows_before + i], [TEXT]], schema=schema) for i in range(20)]
    with pa.OSFile(str(tmp_path / "t.parquet"), "wb") as stream:
        writer = ParquetWriter(stream, fields, FormatWriterSettings(bounds_for=frozenset({"k"})))
        for batch in [small, *many]:
            writer.write(batch)
        bounds = writer.close()
    assert (bounds["k"].minimum.as_py(), bounds["k"].maximum.as_py()) == (0, rows_before + 19)
    found = pq.read_table(tmp_path / "t.parquet", page_checksum_verification=True)
    assert found.column("k").equals(pa.chunked_array([pa.array(np.arange(rows_before + 20))]))
    assert found.column("text").null_count == rows_before
    assert found.column("text")[rows_before + 19].as_py() == TEXT


def test_the_footer_describes_the_pages(tmp_path: Path) -> None:
    written(tmp_path / "t.parquet", BATCHES["large rows one after the other"], "zstd")
    metadata = pq.read_metadata(tmp_path / "t.parquet")
    assert metadata.num_rows == metadata.num_row_groups == 3
    end = 4
    for number in range(3):
        group = metadata.row_group(number)
        text = group.column(1)
        assert text.total_uncompressed_size > LARGE_ROW_BYTES > text.total_compressed_size > 0
        columns = [group.column(i) for i in range(4)]
        assert group.total_byte_size == sum(column.total_uncompressed_size for column in columns)
        starts = sorted((column.dictionary_page_offset or column.data_page_offset) for column in columns)
        assert starts[0] >= end  # of the row group before
        end = text.data_page_offset + text.total_compressed_size
    assert end < (tmp_path / "t.parquet").stat().st_size
