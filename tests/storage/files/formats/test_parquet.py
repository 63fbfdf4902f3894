"""Parquet files as Java writes them, and a reader that is as tolerant."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tests.storage.files.samples import batch_of_columns
from tests.support.cases import GOLDEN_DATABASE, unpack_golden
from tidelake.errors import BadInput, CorruptFile, UnsupportedFeature
from tidelake.storage.files.formats.file_format import ChunkFilter, FormatWriterSettings
from tidelake.storage.files.formats.parquet import ParquetFormat
from tidelake.storage.files.formats.parquet_writer import ParquetWriter
from tidelake.storage.files.stats_collection import Bounds, ColumnMinMax
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import (
    BIGINT,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    Root,
    RowType,
    arrow_schema,
    decimal,
    not_null,
    timestamp,
    timestamp_ltz,
)

MEBIBYTE = 1 << 20


def write(
    fields: Sequence[DataField], *batches: pa.RecordBatch, settings: FormatWriterSettings | None = None
) -> tuple[pa.Buffer, ColumnMinMax]:
    stream = pa.BufferOutputStream()
    writer = ParquetFormat().open_writer(stream, fields, settings or FormatWriterSettings())
    for batch in batches:
        writer.write(batch)
    min_max = writer.close()
    return stream.getvalue(), min_max


def read(
    data: pa.Buffer, fields: Sequence[DataField], batch_rows: int = 10_000, keep: ChunkFilter | None = None
) -> pa.Table:
    batches = ParquetFormat().read(pa.BufferReader(data), "f.parquet", fields, batch_rows=batch_rows, chunk_filter=keep)
    return pa.Table.from_batches(batches, arrow_schema(fields))


def parquet_schema(data: pa.Buffer | Path) -> list[str]:
    """The schema as text, a line a node, without its first lines: Java's root has another name."""
    source = pa.BufferReader(data) if isinstance(data, pa.Buffer) else str(data)
    lines = str(pq.ParquetFile(source).schema).splitlines()[2:]
    return [line.replace("(Map) {", "{") for line in lines]  # Java annotates the entries of a map as well


# ---------------------------------------------------------------- written


@pytest.mark.parametrize("name", ["types_parquet", "types_nested_parquet", "types_variant", "pk_dedup_parquet"])
def test_columns_have_the_same_ids_and_physical_types_as_in_java(name: str, tmp_path: Path) -> None:
    root = unpack_golden(f"java/{name}", tmp_path) / f"{GOLDEN_DATABASE}.db" / name
    schema = TableSchema.from_json((root / "schema/schema-0").read_bytes(), "schema-0")
    fields = [*schema.key_fields, *_system_fields(schema), *schema.fields]
    data, _ = write(fields)
    java = next(iter(sorted(root.glob("**/*.parquet"))))
    assert parquet_schema(data) == parquet_schema(java)


def _system_fields(schema: TableSchema) -> list[DataField]:
    if not schema.has_primary_key:
        return []
    return [
        DataField(2147483646, "_SEQUENCE_NUMBER", not_null(BIGINT)),
        DataField(2147483645, "_VALUE_KIND", not_null(AtomicType(Root.TINYINT))),
    ]


def test_nothing_but_columns_is_stored() -> None:
    fields, batch = batch_of_columns({"a": (INT, [1])})
    data, _ = write(fields, batch)
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert metadata.metadata is None
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_null_in_a_required_column_is_bad_input_that_names_it() -> None:
    fields = [DataField(0, "key", not_null(INT))]
    with pytest.raises(BadInput, match="'key' is declared non-nullable but contains nulls"):
        write(fields, pa.RecordBatch.from_pydict({"key": pa.array([1, None], pa.int32())}))


