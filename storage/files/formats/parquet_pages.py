"""Reads only those pages of a Parquet row group that have wanted rows. Other pages are not decompressed.

Arrow decodes whole column chunks. So the headers of the pages are read here, and Arrow decodes a file in memory that
has only the wanted pages of one column. This works for flat columns, whose pages have as many values as rows.

Source: apache/parquet-format `parquet.thrift`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tidelake.storage.files.formats.parquet_footer import INT96, MAGIC, framed, int96_as_binary, schema_elements
from tidelake.storage.files.formats.thrift import BINARY, I32, I64, LIST, STRUCT, List, Struct, parse_first, serialize

_ROWS_MIN: Final = 4_096  # of a smaller row group all rows are decoded
_BLOCK_ROWS: Final = 4_096  # if half of the blocks have wanted rows, so will most pages
_HEADER_BYTES: Final = 512  # more than a header, unless it has bounds of long texts
_HEADER_BYTES_MAX: Final = 64 * 1024

_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3  # enum PageType
_PLAIN: Final = 0  # enum Encoding. Arrow looks at the encodings of pages, not at those in the footer.
_CODECS: Final = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "LZO": 3, "BROTLI": 4, "ZSTD": 6}


@dataclass(frozen=True, slots=True)
class _Page:
    """The place of a data page in the file, with its header, and the rows in it, counted from the row group's start."""

    start: int
    size_bytes: int
    content_bytes: int
    rows: range


@dataclass(frozen=True, slots=True)
class _ColumnPages:
    """The wanted pages of a column.

    name: of the column
    start, dictionary_bytes: the place of the dictionary page; 0 bytes if there is none
    footer: of the file in memory
    """

    name: str
    start: int
    dictionary_bytes: int
    pages: Sequence[_Page]
    footer: bytes

    def file(self, source: pa.NativeFile) -> pa.Buffer:
        """Return a Parquet file with these pages."""
        parts = [MAGIC]
        if self.dictionary_bytes:
            parts.append(_bytes_at(source, self.start, self.dictionary_bytes))
        parts += [_bytes_at(source, page.start, page.size_bytes) for page in self.pages]
        return pa.py_buffer(b"".join((*parts, framed(self.footer))))


class WantedPages:
    """The pages of a row group that have wanted rows."""

    def __init__(self, columns: Sequence[_ColumnPages], wanted: NDArray[np.bool_]) -> None:
        self._columns = columns
        self._wanted = wanted

    @classmethod
    def of(
        cls,
        source: pa.NativeFile,
        metadata: pq.FileMetaData,
        row_group: int,
        leaves: Mapping[str, int],
        wanted: NDArray[np.bool_],
    ) -> WantedPages | None:
        """Locate the pages. None if most of the row group is wanted, or if it must be decoded as a whole.

        source: a local file: the header of each page is read separately
        leaves: flat columns, and their numbers
        wanted (rows of the row group,): which rows are wanted
        """
        if len(wanted) < _ROWS_MIN or not wanted.any() or _most_blocks(wanted):
            return None
        if b"ARROW:schema" in (metadata.metadata or {}):
            return None  # a writer other than Paimon's may have types that only this schema tells
        group = metadata.row_group(row_group)
        elements = schema_elements(_footer_of(source))
        columns: list[_ColumnPages] = []
        kept_bytes = all_bytes = 0
        for name, leaf in leaves.items():
            chunk = group.column(leaf)
            if name not in elements or chunk.compression not in _CODECS:
                return None
            try:
                start, dictionary_bytes, pages = _pages_of(source, chunk)
            except ValueError:
                return None  # Arrow decodes the whole column, and reports what is wrong
            if not pages or pages[-1].rows.stop != len(wanted):
                return None
            kept = [page for page in pages if wanted[page.rows.start : page.rows.stop].any()]
            all_bytes += dictionary_bytes + sum(page.content_bytes for page in pages)
            kept_bytes += dictionary_bytes + sum(page.content_bytes for page in kept)
            footer = _footer(elements[name], chunk, dictionary_bytes, kept)
            columns.append(_ColumnPages(name, start, dictionary_bytes, kept, footer))
        return None if 2 * kept_bytes > all_bytes else cls(columns, wanted)

    def files(self, source: pa.NativeFile) -> Iterator[tuple[str, pa.Buffer, NDArray[np.bool_]]]:
        """Yield each column: its name, a Parquet file of its wanted pages, and which rows of that file are wanted."""
        for column in self._columns:
            parts = [self._wanted[page.rows.start : page.rows.stop] for page in column.pages]
            yield column.name, column.file(source), np.concatenate(parts)


