"""Encodes Parquet files of a few rows each together: PLAIN, not compressed, with one page per column.

Arrow creates a writer for each file and each column, which takes ten times as long as the bytes of such a file. Here
a column is encoded for all files at once. Footers are assembled from pieces that are the same in all files, and come
from a file that Arrow wrote. So columns, types and ids are those of Arrow. The bounds are the same as Arrow's:
`tests/storage/files/formats/test_parquet_small_files.py` compares both, file by file.

Source: apache/parquet-format `parquet.thrift`, `Encodings.md`.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.storage.files.formats.file_format import Edges
from tidelake.storage.files.formats.parquet_footer import MAGIC, framed
from tidelake.storage.files.formats.thrift import Struct, parse, serialize, varint, zigzag

_ROWS_MAX: Final = 64  # rows per file on average; for more rows dictionaries and differences are better
_ROWS_OF_ONE_MAX: Final = 4 * _ROWS_MAX
_TEXT_BYTES_MAX: Final = 1_000  # Arrow does not store bounds of texts from some length on, which is larger than this
_SMALL: Final = tuple(map(zigzag, range(1 << 14)))  # the encodings of most numbers in such files


def encode_small_files(
    table: pa.Table, edges: Edges, arrow_file: bytes, bounds_for: Collection[str]
) -> EncodedSmallFiles | None:
    """Encode small files. None if Arrow must write them: nested columns, unsupported types, long texts, many rows.

    table: the rows in the form that is passed to Arrow. All columns must be flat.
    edges (n + 1,): the first row of each file, then the end of the last file. Each file has at least one row.
    arrow_file: a file with these columns and one row group, not compressed and without dictionaries.
    """
    if len(edges) < 2 or table.num_rows > _ROWS_MAX * (len(edges) - 1):
        return None
    if not all(map(_is_plain, table.columns, table.schema)):
        return None
    footer_start = len(arrow_file) - len(MAGIC) - 4 - int.from_bytes(arrow_file[-8:-4], "little")
    return EncodedSmallFiles(table, edges, parse(arrow_file[footer_start:-8]), bounds_for)


class EncodedSmallFiles:
    """The result of `encode_small_files`."""

    def __init__(self, table: pa.Table, edges: Edges, footer: Struct, bounds_for: Collection[str]) -> None:
        chunks = footer.get(4).items[0].get(1).items
        self._columns = [
            _Column.of(column, field, edges, chunk.get(3), has_bounds=field.name in bounds_for)
            for column, field, chunk in zip(table.columns, table.schema, chunks, strict=True)
        ]
        self._counts = np.diff(edges).tolist()
        self._before = serialize(_only(footer, {1, 2}))[:-1]
        self._behind = serialize(_only(footer, {6, 7}), after=4)
        self._list = b"\x19\x1c\x19" + (
            bytes([len(chunks) << 4 | 12]) if len(chunks) < 15 else b"\xfc" + varint(len(chunks))
        )

    def can_encode(self, number: int) -> bool:
        """Return whether the file has few rows, so that `file` can encode it."""
        return bool(self._counts[number] <= _ROWS_OF_ONE_MAX)

    def file(self, number: int) -> bytes:
        pages, at = [MAGIC], len(MAGIC)
        chunks: list[bytes] = []
        for column in self._columns:
            page = column.pages[number]
            pages.append(page)
            chunks += (column.heads[number], _zigzag(at), column.tails[number])
            at += len(page)
        rows, size = _zigzag(self._counts[number]), _zigzag(at - len(MAGIC))
        # a row group: columns, total_byte_size, num_rows, file_offset, total_compressed_size
        group = b"".join((*chunks, b"\x16", size, b"\x16", rows, b"\x26\x08\x16", size, b"\x00"))
        footer = b"".join((self._before, b"\x16", rows, self._list, group, self._behind))
        return b"".join((*pages, framed(footer)))


@dataclass(frozen=True, slots=True)
class _Column:
    """The encoded column of each file.

    pages: the page of each file, with its header.
    heads: the ColumnChunk of each file, up to the offset of the page.
    tails: the ColumnChunk of each file, after that offset.
    """

    pages: Sequence[bytes]
    heads: Sequence[bytes]
    tails: Sequence[bytes]

    @classmethod
    def of(
        cls, column: pa.ChunkedArray, field: pa.Field, edges: Edges, metadata: Struct, *, has_bounds: bool
    ) -> _Column:
        """Encode a column.

        metadata: Arrow's ColumnMetaData of the column.
        """
        array = column.combine_chunks()
        array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
        valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
        # the first value of each file among the values that are not null
        places = edges if valid is None else np.concatenate([[0], np.cumsum(valid)])[edges]
        values, minima, maxima = _values(array.drop_null() if valid is not None else array, places)
        counts, present = np.diff(edges).tolist(), np.diff(places).tolist()
        levels = _levels(valid, edges, counts, present) if field.nullable else [b""] * len(counts)
        encodings, path, kind = metadata.get(2), metadata.get(3), metadata.get(1)
        begin = Struct()
        for number, value in ((1, (5, kind)), (2, (9, encodings)), (3, (9, path)), (4, (5, 0))):
            begin.set(number, *value)
        # ColumnChunk: file_offset 0, meta_data: type, encodings, path_in_schema, codec
        begin_bytes = b"\x26\x00\x1c" + serialize(begin)[:-1] + b"\x16"
        pages, heads, tails = [], [], []
        is_signed = not (pa.types.is_string(array.type) or pa.types.is_binary(array.type))
        for number, (count, level, plain) in enumerate(zip(counts, levels, values, strict=True)):
            content = level + plain
            size, rows = _zigzag(len(content)), _zigzag(count)
            crc = zlib.crc32(content)
            checksum = zigzag(crc - (1 << 32) if crc >> 31 else crc)
            # a PageHeader: DATA_PAGE, sizes, crc, DataPageHeader: num_values, PLAIN, levels RLE
            page = b"".join(
                (b"\x15\x00\x15", size, b"\x15", size, b"\x15", checksum, b"\x1c\x15", rows, _PAGE_END, content)
            )
            pages.append(page)
            chunk_size = _zigzag(len(page))
            heads.append(b"".join((begin_bytes, rows, b"\x16", chunk_size, b"\x16", chunk_size, b"\x26")))
            if has_bounds:
                nulls = _zigzag(count - present[number])
                tails.append(_statistics(minima[number], maxima[number], nulls, is_signed=is_signed))
            else:
                tails.append(b"\x49" + _ENCODING_STATS)
        return cls(pages, heads, tails)


_PAGE_END: Final = b"\x15\x00\x15\x06\x15\x06\x00\x00"
_ENCODING_STATS: Final = b"\x1c\x15\x00\x15\x00\x15\x02\x00\x00\x00"  # one data page, PLAIN; then both structs end


def _statistics(minimum: bytes | None, maximum: bytes | None, nulls: bytes, *, is_signed: bool) -> bytes:
    """Encode the statistics of a ColumnMetaData, and the fields after them.

    Texts and bytes have no deprecated bounds.
    """
    if minimum is None or maximum is None:
        return b"".join((b"\x3c\x36", nulls, b"\x00\x19", _ENCODING_STATS))
    high, low = varint(len(maximum)) + maximum, varint(len(minimum)) + minimum
    old = (b"\x18", high, b"\x18", low, b"\x16") if is_signed else (b"\x36",)
    return b"".join((b"\x3c", *old, nulls, b"\x28", high, b"\x18", low, b"\x11\x11\x00\x19", _ENCODING_STATS))


def _is_plain(column: pa.ChunkedArray, field: pa.Field) -> bool:
    kind = column.type
    if column.null_count and not field.nullable:
        return False  # Arrow will raise the error
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return int(pc.max(pc.binary_length(column)).as_py() or 0) <= _TEXT_BYTES_MAX
    return pa.types.is_boolean(kind) or _stored_as(kind) is not None


def _stored_as(kind: pa.DataType) -> type[Any] | None:
    """Return the number type with which Parquet stores a type; None if it is not a number.

    Times finer than microseconds are not stored as integers.
    """
    if pa.types.is_float32(kind):
        return np.float32
    if pa.types.is_float64(kind):
        return np.float64
    if pa.types.is_signed_integer(kind):
        return np.int64 if kind.bit_width == 64 else np.int32
    if pa.types.is_date32(kind):
        return np.int32
    if pa.types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        return np.int64
    return None


def _values(array: pa.Array, places: Edges) -> tuple[list[bytes], list[bytes | None], list[bytes | None]]:
    """Return for each file the encoded values, and the bounds.

    array: the values, without nulls.
    """
    ranges = list(zip(places[:-1].tolist(), places[1:].tolist(), strict=True))
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        texts: list[bytes] = array.cast(pa.binary()).to_pylist()
        encoded = [len(text).to_bytes(4, "little") + text for text in texts]
        return (
            [b"".join(encoded[start:stop]) for start, stop in ranges],
            [min(texts[start:stop], default=None) for start, stop in ranges],
            [max(texts[start:stop], default=None) for start, stop in ranges],
        )
    if pa.types.is_boolean(kind):
        flags = array.to_numpy(zero_copy_only=False)
        packed = [np.packbits(flags[start:stop], bitorder="little").tobytes() for start, stop in ranges]
        return packed, *_bounds(flags, places)
    stored = _stored_as(kind)
    assert stored is not None, kind
    numbers = array.to_numpy(zero_copy_only=False) if not pa.types.is_temporal(kind) else _ticks(array)
    numbers = np.ascontiguousarray(numbers, stored)
    raw, width = numbers.tobytes(), numbers.itemsize
    return [raw[start * width : stop * width] for start, stop in ranges], *_bounds(numbers, places)


def _ticks(array: pa.Array) -> NDArray[np.integer[Any]]:
    found: NDArray[np.integer[Any]] = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64()).to_numpy()
    return found


def _bounds(values: NDArray[Any], places: Edges) -> tuple[list[bytes | None], list[bytes | None]]:
    """Return the encoded bounds; None for a file without values.

    Like in Arrow, NaN is ignored, and a bound of zero has the sign that includes the other zero.
    """
    filled = np.flatnonzero(np.diff(places))
    minima: list[bytes | None] = [None] * (len(places) - 1)
    maxima = list(minima)
    if not len(filled):
        return minima, maxima
    lowest = np.fmin.reduceat(values, places[filled])
    highest = np.fmax.reduceat(values, places[filled])
    if np.issubdtype(values.dtype, np.floating):
        lowest[lowest == 0], highest[highest == 0] = -0.0, 0.0
        kept = ~np.isnan(lowest)
        filled, lowest, highest = filled[kept], lowest[kept], highest[kept]
    low, high, width = lowest.tobytes(), highest.tobytes(), values.itemsize
    for place, number in enumerate(filled.tolist()):
        minima[number] = low[place * width : (place + 1) * width]
        maxima[number] = high[place * width : (place + 1) * width]
    return minima, maxima


def _levels(
    valid: NDArray[np.bool_] | None, edges: Edges, counts: Sequence[int], present: Sequence[int]
) -> list[bytes]:
    """Encode which rows of each file have a value: as one run, or bit by bit."""
    found = []
    for number, (count, is_present) in enumerate(zip(counts, present, strict=True)):
        if is_present in (count, 0):
            runs = varint(count << 1) + (b"\x01" if is_present else b"\x00")
        else:
            assert valid is not None
            bits = np.packbits(valid[edges[number] : edges[number + 1]], bitorder="little").tobytes()
            runs = varint(len(bits) << 1 | 1) + bits
        found.append(len(runs).to_bytes(4, "little") + runs)
    return found


def _zigzag(number: int) -> bytes:
    return _SMALL[number] if number < len(_SMALL) else zigzag(number)


def _only(struct: Struct, numbers: Collection[int]) -> Struct:
    found = Struct()
    for number in numbers:
        if number in struct.fields:
            found.set(number, *struct.fields[number])
    return found