def test_a_null_in_a_required_part_of_a_row_is_bad_input_that_names_the_column() -> None:
    row = RowType((DataField(1, "x", not_null(INT)),))
    column = pa.StructArray.from_arrays([pa.array([1, None], pa.int32())], fields=[pa.field("x", pa.int32(), False)])
    with pytest.raises(BadInput, match=r"column 'r': .*a required part of a row is null"):
        write([DataField(0, "r", row)], pa.RecordBatch.from_arrays([column], names=["r"]))


def test_a_null_row_may_hide_nulls_in_its_required_parts() -> None:
    inner = RowType((DataField(2, "x", not_null(INT)), DataField(3, "l", not_null(ArrayType(STRING)))))
    row = RowType((DataField(1, "inner", not_null(inner)),))
    fields = [DataField(0, "r", row)]
    kind = arrow_schema(fields).field(0).type
    column = pa.concat_arrays([pa.array([{"inner": {"x": 1, "l": ["a"]}}], kind), pa.nulls(2, kind)])
    data, _ = write(fields, pa.RecordBatch.from_arrays([column], schema=arrow_schema(fields)))
    assert read(data, fields).column("r").to_pylist() == [{"inner": {"x": 1, "l": ["a"]}}, None, None]


def test_rows_are_held_until_a_row_group_is_full_and_the_size_is_guessed_meanwhile() -> None:
    texts = np.random.default_rng(1).bytes(MEBIBYTE).hex()
    values = [texts[i : i + 64] for i in range(0, len(texts), 64)]
    fields, batch = batch_of_columns({"t": (STRING, values)})
    stream = pa.BufferOutputStream()
    writer = ParquetFormat().open_writer(stream, fields, FormatWriterSettings(block_size_bytes=4 * MEBIBYTE))
    sizes = []
    for _ in range(12):
        writer.write(batch)
        sizes.append(writer.written_bytes)
    writer.close()
    data = stream.getvalue()
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert sizes == sorted(sizes)
    assert sizes[-1] == pytest.approx(data.size, rel=0.1)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] != [12 * len(values)]
    assert sum(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)) == 12 * len(values)


