"""Values written to a file of any format are read back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.storage.files.samples import (
    FORMATS,
    REFUSED,
    SAMPLES,
    WRITABLE,
    Sample,
    batch_of_columns,
    sample_id,
)
from tidelake.errors import BadInput, CorruptFile, UnsupportedFeature
from tidelake.storage.files.formats import format_named
from tidelake.storage.files.formats.file_format import FormatWriterSettings
from tidelake.storage.files.stats_collection import ColumnMinMax
from tidelake.storage.model.types import FLOAT, INT, STRING, DataField, arrow_schema, arrow_type

CODECS = {
    "parquet": ("none", "snappy", "gzip", "lz4", "zstd", "ZSTD", "brotli"),
    "orc": ("none", "snappy", "zlib", "lz4", "zstd"),
    "avro": ("none", "null", "snappy", "deflate", "bzip2", "xz", "zstd", "zstandard"),
}


def write(
    name: str,
    fields: Sequence[DataField],
    batches: Sequence[pa.RecordBatch],
    settings: FormatWriterSettings | None = None,
) -> tuple[pa.Buffer, ColumnMinMax]:
    stream = pa.BufferOutputStream()
    writer = format_named(name).open_writer(stream, fields, settings or FormatWriterSettings())
    try:
        for batch in batches:
            writer.write(batch)
        min_max = writer.close()
    except BaseException:
        writer.abort()
        raise
    return stream.getvalue(), min_max


def read(name: str, data: pa.Buffer, fields: Sequence[DataField], batch_rows: int = 1000) -> list[pa.RecordBatch]:
    return list(format_named(name).read(pa.BufferReader(data), f"f.{name}", fields, batch_rows=batch_rows))


def same_values(one: pa.Array | pa.ChunkedArray, other: pa.Array | pa.ChunkedArray) -> bool:
    """NaN is NaN, and 0.0 is not -0.0."""
    return bool(one.type == other.type and [repr(v) for v in one.to_pylist()] == [repr(v) for v in other.to_pylist()])


@pytest.mark.parametrize(("name", "sample"), WRITABLE, ids=sample_id)
def test_written_values_are_read_back(name: str, sample: Sample) -> None:
    batch = pa.RecordBatch.from_arrays([sample.column], schema=arrow_schema([sample.field]))
    data, _ = write(name, [sample.field], [batch])
    (back,) = read(name, data, [sample.field])
    assert back.schema == batch.schema
    assert same_values(back.column(0), sample.column)


@pytest.mark.parametrize(("name", "sample"), WRITABLE, ids=sample_id)
def test_a_slice_is_written_without_neighbouring_rows(name: str, sample: Sample) -> None:
    batch = pa.RecordBatch.from_arrays([sample.column], schema=arrow_schema([sample.field]))
    data, _ = write(name, [sample.field], [batch.slice(1)])
    (back,) = read(name, data, [sample.field])
    assert same_values(back.column(0), sample.column.slice(1))


@pytest.mark.parametrize(("name", "sample"), REFUSED, ids=sample_id)
def test_values_unreadable_in_java_are_refused_with_column_and_remedy(name: str, sample: Sample) -> None:
    batch = pa.RecordBatch.from_arrays([sample.column], schema=arrow_schema([sample.field]))
    with pytest.raises((UnsupportedFeature, BadInput), match=r"'column'|'名前'") as refusal:
        write(name, [sample.field], [batch])
    assert "file.format = parquet" in str(refusal.value)


@pytest.mark.parametrize("name", FORMATS)
def test_files_of_many_columns_and_batches_keep_the_order_of_both(name: str) -> None:
    writable = [s for s in SAMPLES if name not in s.refused_by and s.type.nullable]
    fields = [DataField(100 * i, f"c{i}", s.type) for i, s in enumerate(writable)]
    rows = max(len(s.values) for s in writable)
    columns = [pa.concat_arrays([s.column, pa.nulls(rows - len(s.values), arrow_type(s.type))]) for s in writable]
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(fields))
    data, _ = write(name, fields, [batch, batch.slice(2, 3), batch.slice(0, 0), batch])
    backwards = fields[::-1]
    back = pa.Table.from_batches(read(name, data, backwards, batch_rows=4))
    wanted = pa.Table.from_batches([batch, batch.slice(2, 3), batch])
    for f in fields:
        assert same_values(back.column(f.name), wanted.column(f.name)), f


@pytest.mark.parametrize("name", FORMATS)
def test_batches_have_at_most_the_rows_asked_for_and_none_is_empty(name: str) -> None:
    fields, batch = batch_of_columns({"a": (INT, list(range(2500)))})
    data, _ = write(name, fields, [batch])
    sizes = [b.num_rows for b in read(name, data, fields, batch_rows=1000)]
    assert max(sizes) <= 1000
    assert min(sizes) > 0
    assert sum(sizes) == 2500


@pytest.mark.parametrize("name", FORMATS)
def test_highly_compressed_rows_are_read_in_small_batches(name: str) -> None:
    """A dictionary of one text, or compression, hides how large they are."""
    fields, batch = batch_of_columns({"a": (STRING, ["x" * 10_000] * 2000)})
    data, _ = write(name, fields, [batch])
    source = pa.BufferReader(data)
    batches = list(format_named(name).read(source, f"f.{name}", fields, batch_rows=5000, batch_bytes=1_000_000))
    assert max(b.nbytes for b in batches) <= 1_000_000
    assert len(batches) < 40
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("name", FORMATS)
def test_a_column_missing_in_the_file_is_null(name: str) -> None:
    fields, batch = batch_of_columns({"a": (INT, [1, 2])})
    data, _ = write(name, fields, [batch])
    (back,) = read(name, data, [DataField(9, "new", STRING), *fields])
    assert back.to_pydict() == {"new": [None, None], "a": [1, 2]}


@pytest.mark.parametrize("name", FORMATS)
def test_reading_no_column_counts_the_rows(name: str) -> None:
    fields, batch = batch_of_columns({"a": (INT, list(range(7)))})
    data, _ = write(name, fields, [batch])
    assert [b.num_rows for b in read(name, data, [], batch_rows=5)] == [5, 2]


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_without_rows_is_readable(name: str) -> None:
    fields, batch = batch_of_columns({"a": (INT, []), "t": (STRING, [])})
    settings = FormatWriterSettings(bounds_for=frozenset({"a", "t"}))
    for batches in ([], [batch]):
        data, min_max = write(name, fields, batches, settings)
        assert read(name, data, fields) == []
        assert min_max == {}


@pytest.mark.parametrize(("name", "codec"), [(name, codec) for name, codecs in CODECS.items() for codec in codecs])
def test_every_codec_of_a_format_is_written_and_read(name: str, codec: str) -> None:
    fields, batch = batch_of_columns({"a": (INT, list(range(3000))), "t": (STRING, ["text"] * 3000)})
    data, _ = write(name, fields, [batch], FormatWriterSettings(compression=codec))
    assert pa.Table.from_batches(read(name, data, fields, 4000)).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("name", FORMATS)
def test_an_unsupported_codec_is_refused_with_the_supported_ones(name: str) -> None:
    fields, _ = batch_of_columns({"a": (INT, [1])})
    with pytest.raises(UnsupportedFeature, match=r"file.compression = lzo: .* Set one of .*zstd"):
        format_named(name).open_writer(pa.BufferOutputStream(), fields, FormatWriterSettings(compression="lzo"))


def test_an_unsupported_format_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="data files in csv"):
        format_named("csv")


# ---------------------------------------------------------------- min_max

FLAT = [(name, s) for name, s in WRITABLE if not pa.types.is_nested(arrow_type(s.type))]


@pytest.mark.parametrize(("name", "sample"), FLAT, ids=sample_id)
def test_bounds_span_the_smallest_and_largest_value(name: str, sample: Sample) -> None:
    schema = arrow_schema([sample.field])
    batches = [pa.RecordBatch.from_arrays([part], schema=schema) for part in (sample.column, sample.column.slice(1))]
    _, min_max = write(name, [sample.field], batches, FormatWriterSettings(bounds_for=frozenset({"column"})))
    values = [v for v in sample.column.cast(_comparable(sample.column.type)).to_pylist() if v is not None]
    if not values:
        assert min_max == {}
        return
    bounds = pa.array([min_max["column"].minimum, min_max["column"].maximum], sample.column.type)
    ordered = sorted(values, key=_javas_order)
    assert repr(bounds.cast(_comparable(bounds.type)).to_pylist()) == repr([ordered[0], ordered[-1]])


def _comparable(kind: pa.DataType) -> pa.DataType:
    """Times as integers: Python has no year 10,000 and no nanoseconds."""
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _javas_order(value: Any) -> Any:
    """-0.0 before 0.0, NaN last."""
    if not isinstance(value, float):
        return value
    return (1, 0, 0) if math.isnan(value) else (0, value, math.copysign(1, value))


@pytest.mark.parametrize("name", FORMATS)
def test_the_bounds_of_zero_include_both_zeros_of_java(name: str) -> None:
    fields, batch = batch_of_columns({"f": (FLOAT, [0.0, -0.0, 0.0])})
    _, min_max = write(name, fields, [batch], FormatWriterSettings(bounds_for=frozenset({"f"})))
    assert [repr(min_max["f"].minimum.as_py()), repr(min_max["f"].maximum.as_py())] == ["-0.0", "0.0"]


# ---------------------------------------------------------------- broken files


@pytest.mark.parametrize("name", FORMATS)
def test_a_truncated_file_is_corrupt_at_any_length(name: str) -> None:
    fields, batch = batch_of_columns({"a": (INT, list(range(500))), "t": (STRING, [str(i) for i in range(500)])})
    data, _ = write(name, fields, [batch])
    for size in (0, 1, 4, 20, data.size // 2, data.size - 1):
        with pytest.raises(CorruptFile, match=f"f.{name}"):
            read(name, data.slice(0, size), fields)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_of_another_kind_is_corrupt(name: str) -> None:
    with pytest.raises(CorruptFile, match=f"f.{name}"):
        read(name, pa.py_buffer(b"not a data file at all, but a text of some length"), [DataField(0, "a", INT)])


@pytest.mark.parametrize("name", FORMATS)
def test_a_column_of_another_type_is_corrupt(name: str) -> None:
    fields, batch = batch_of_columns({"a": (STRING, ["x", "y"])})
    data, _ = write(name, fields, [batch])
    with pytest.raises(CorruptFile):
        read(name, data, [DataField(0, "a", INT)])


@pytest.mark.parametrize("name", FORMATS)
def test_a_flipped_bit_gives_other_values_or_a_corrupt_file_error(name: str) -> None:
    """Compressed, where decompressors complain, and not, where bytes arrive that are no text."""
    text = "text" if name == "avro" else "täxt"  # names are text as well
    fields, batch = batch_of_columns({"a": (INT, list(range(300))), text: (STRING, [f"{i} ä" for i in range(300)])})
    for codec in ("none", "zstd"):
        data = write(name, fields, [batch], FormatWriterSettings(compression=codec))[0].to_pybytes()
        for bit in range(0, 8 * len(data), 23):
            broken = bytearray(data)
            broken[bit // 8] ^= 1 << bit % 8
            with suppress(CorruptFile):
                for part in read(name, pa.py_buffer(bytes(broken)), fields):
                    part.to_pylist()


class FailingStream:
    """A disk that is full, or breaks: every write or read fails."""

    closed = False

    def write(self, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    def read(self, size: int = -1) -> bytes:
        raise OSError(5, "Input/output error")

    def seek(self, position: int, whence: int = 0) -> int:
        return 1000

    def tell(self) -> int:
        return 1000

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("name", FORMATS)
def test_a_full_disk_error_is_not_translated(name: str) -> None:
    fields, batch = batch_of_columns({"a": (INT, list(range(100_000)))})
    with pytest.raises(OSError, match="No space left on device"):
        write_to(name, pa.PythonFile(FailingStream(), mode="w"), fields, batch)


def write_to(name: str, stream: pa.NativeFile, fields: Sequence[DataField], batch: pa.RecordBatch) -> None:
    writer = format_named(name).open_writer(stream, fields, FormatWriterSettings())
    try:
        writer.write(batch)
        writer.close()
    except BaseException:
        writer.abort()
        raise


@pytest.mark.parametrize("name", FORMATS)
def test_a_read_error_of_the_disk_is_not_reported_as_corrupt(name: str) -> None:
    source = pa.PythonFile(FailingStream(), mode="r")
    with pytest.raises(OSError, match="Input/output error"):
        list(format_named(name).read(source, "f", [DataField(0, "a", INT)], batch_rows=10))


@pytest.mark.parametrize("name", FORMATS)
def test_reading_closes_its_source_even_if_abandoned(name: str, tmp_path: Path) -> None:
    fields, batch = batch_of_columns({"a": (INT, list(range(5000)))})
    data, _ = write(name, fields, [batch])
    source = pa.BufferReader(data)
    batches = format_named(name).read(source, "f", fields, batch_rows=10)
    next(iter(batches))
    batches.close()  # type: ignore[attr-defined]
    assert source.closed


@pytest.mark.parametrize(
    ("name", "option", "text"),
    [
        ("parquet", "parquet.page.size", "large"),
        ("parquet", "parquet.enable.dictionary", "maybe"),
        ("parquet", "parquet.compression.codec.zstd.level", "x"),
        ("orc", "orc.stripe.size", "1 parsec"),
        ("orc", "orc.dictionary.key.threshold", "most"),
    ],
)
def test_an_invalid_option_is_quoted(name: str, option: str, text: str) -> None:
    fields, _ = batch_of_columns({"a": (INT, [1])})
    with pytest.raises(BadInput, match=f"option {option} = '{text}'"):
        format_named(name).open_writer(pa.BufferOutputStream(), fields, FormatWriterSettings(options={option: text}))