def _most_blocks(wanted: NDArray[np.bool_]) -> bool:
    blocks = np.logical_or.reduceat(wanted, np.arange(0, len(wanted), _BLOCK_ROWS))
    return bool(2 * np.count_nonzero(blocks) > len(blocks))


def _pages_of(source: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> tuple[int, int, list[_Page]]:
    """Return the place and the size of the dictionary page, and the data pages. Raises ValueError if it is damaged."""
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        at = min(at, chunk.dictionary_page_offset)
    start, stop = at, at + chunk.total_compressed_size
    dictionary_bytes, rows = 0, 0
    pages: list[_Page] = []
    while rows < chunk.num_values:
        header, header_bytes = _header_at(source, at)
        content_bytes, stored_bytes, kind = header.get(2), header.get(3), header.get(1)
        if stored_bytes is None or stored_bytes < 0 or content_bytes is None:
            raise ValueError("a page without a size")
        size_bytes = header_bytes + stored_bytes
        if at + size_bytes > stop:
            raise ValueError("a page beyond the end of its column chunk")
        if kind == _DICTIONARY_PAGE and at == start:
            dictionary_bytes = size_bytes
        elif kind in (_DATA_PAGE, _DATA_PAGE_V2):
            numbers = header.get(5 if kind == _DATA_PAGE else 8)
            values = None if numbers is None else numbers.get(1)
            if values is None or values < 1:
                raise ValueError("a page without values")
            pages.append(_Page(at, size_bytes, content_bytes, range(rows, rows + values)))
            rows += values
        else:
            raise ValueError(f"a page of kind {kind}")
        at += size_bytes
    return start, dictionary_bytes, pages


def _header_at(source: pa.NativeFile, at: int) -> tuple[Struct, int]:
    """Return a page header and its size. Raises ValueError."""
    try:
        return parse_first(_bytes_at(source, at, _HEADER_BYTES))
    except ValueError:
        return parse_first(_bytes_at(source, at, _HEADER_BYTES_MAX))


def _bytes_at(source: pa.NativeFile, at: int, size_bytes: int) -> bytes:
    source.seek(at)
    return bytes(source.read(size_bytes))


def _footer_of(source: pa.NativeFile) -> bytes:
    end = source.size()
    size_bytes = int.from_bytes(_bytes_at(source, end - 8, 4), "little")
    return _bytes_at(source, end - 8 - size_bytes, size_bytes)


def _footer(element: Struct, chunk: pq.ColumnChunkMetaData, dictionary_bytes: int, pages: Sequence[_Page]) -> bytes:
    """Return the footer of a file with these pages of one column, after the magic bytes and the dictionary."""
    first = len(MAGIC)
    rows = sum(len(page.rows) for page in pages)
    size_bytes = dictionary_bytes + sum(page.size_bytes for page in pages)
    column = _struct(
        {
            1: (I32, element.get(1)),
            2: (LIST, List(I32, [_PLAIN])),
            3: (LIST, List(BINARY, [element.get(4)])),
            4: (I32, _CODECS[chunk.compression]),
            5: (I64, rows),
            6: (I64, size_bytes),
            7: (I64, size_bytes),
            9: (I64, first + dictionary_bytes),
            **({11: (I64, first)} if dictionary_bytes else {}),
        }
    )
    group = _struct(
        {
            1: (LIST, List(STRUCT, [_struct({2: (I64, 0), 3: (STRUCT, column)})])),
            2: (I64, size_bytes),
            3: (I64, rows),
        }
    )
    root = _struct({4: (BINARY, b"root"), 5: (I32, 1)})
    footer = serialize(
        _struct(
            {
                1: (I32, 2),
                2: (LIST, List(STRUCT, [root, element])),
                3: (I64, rows),
                4: (LIST, List(STRUCT, [group])),
            }
        )
    )
    return int96_as_binary(footer) if element.get(1) == INT96 else footer


def _struct(fields: Mapping[int, tuple[int, object]]) -> Struct:
    found = Struct()
    found.fields = dict(fields)
    return found