@pytest.mark.parametrize(("value_bytes", "most_bytes"), [(1_000, 64 * MEBIBYTE), (100_000, 32 * MEBIBYTE)])
def test_half_as_many_bytes_of_wide_rows_are_buffered_per_row_group(value_bytes: int, most_bytes: int) -> None:
    values = [f"{i:0{value_bytes}}" for i in range(70 * MEBIBYTE // value_bytes)]
    fields, batch = batch_of_columns({"a": (STRING, values)})
    data, _ = write(fields, *(batch.slice(start, 50) for start in range(0, len(values), 50)))
    metadata = pq.read_metadata(pa.BufferReader(data))
    sizes = [metadata.row_group(i).num_rows * value_bytes for i in range(metadata.num_row_groups)]
    assert sizes[0] == pytest.approx(most_bytes, rel=0.2)
    assert sum(sizes) == len(values) * value_bytes


def test_a_batch_larger_than_a_row_group_is_split() -> None:
    fields, batch = batch_of_columns({"a": (INT, range(2_500_000))})
    data, _ = write(fields, batch)
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [1048576, 1048576, 402848]


@pytest.mark.parametrize(("block_size_bytes", "rows"), [(None, [100, 100, 50]), (64 * MEBIBYTE, [250])])
def test_row_groups_have_the_default_row_count_unless_a_size_is_set(
    block_size_bytes: int | None, rows: list[int]
) -> None:
    fields, batch = batch_of_columns({"a": (INT, range(250))})
    stream = pa.BufferOutputStream()
    settings = FormatWriterSettings(block_rows=100, block_size_bytes=block_size_bytes)
    writer = ParquetFormat().open_writer(stream, fields, settings)
    writer.write(batch)
    writer.close()
    metadata = pq.read_metadata(pa.BufferReader(stream.getvalue()))
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == rows


def encodings(data: pa.Buffer, column: int = 0) -> set[str]:
    return set(pq.read_metadata(pa.BufferReader(data)).row_group(0).column(column).encodings)


DIGITS = [str(i) for i in range(5000)]


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        pytest.param(STRING, DIGITS, "PLAIN", id="texts, each another"),
        pytest.param(STRING, ["berlin", "paris"] * 2500, "RLE_DICTIONARY", id="texts that repeat"),
        pytest.param(STRING, [f"city {i % 1000}" for i in range(5000)], "RLE_DICTIONARY", id="a thousand texts"),
        pytest.param(STRING, [None] * 5000, "PLAIN", id="no texts"),
        pytest.param(BIGINT, range(5000), "DELTA_BINARY_PACKED", id="numbers"),
        pytest.param(BIGINT, [7, 2**60] * 2500, "RLE_DICTIONARY", id="two numbers"),
        pytest.param(DATE, range(5000), "DELTA_BINARY_PACKED", id="dates"),
        pytest.param(timestamp(6), range(5000), "DELTA_BINARY_PACKED", id="times"),
        pytest.param(decimal(18, 2), [Decimal(i) for i in range(5000)], "DELTA_BINARY_PACKED", id="short decimals"),
        pytest.param(decimal(20, 2), [Decimal(i) for i in range(5000)], "PLAIN", id="long decimals"),
        pytest.param(DOUBLE, [i / 7 for i in range(5000)], "PLAIN", id="doubles"),
        pytest.param(ArrayType(STRING), [["x"]] * 5000, "RLE_DICTIONARY", id="nested texts"),
    ],
)
def test_the_encoding_suits_the_values(kind: DataType, values: Sequence[Any], wanted: str) -> None:
    fields, batch = batch_of_columns({"c": (kind, values)})
    data, _ = write(fields, batch)
    found = encodings(data)
    assert wanted in found
    assert ("RLE_DICTIONARY" in found) == (wanted == "RLE_DICTIONARY")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        pytest.param({"parquet.writer.version": "v1"}, "PLAIN", id="the first version knows no differences"),
        pytest.param({"parquet.enable.dictionary": "true"}, "RLE_DICTIONARY", id="a dictionary for all"),
        pytest.param({"parquet.enable.dictionary#c": "true"}, "RLE_DICTIONARY", id="a dictionary for one"),
        pytest.param({"parquet.enable.dictionary#other": "true"}, "DELTA_BINARY_PACKED", id="for another one"),
    ],
)
def test_options_of_parquet_override_the_choice(options: dict[str, str], wanted: str) -> None:
    fields, batch = batch_of_columns({"c": (BIGINT, range(1000))})
    data, _ = write(fields, batch, settings=FormatWriterSettings(options=options))
    assert wanted in encodings(data)
    assert read(data, fields).column("c").to_pylist() == list(range(1000))


# ---------------------------------------------------------------- bounds


def test_nan_is_the_largest_value_although_the_footer_ignores_it() -> None:
    nan = float("nan")
    fields, batch = batch_of_columns({"a": (FLOAT, [1.0, nan]), "b": (FLOAT, [nan, nan]), "c": (FLOAT, [1.0, 2.0])})
    _, other = batch_of_columns({"a": (FLOAT, [0.5, 3.0]), "b": (FLOAT, [None, None]), "c": (FLOAT, [0.0, None])})
    settings = FormatWriterSettings(bounds_for=frozenset("abc"), block_size_bytes=1)  # a row group a batch
    data, min_max = write(fields, batch, other, settings=settings)
    found = {name: (str(span.minimum), str(span.maximum)) for name, span in min_max.items()}
    assert found == {"a": ("0.5", "nan"), "b": ("nan", "nan"), "c": ("-0.0", "2.0")}
    seen = []
    read(data, fields, keep=keeping(lambda bounds: seen.append(bounds("a"))))
    assert seen[0].maximum.to_pylist() == [1.0, 3.0]


