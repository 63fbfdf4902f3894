"""Writes row groups of large values, whose pages are encoded here.

Arrow makes three copies of a value for a page: encoded, combined with its levels, and compressed. Here the value is
only compressed into a second buffer. Arrow writes the other columns of the row group to a separate file in memory,
whose column chunks are copied. The footers of all such parts are joined.

Source: apache/parquet-format `parquet.thrift`, `Encodings.md`.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tidelake.storage.files.formats.file_field_ids import leaf_numbers
from tidelake.storage.files.formats.file_format import LARGE_ROW_BYTES
from tidelake.storage.files.formats.parquet_footer import MAGIC
from tidelake.storage.files.formats.thrift import I16, I32, I64, LIST, STRUCT, List, Struct, parse, serialize

CODECS: Final = frozenset({"ZSTD", "NONE"})  # other codecs need a page in one buffer, which is another copy

# enums of parquet.thrift
_DATA_PAGE: Final = 0
_PLAIN: Final = 0
_RLE: Final = 3
_STEP_BYTES: Final = 1024 * 1024


def large_columns(table: pa.Table) -> list[str]:
    """Return the columns with large values whose pages can be encoded here."""
    return [
        name
        for name, column in zip(table.column_names, table.columns, strict=True)
        if (pa.types.is_string(column.type) or pa.types.is_binary(column.type)) and column.nbytes >= LARGE_ROW_BYTES
    ]


def write_row_group(
    stream: pa.NativeFile, table: pa.Table, names: Collection[str], arguments: dict[str, Any]
) -> pq.FileMetaData:
    """Append a row group. Returns the footer of a file that ends after it.

    table: the rows in stored form, with the schema of the file.
    names: the result of `large_columns`.
    arguments: the arguments of `pq.ParquetWriter`. The codec must be one of CODECS.
    """
    metadata, row_group = _write_small_columns(stream, table, names, arguments)
    leaves = leaf_numbers(table.schema)
    level = arguments["compression_level"] if arguments["compression"] == "ZSTD" else None
    for name in names:
        chunk = row_group.get(1).items[leaves[name].start]
        start = stream.tell()
        pages = _Pages(
            stream, table.schema.field(name).nullable, level, is_compressed=arguments["compression"] != "NONE"
        )
        for value in _values(table.column(name)):
            pages.write(value)
        _describe(chunk, start, stream.tell() - start, pages.plain_bytes)
    _set_totals(row_group)
    return read_footer(serialize(metadata))


def _write_small_columns(
    stream: pa.NativeFile, table: pa.Table, names: Collection[str], arguments: dict[str, Any]
) -> tuple[Struct, Struct]:
    """Append the column chunks that Arrow writes. Returns their footer, and its row group."""
    found: list[pq.FileMetaData] = []
    part = pa.BufferOutputStream()
    with pq.ParquetWriter(part, table.schema, **arguments, metadata_collector=found) as writer:
        writer.write_table(_without_values(table, names), row_group_size=table.num_rows)
    content = part.getvalue()
    footer_bytes = int.from_bytes(bytes(content[-8:-4]), "little")
    if not stream.tell():
        stream.write(MAGIC)
    shift = stream.tell() - len(MAGIC)
    stream.write(content[len(MAGIC) : -8 - footer_bytes])
    metadata = _to_thrift(found[0])
    (row_group,) = metadata.get(4).items
    _shift(row_group, (5,), shift)  # offsets in the file
    for chunk in row_group.get(1).items:
        _shift(chunk, (2,), shift)
        _shift(chunk.get(3), (9, 10, 11), shift)
    return metadata, row_group


def _shift(struct: Struct, numbers: Sequence[int], shift: int) -> None:
    for number in numbers:
        if offset := struct.get(number):
            struct.set(number, I64, offset + shift)


def joined(footers: Sequence[pq.FileMetaData]) -> bytes:
    """Join the footers of all row groups to one footer, as a Thrift struct."""
    parts = [_to_thrift(footer) for footer in footers]
    row_groups = [row_group for part in parts for row_group in part.get(4).items]
    for ordinal, row_group in enumerate(row_groups):
        if ordinal < 2**15:
            row_group.set(7, I16, ordinal)
        else:  # the field is optional, and has 16 bits
            row_group.remove(7)
    parts[0].set(3, I64, sum(part.get(3) for part in parts))
    parts[0].set(4, LIST, List(STRUCT, row_groups))
    return serialize(parts[0])


def read_footer(footer: bytes) -> pq.FileMetaData:
    """Parse a footer.

    footer: the Thrift struct, without length and magic bytes.
    """
    return pq.read_metadata(pa.BufferReader(MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC))


def _to_thrift(metadata: pq.FileMetaData) -> Struct:
    out = pa.BufferOutputStream()
    metadata.write_metadata_file(out)
    return parse(bytes(out.getvalue()[len(MAGIC) : -4 - len(MAGIC)]))


def _without_values(table: pa.Table, names: Collection[str]) -> pa.Table:
    """Replace large values by empty ones, so that Arrow writes a small column chunk with the same number of rows."""
    for name in names:
        position = table.schema.get_field_index(name)
        field = table.schema.field(position)
        empty = None if field.nullable else b""
        table = table.set_column(position, field, pa.array([empty] * table.num_rows, field.type))
    return table


def _values(column: pa.ChunkedArray) -> Iterator[memoryview | None]:
    """Yield the values; None for null."""
    for chunk in column.chunks:
        valid, offsets, data = chunk.buffers()
        ends = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1].tolist()
        bytes_ = memoryview(b"" if data is None else data).cast("B")
        is_valid = [True] * len(chunk) if valid is None else chunk.is_valid().to_pylist()
        for row, is_there in enumerate(is_valid):
            yield bytes_[ends[row] : ends[row + 1]] if is_there else None


class _Pages:
    """Writes the pages of a column chunk, one for each value.

    level: the level of zstd; None means the default.
    plain_bytes: the size of the pages before compression, with their headers.
    """

    def __init__(self, stream: pa.NativeFile, nullable: bool, level: int | None, *, is_compressed: bool) -> None:
        self._stream = stream
        self._nullable = nullable
        self._level = 3 if level is None else level
        self._is_compressed = is_compressed
        self.plain_bytes = 0

    def write(self, value: memoryview | None) -> None:
        pieces: list[Any] = []
        if self._nullable:
            # the definition levels: their size of 2 bytes, then a run of one level, which is 1, or 0 for null
            pieces.append(b"\x02\0\0\0" + b"\x02" + bytes([value is not None]))
        if value is not None:
            pieces += [len(value).to_bytes(4, "little"), value]
        size = sum(map(len, pieces))
        stored = [_compressed(pieces, size, self._level)] if self._is_compressed else pieces
        header = _page_header(size, stored)
        self.plain_bytes += len(header) + size
        self._stream.write(header)
        for piece in stored:
            self._stream.write(piece)


def _compressed(pieces: Sequence[Any], size: int, level: int) -> pa.Buffer:
    """Compress to one frame. The buffer has the maximum size, but only its used part takes memory."""
    compressor = zstandard.ZstdCompressor(level=level, write_content_size=True).compressobj(size=size)
    buffer = pa.allocate_buffer(size + size // 128 + _STEP_BYTES, resizable=True)
    room = memoryview(buffer).cast("B")
    filled = 0
    for piece in pieces:
        for start in range(0, len(piece), _STEP_BYTES):
            filled = _put(room, filled, compressor.compress(piece[start : start + _STEP_BYTES]))
    filled = _put(room, filled, compressor.flush())
    room.release()
    return buffer.slice(0, filled)


def _put(room: memoryview, at: int, data: bytes) -> int:
    room[at : at + len(data)] = data
    return at + len(data)


def _page_header(size: int, stored: Sequence[Any]) -> bytes:
    checksum = 0
    for piece in stored:
        checksum = zlib.crc32(piece, checksum)
    data_page = Struct()
    for number, value in enumerate((1, _PLAIN, _RLE, _RLE), 1):  # number of values, then encodings
        data_page.set(number, I32, value)
    header = Struct()
    header.set(1, I32, _DATA_PAGE)
    header.set(2, I32, size)
    header.set(3, I32, sum(map(len, stored)))
    header.set(4, I32, checksum - 2**32 if checksum >= 2**31 else checksum)
    header.set(5, STRUCT, data_page)
    return serialize(header)


def _describe(chunk: Struct, start: int, stored_bytes: int, plain_bytes: int) -> None:
    """Set place and size of the column chunk's pages, and remove its statistics."""
    of_column = chunk.get(3)
    of_column.set(2, LIST, List(I32, [_PLAIN, _RLE]))
    of_column.set(6, I64, plain_bytes)
    of_column.set(7, I64, stored_bytes)
    of_column.set(9, I64, start)
    for number in (10, 11, 12, 13, 16):  # index and dictionary pages, statistics of values, pages and sizes
        of_column.remove(number)


def _set_totals(row_group: Struct) -> None:
    columns = [chunk.get(3) for chunk in row_group.get(1).items]
    row_group.set(2, I64, sum(column.get(6) for column in columns))
    row_group.set(6, I64, sum(column.get(7) for column in columns))
