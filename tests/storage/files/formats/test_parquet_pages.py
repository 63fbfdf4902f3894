"""Only the pages that have wanted rows are decoded; the wanted rows are those of the whole file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tests.storage.files.formats.test_parquet import write
from tests.storage.files.samples import SAMPLES, Sample, sample_id
from tidelake.errors import CorruptFile
from tidelake.storage.files.formats import parquet_pages, parquet_writer
from tidelake.storage.files.formats.file_format import FormatWriterSettings
from tidelake.storage.files.formats.parquet import ParquetFormat
from tidelake.storage.model.types import (
    BIGINT,
    STRING,
    ArrayType,
    DataField,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
    arrow_schema,
)

_ROWS: Final = 3_000
_PAGE_ROWS: Final = 100
_NESTED: Final = (ArrayType, MapType, MultisetType, RowType, VectorType)
FLAT: Final = [s for s in SAMPLES if not isinstance(s.type, _NESTED) and s.type.root is not Root.VARIANT]


class Wanted:
    """The rows that are wanted, and what the format says that it returns."""

    def __init__(self, positions: list[int], rows: int = _ROWS) -> None:
        self.rows = np.isin(np.arange(rows), positions)
        self.said: NDArray[np.bool_] | None = None

    def of_parts(self) -> NDArray[np.bool_]:
        return self.rows

    def returned(self, rows: NDArray[np.bool_]) -> None:
        self.said = rows


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_pages, "_ROWS_MIN", 1)
    monkeypatch.setattr(parquet_pages, "_BLOCK_ROWS", 10)
    monkeypatch.setattr(parquet_writer, "_PAGE_STEP_ROWS", 10)


def read(data: pa.Buffer, fields: list[DataField], wanted: Wanted | None) -> pa.Table:
    batches: Iterator[pa.RecordBatch] = ParquetFormat().read(
        pa.BufferReader(data), "f.parquet", fields, batch_rows=1_000, wanted_rows=wanted
    )
    return pa.Table.from_batches(batches, arrow_schema(fields))


def numbered(column: pa.Array, field: DataField, **options: str) -> tuple[list[DataField], pa.Buffer]:
    """A file with a number in each row and the values in turn, in pages of few rows."""
    fields = [DataField(1, "n", BIGINT), field]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(range(_ROWS)), column.take(pa.array(np.arange(_ROWS) % len(column)))], schema=arrow_schema(fields)
    )
    settings = FormatWriterSettings(block_rows=_ROWS, options={"parquet.page.size": "512", **options})
    return fields, write(fields, rows, settings=settings)[0]


PLAIN: Final = {"parquet.enable.dictionary": "false", "parquet.writer.version": "v1"}
OPTIONS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"parquet.enable.dictionary": "true"},
    PLAIN,
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("sample", FLAT, ids=sample_id)
def test_wanted_rows_are_those_of_the_whole_file(sample: Sample, options: dict[str, str]) -> None:
    fields, data = numbered(sample.column, sample.field, **options)
    whole = read(data, fields, None)
    for positions in ([0], [_ROWS - 1], [999, 1_000], [5, 6, 7, 1_500, 2_999], list(range(400, 450))):
        wanted = Wanted(positions)
        found = read(data, fields, wanted)
        returned = list(range(_ROWS)) if wanted.said is None else np.flatnonzero(wanted.said).tolist()
        assert set(positions) <= set(returned)
        assert repr(found.to_pylist()) == repr(whole.take(pa.array(returned)).to_pylist())


def texts(rows: int = _ROWS) -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {"n": range(rows), "t": [f"{number:x}" * 4 for number in rng.integers(0, 1 << 40, 50)[np.arange(rows) % 50]]}
    )


FOREIGN: Final[tuple[dict[str, Any], ...]] = (
    *({"compression": codec, "use_dictionary": ["t"]} for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")),
    {"data_page_version": "2.0", "use_dictionary": ["t"]},
    {"use_dictionary": False},
    {"write_page_index": True, "write_page_checksum": True, "use_dictionary": False},
)


@pytest.mark.parametrize("options", FOREIGN, ids=str)
def test_files_of_other_writers_are_read_page_by_page(options: dict[str, Any]) -> None:
    stream = io.BytesIO()
    rows = texts()
    pq.write_table(rows, stream, store_schema=False, max_rows_per_page=_PAGE_ROWS, write_batch_size=10, **options)
    fields = [DataField(1, "n", BIGINT), DataField(2, "t", STRING)]
    wanted = Wanted([17, 2_345])
    found = read(pa.py_buffer(stream.getvalue()), fields, wanted)
    if options.get("compression") != "lz4":
        assert wanted.said is not None
        assert found.to_pylist() == rows.take([17, 2_345]).to_pylist()
    else:  # Parquet has two codecs of this name
        assert wanted.said is None
        assert found.to_pylist() == rows.to_pylist()


def at_page(data: pa.Buffer, number: int) -> int:
    """The place of a byte in a page of the column of texts."""
    column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(1)
    _, _, pages = parquet_pages._pages_of(pa.BufferReader(data), column)
    return pages[number].start + pages[number].size_bytes - 1


def plain_texts() -> tuple[list[DataField], pa.Buffer]:
    return numbered(texts()["t"].combine_chunks(), DataField(2, "t", STRING), **PLAIN)


@pytest.mark.parametrize(("broken", "is_read"), [(0, False), (1, True)])
def test_a_flipped_bit_is_detected_in_the_pages_that_are_read(broken: int, is_read: bool) -> None:
    fields, data = plain_texts()
    damaged = bytearray(data.to_pybytes())
    damaged[at_page(data, broken)] ^= 1
    if is_read:
        assert read(pa.py_buffer(bytes(damaged)), fields, Wanted([0]))["n"].to_pylist() == [0]
    else:
        with pytest.raises(CorruptFile, match=r"f\.parquet"):
            read(pa.py_buffer(bytes(damaged)), fields, Wanted([0]))


def test_a_damaged_page_header_is_reported_like_by_a_whole_read() -> None:
    fields, data = plain_texts()
    damaged = bytearray(data.to_pybytes())
    start = at_page(data, 0) + 1
    damaged[start : start + 4] = b"\xff" * 4
    for wanted in (None, Wanted([0])):
        with pytest.raises(CorruptFile, match=r"f\.parquet"):
            read(pa.py_buffer(bytes(damaged)), fields, wanted)


@pytest.mark.parametrize(
    ("positions", "why"),
    [(range(0, _ROWS, 8), "they lie in all pages"), (range(_ROWS), "they are all"), ((), "there are none")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_row_groups_are_decoded_as_a_whole_if(positions: range, why: str) -> None:
    fields, data = plain_texts()
    wanted = Wanted(list(positions))
    assert read(data, fields, wanted).num_rows == _ROWS, why
    assert wanted.said is None


def test_columns_beside_nested_ones_are_read_and_nested_ones_are_decoded_as_a_whole() -> None:
    sample = next(s for s in SAMPLES if s.id == "row")
    fields, data = numbered(sample.column, sample.field, **PLAIN)
    flat, nested = Wanted([3]), Wanted([3])
    assert read(data, fields[:1], flat)["n"].to_pylist() == [3]
    assert read(data, fields, nested).num_rows == _ROWS
    assert nested.said is None