def test_strings_too_long_for_the_footer_still_have_bounds() -> None:
    long = "m" * 5000
    settings = FormatWriterSettings(bounds_for=frozenset("tb"), block_size_bytes=1)  # a row group a batch
    fields, batch = batch_of_columns({"t": (STRING, [long, "n"]), "b": (BYTES, [b"\xff" * 9000, None])})
    _, other = batch_of_columns({"t": (STRING, ["z", "a"]), "b": (BYTES, [None, None])})
    data, min_max = write(fields, batch, other, settings=settings)
    assert pq.read_metadata(pa.BufferReader(data)).num_row_groups == 2
    assert (min_max["t"].minimum.as_py(), min_max["t"].maximum.as_py()) == ("a", "z")
    assert min_max["b"].minimum.as_py() == b"\xff" * 9000


def test_columns_without_requested_bounds_have_none_in_the_footer() -> None:
    fields, batch = batch_of_columns({"a": (INT, [1]), "b": (INT, [1])})
    data, _ = write(fields, batch, settings=FormatWriterSettings(bounds_for=frozenset("a")))
    row_group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    assert [row_group.column(i).is_stats_set for i in range(2)] == [True, False]


# ---------------------------------------------------------------- files that others wrote


def foreign(table: pa.Table, **options: Any) -> pa.Buffer:
    stream = pa.BufferOutputStream()
    pq.write_table(table, stream, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        pytest.param(pa.array([1, None], pa.int64()), INT, id="a wider integer"),
        pytest.param(pa.array([1, None], pa.int32()), BIGINT, id="a narrower integer"),
        pytest.param(pa.array([1, None], pa.uint8()), INT, id="an unsigned integer"),
        pytest.param(pa.array([1.5, None], pa.float32()), DOUBLE, id="a float for a double"),
        pytest.param(pa.array([1.5, None], pa.float64()), FLOAT, id="a double for a float"),
        pytest.param(pa.array(["a", None], pa.large_string()), STRING, id="a large string"),
        pytest.param(pa.array(["a", None]).dictionary_encode(), STRING, id="a dictionary"),
        pytest.param(pa.array([b"a", None]), STRING, id="bytes for a text"),
        pytest.param(pa.array([b"abcd", None], pa.binary(4)), BYTES, id="bytes of fixed size"),
        pytest.param(pa.array([None, None]), STRING, id="nulls without a type"),
        pytest.param(pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)), decimal(9, 2), id="a decimal in bytes"),
        pytest.param(pa.array([["a"], None], pa.large_list(pa.string())), ArrayType(STRING), id="a large list"),
    ],
)
def test_other_physical_types_of_the_same_values_are_read_as_in_java(stored: pa.Array, wanted: DataType) -> None:
    fields = [DataField(0, "c", wanted)]
    values = stored.to_pylist()
    expected = ["a" if v == b"a" else v for v in values]
    assert read(foreign(pa.table({"c": stored})), fields).column("c").to_pylist() == expected


@pytest.mark.parametrize("stored_unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("wanted", [timestamp(0), timestamp(3), timestamp(6), timestamp(9), timestamp_ltz(3)], ids=str)
@pytest.mark.parametrize("int96", [False, True])
def test_times_of_any_unit_are_read_as_the_declared_unit(stored_unit: str, wanted: DataType, int96: bool) -> None:
    instants = pa.array([-86_400, 1_715_690_096, None], pa.int64()).cast(pa.timestamp("s"))
    data = foreign(pa.table({"c": instants.cast(pa.timestamp(stored_unit))}), use_deprecated_int96_timestamps=int96)
    back = read(data, [DataField(0, "c", wanted)]).column("c")
    assert back.type == arrow_schema([DataField(0, "c", wanted)]).field(0).type
    assert back.cast(pa.timestamp("s", back.type.tz)).cast(pa.int64()).to_pylist() == [-86_400, 1_715_690_096, None]


def test_a_fraction_of_an_int96_before_1970_may_be_negative() -> None:
    """Arrow writes such values as Java does: the time of day counts back from the end of the day."""
    times = pa.array([-1, -999_999_999, -86_400_000_000_001], pa.int64()).cast(pa.timestamp("ns"))
    data = foreign(pa.table({"c": times}), use_deprecated_int96_timestamps=True)
    assert read(data, [DataField(0, "c", timestamp(9))]).column("c").combine_chunks().equals(times)
    micros = read(data, [DataField(0, "c", timestamp(6))]).column("c").cast(pa.int64()).to_pylist()
    assert micros == [-1, -1_000_000, -86_400_000_001]


def test_an_int96_outside_of_1677_to_2262_is_read_if_it_fits_and_refused_if_it_would_wrap() -> None:
    year_9999 = pa.array([253_402_300_799_999_999], pa.int64()).cast(pa.timestamp("us"))
    data = foreign(pa.table({"c": year_9999}), use_deprecated_int96_timestamps=True)
    assert read(data, [DataField(0, "c", timestamp(6))]).column("c").combine_chunks().equals(year_9999)
    with pytest.raises(UnsupportedFeature, match="1677 to 2262"):
        read(data, [DataField(0, "c", timestamp(9))])


def test_integers_without_annotation_count_the_unit_of_the_declared_precision() -> None:
    data = foreign(pa.table({"c": pa.array([1_500, None], pa.int64())}))
    for wanted, ticks in ((timestamp(0), 1), (timestamp(3), 1_500), (timestamp(6), 1_500)):
        assert read(data, [DataField(0, "c", wanted)]).column("c").cast(pa.int64()).to_pylist() == [ticks, None]


def test_a_number_too_large_for_its_type_is_corrupt_not_wrapped() -> None:
    data = foreign(pa.table({"c": pa.array([2**40], pa.int64())}))
    with pytest.raises(CorruptFile, match=r"f\.parquet"):
        read(data, [DataField(0, "c", INT)])


def test_a_row_with_a_missing_field_is_corrupt() -> None:
    data = foreign(pa.table({"r": pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))}))
    wanted = RowType((DataField(1, "x", INT), DataField(2, "y", INT)))
    with pytest.raises(CorruptFile, match="no field 'y'"):
        read(data, [DataField(0, "r", wanted)])


def test_a_shredded_variant_without_metadata_is_corrupt() -> None:
    shape = pa.struct([("value", pa.binary()), ("metadata", pa.binary()), ("typed_value", pa.int64())])
    data = foreign(pa.table({"v": pa.array([{"value": b"", "metadata": b"", "typed_value": 1}], shape)}))
    with pytest.raises(CorruptFile, match="metadata of version 1"):
        read(data, [DataField(0, "v", AtomicType(Root.VARIANT))])


def test_column_names_with_dots_differ_from_nested_fields() -> None:
    fields, batch = batch_of_columns(
        {"a": (RowType((DataField(8, "b", INT),)), [{"b": 1}]), "a.b": (INT, [2]), "": (INT, [3])}
    )
    data, _ = write(fields, batch)
    assert read(data, fields[1:]).to_pydict() == {"a.b": [2], "": [3]}


# ---------------------------------------------------------------- how it is read


class Counting(io.BytesIO):
    """Counts the bytes that are read: what a remote store would have to send."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.fetched = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.fetched += len(data)
        return data


def test_reading_one_column_fetches_little_more_than_that_column() -> None:
    noise = np.random.default_rng(1).integers(0, 2**62, 400_000)
    fields, batch = batch_of_columns(dict.fromkeys("abcdefgh", (BIGINT, noise)))
    data, _ = write(fields, batch)
    source = Counting(data.to_pybytes())
    batches = ParquetFormat().read(pa.PythonFile(source, mode="r"), "f", [fields[3]], batch_rows=65_536)
    rows = sum(b.num_rows for b in batches)
    column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(3).total_compressed_size
    assert rows == 400_000
    assert source.fetched < 1.1 * column + 2 * 65_536


def test_a_row_group_is_streamed_not_held_as_a_whole(tmp_path: Path) -> None:
    rows = 1_000_000
    noise = np.random.default_rng(1).integers(0, 2**62, rows)
    fields, batch = batch_of_columns(dict.fromkeys("abcdef", (BIGINT, noise)))
    path = tmp_path / "f.parquet"
    data, _ = write(fields, batch)
    path.write_bytes(data)
    decoded = batch.nbytes
    del batch, data
    before = pa.total_allocated_bytes()
    held = [
        pa.total_allocated_bytes() - before
        for _ in ParquetFormat().read(pa.OSFile(str(path)), "f", fields, batch_rows=16_384)
    ]
    first = 1_024  # shows how large rows are
    assert len(held) == 1 + -(-(rows - first) // 16_384)
    assert max(held) < decoded / 4


def row_groups_of_hundred(kind: DataType, values: Sequence[Any]) -> tuple[list[DataField], pa.Buffer]:
    fields, batch = batch_of_columns({"c": (kind, values)})
    stream = pa.BufferOutputStream()
    settings = FormatWriterSettings(bounds_for=frozenset("c"), block_size_bytes=1)
    writer: ParquetWriter = ParquetFormat().open_writer(stream, fields, settings)
    for start in range(0, len(values), 100):
        writer.write(batch.slice(start, 100))
    writer.close()
    return fields, stream.getvalue()


def keeping(condition: Callable[[Bounds], NDArray[np.bool_] | None]) -> ChunkFilter:
    return condition


def test_row_groups_are_skipped_by_their_bounds() -> None:
    fields, data = row_groups_of_hundred(INT, range(1000))

    def up_to_250(bounds: Bounds) -> NDArray[np.bool_]:
        known = bounds("c")
        assert known.row_count.to_pylist() == [100] * 10
        assert known.null_count.to_pylist() == [0] * 10
        return np.asarray(known.minimum.to_numpy() <= 250, np.bool_)

    assert read(data, fields, keep=keeping(up_to_250)).column("c").to_pylist() == list(range(300))
    assert read(data, fields, keep=keeping(lambda _: np.zeros(10, np.bool_))).num_rows == 0
    assert read(data, fields, keep=keeping(lambda _: None)).num_rows == 1000


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        pytest.param(STRING, "a", "z", id="text"),
        pytest.param(decimal(9, 2), Decimal("-1.25"), Decimal("7.00"), id="decimal as integer"),
        pytest.param(decimal(30, 2), Decimal("-1.25"), Decimal("7.00"), id="decimal as bytes"),
        pytest.param(DOUBLE, -1.5, 2.5, id="double"),
    ],
)
def test_bounds_of_row_groups_have_the_type_of_the_column(kind: DataType, low: Any, high: Any) -> None:
    fields, data = row_groups_of_hundred(kind, [low] * 50 + [high] * 50 + [None] * 100)
    seen = []

    def look(bounds: Bounds) -> None:
        seen.append(bounds("c"))

    read(data, fields, keep=keeping(look))
    (known,) = seen
    assert known.minimum.to_pylist() == [low, None]
    assert known.maximum.to_pylist() == [high, None]
    assert known.null_count.to_pylist() == [0, 100]


def test_a_flipped_bit_is_detected() -> None:
    fields, batch = batch_of_columns({"c": (BIGINT, np.random.default_rng(1).integers(0, 2**62, 10_000))})
    data, _ = write(fields, batch, settings=FormatWriterSettings(compression="none"))
    broken = bytearray(data)
    broken[data.size // 2] ^= 1
    with pytest.raises(CorruptFile, match="CRC"):
        read(pa.py_buffer(bytes(broken)), fields)
