"""Writes Parquet data files like Java: with field ids, the same physical types (integers for short decimals, INT96 for
times finer than a microsecond), and page checksums, but without an Arrow schema.

Source: Java `format/parquet/*`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.files.formats.arrow_conversion import (
    INT96,
    convert_leaves,
    encode_int96,
    stored_leaf,
    variant,
)
from tidelake.storage.files.formats.file_field_ids import leaves_of, with_field_ids
from tidelake.storage.files.formats.file_format import (
    LARGE_ROW_BYTES,
    Edges,
    FormatWriterSettings,
    format_option,
    one_large_row_group,
    parts_of,
)
from tidelake.storage.files.formats.parquet_bounds import ChunkMinMax
from tidelake.storage.files.formats.parquet_encodings import Encodings, choose_encodings
from tidelake.storage.files.formats.parquet_footer import MAGIC, binary_as_int96, framed
from tidelake.storage.files.formats.parquet_large_values import CODECS as LARGE_VALUES_CODECS
from tidelake.storage.files.formats.parquet_large_values import joined, large_columns, read_footer, write_row_group
from tidelake.storage.files.formats.parquet_small_files import EncodedSmallFiles, encode_small_files
from tidelake.storage.files.stats_collection import ColumnMinMax
from tidelake.storage.model.format import PARQUET_CODECS
from tidelake.storage.model.options.values import parse_boolean, parse_size_bytes
from tidelake.storage.model.types import AtomicType, DataField, DataType, Root, RowType, arrow_type
from tidelake.storage.model.types.arrow_buffers import to_single_array

_FIELD_ID_KEY: Final = "PARQUET:field_id"

# Rows are kept in memory until a row group is complete: Arrow writes a whole row group, column by column.
ROW_GROUP_HELD_BYTES: Final = 64 * 1024 * 1024
_WIDE_ROW_BYTES: Final = 16 * 1024  # of such rows only half as much is kept: their column chunks are still large
_ROW_GROUP_ROWS: Final = 1024 * 1024
# Since pyarrow 23 a page has at most 20,000 rows unless told otherwise; before, only its bytes counted. Since then, a
# TIME column can also be marked as in Java's files. Readers of Paimon do not look at that mark.
_SINCE_PYARROW_23: Final[dict[str, Any]] = (
    {"max_rows_per_page": _ROW_GROUP_ROWS, "write_time_adjusted_to_utc": True}
    if int(pa.__version__.split(".")[0]) >= 23
    else {}
)
_PAGE_BYTES: Final = 1024 * 1024
_PAGE_STEP_ROWS: Final = 1024  # Arrow checks whether a page is full after so many values
_INITIAL_STORED_RATIO: Final = 1.0  # until a row group is written: as without compression
_COMPRESSED_BYTES_MIN: Final = 512  # the minimum size of a small file's column that is compressed
_PLAIN_PAGE_BYTES: Final = 64 * 1024  # more than the size of a column with a few rows
_LEAST_ROWS: Final = 1_000  # the minimum rows of a part of a batch, regardless of their size

_DICTIONARY: Final = "parquet.enable.dictionary"


class ParquetWriter:
    """See `FormatWriter`."""

    def __init__(self, stream: pa.NativeFile, fields: Sequence[DataField], settings: FormatWriterSettings) -> None:
        self._stream = stream
        self._settings = settings
        self._options = _WriterOptions(settings)
        self._fields = fields
        self._form = _stored_form(tuple(fields))
        self._min_max = ChunkMinMax(fields, settings.bounds_for, settings.bounds_length)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._held_rows = 0
        self.stored_ratio = settings.stored_ratio
        self._has_large_rows = False  # in the file's first row group
        self._writer: pq.ParquetWriter | None = None
        self._footer_catcher: _FooterCatcher | None = None
        self._metadata: list[pq.FileMetaData] = []  # one footer; one more for each row group with large values
        self._is_joined = False

    @property
    def written_bytes(self) -> int:
        return int(self._stream.tell() + self._held_bytes_stored)

    @property
    def _held_bytes_stored(self) -> float:
        """The approximate size in the file of the rows in memory."""
        return self._stored_bytes(self._held_bytes)

    def _stored_bytes(self, held_bytes: int) -> float:
        return held_bytes * (_INITIAL_STORED_RATIO if self.stored_ratio is None else self.stored_ratio)

    def write(self, batch: pa.RecordBatch) -> None:
        start = 0
        batch_bytes = batch.nbytes  # computed once: it takes as long as ten slices
        while start < batch.num_rows:
            part = batch.slice(start, self._rows_that_fit(batch.num_rows, batch_bytes))
            start += part.num_rows
            self._held.append(part)
            self._held_bytes += batch_bytes if part.num_rows == batch.num_rows else part.nbytes
            self._held_rows += part.num_rows
            if self._is_row_group():
                self._write_row_group()

    def _rows_that_fit(self, batch_rows: int, batch_bytes: int) -> int:
        """Return how many rows of this batch fit into the open row group, approximately."""
        if (limit := self._limit_bytes) is None or not batch_bytes:
            return self._options.row_group_rows
        share = (limit - self._held_bytes_stored) / (self._stored_bytes(batch_bytes))
        return min(self._options.row_group_rows, max(_LEAST_ROWS, int(share * batch_rows)))

    @property
    def _limit_bytes(self) -> float | None:
        """The maximum size of the open row group in the file; None means no limit."""
        limits: list[float] = [] if self._options.row_group_bytes is None else [self._options.row_group_bytes]
        if self.stored_ratio is None and self._settings.target_bytes is not None:
            # A guess can't decide whether the file is full. An early row group shows how well the rows compress.
            limits.append(self._settings.target_bytes / 2)
        return min(limits, default=None)

    def _is_row_group(self) -> bool:
        held_bytes_max = ROW_GROUP_HELD_BYTES // (2 if self._holds_wide_rows else 1)
        if self._held_bytes >= held_bytes_max or self._held_rows >= self._options.row_group_rows:
            return True
        if self._holds_large_rows:
            return True
        limit = self._limit_bytes
        return limit is not None and self._held_bytes_stored >= limit

    @property
    def _holds_large_rows(self) -> bool:
        return self._held_bytes >= LARGE_ROW_BYTES * self._held_rows

    @property
    def _holds_wide_rows(self) -> bool:
        return self._held_bytes >= _WIDE_ROW_BYTES * self._held_rows

    def _write_row_group(self) -> None:
        is_wide = self._holds_wide_rows
        before = self._stream.tell()
        with _as_bad_input():
            if self._writer is None:
                self._has_large_rows = self._holds_large_rows
            columns = [pa.chunked_array(parts) for parts in zip(*(b.columns for b in self._held), strict=True)]
            table = self._stored(pa.Table.from_arrays(columns, names=[f.name for f in self._fields]))
            with one_large_row_group if self._holds_large_rows else nullcontext():
                self._write_table(table)
        self.stored_ratio = (self._stream.tell() - before) / max(1, self._held_bytes)
        self._held, self._held_bytes, self._held_rows = [], 0, 0
        if is_wide or self._has_large_rows:
            pa.default_memory_pool().release_unused()

    def _write_table(self, table: pa.Table) -> None:
        large = large_columns(table) if self._holds_large_rows and self._options.codec in LARGE_VALUES_CODECS else []
        encodings = self._options.encodings(table.drop_columns(large))
        if large or self._is_joined:
            self._close_arrow_writer()
            arguments = self._options.writer_arguments(self._form, encodings, frozenset[str]())
            self._metadata.append(write_row_group(self._stream, table, large, arguments))
            self._is_joined = True
            return
        if self._writer is None:
            self._writer = self._opened(encodings)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def _stored(self, table: pa.Table) -> pa.Table:
        """Convert the row group to the form that Arrow writes, and collect its bounds."""
        self._min_max.add_row_group(
            table, lacks_footer=self._has_large_rows or self._holds_large_rows or self._is_joined
        )
        return _as_stored(table, self._fields, self._form)

    def _opened(self, encodings: Encodings) -> pq.ParquetWriter:
        sink = self._stream
        if self._form.int96_leaves:
            self._footer_catcher = _FooterCatcher(self._stream)
            sink = pa.PythonFile(self._footer_catcher, mode="w")
        # No statistics for a file of large rows: Arrow copies a value six times to compute them, and then omits
        # those longer than 4 KiB.
        bounds_for = frozenset[str]() if self._has_large_rows else self._settings.bounds_for
        arguments = self._options.writer_arguments(self._form, encodings, bounds_for)
        row_bytes = max(1, self._held_bytes // max(1, self._held_rows))
        arguments["write_batch_size"] = max(1, min(_PAGE_STEP_ROWS, self._options.page_bytes // row_bytes))
        return pq.ParquetWriter(sink, self._form.schema, **arguments, metadata_collector=self._metadata)

    def close(self) -> ColumnMinMax:
        if self._held:
            self._write_row_group()
        if self._writer is None and not self._is_joined:
            self._writer = self._opened(Encodings(frozenset(), frozenset()))
        footer = self._close_arrow_writer()
        if self._is_joined:
            footer = joined(self._metadata)
            self._metadata = [read_footer(footer)]
        if footer is not None:
            self._stream.write(framed(binary_as_int96(footer, self._form.int96_leaves)))
        return self._min_max.of_file(self._metadata[0])

    def _close_arrow_writer(self) -> bytes | None:
        """Close Arrow's writer. Returns its footer, unless it is in the file already."""
        writer, self._writer = self._writer, None
        catcher, self._footer_catcher = self._footer_catcher, None
        if writer is None:
            return None
        if catcher is None:
            writer.close()
            return None
        with catcher as caught:
            writer.close()
        return caught.footer

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.is_open = False  # otherwise its destructor writes a footer
        self._held = []


class SmallParquetFiles:
    """`SmallFiles` in Parquet. Rows are converted, and encodings are chosen, once for all files.

    Columns with a few hundred bytes per file are not compressed, with any codec: they would hardly become smaller, and
    compression takes as long as everything else. If all columns are so small, they need no dictionary either. Then
    Arrow writes only the first file (`parquet_small_files`).
    """

    def __init__(
        self, rows: pa.RecordBatch, fields: Sequence[DataField], settings: FormatWriterSettings, edges: Edges
    ) -> None:
        count = max(0, len(edges) - 1)
        self._edges = edges.tolist()
        options = _WriterOptions(settings)
        self._form = _stored_form(tuple(fields))
        named = rows.rename_columns([f.name for f in fields])
        with _as_bad_input():
            self._table = _as_stored(pa.Table.from_batches([named]), fields, self._form)
        self._arguments = options.writer_arguments(self._form, options.encodings(self._table), settings.bounds_for)
        codecs = {
            path: "NONE" if column.nbytes < _COMPRESSED_BYTES_MIN * count else options.codec
            for f, column in zip(self._table.schema, self._table.columns, strict=True)
            for path, _ in leaves_of(f.name, f.type)
        }
        if "NONE" in codecs.values() and options.codec != "NONE":
            level = self._arguments["compression_level"]
            levels = None if level is None else {path: level for path, codec in codecs.items() if codec != "NONE"}
            self._arguments |= {"compression": codecs, "compression_level": levels or None}
        is_plain = {*codecs.values()} <= {"NONE"} and options.may_be_plain and not self._form.int96_leaves
        self._plain = self._encoded_files(edges, settings.bounds_for) if is_plain else None

    def _encoded_files(self, edges: Edges, bounds_for: Collection[str]) -> EncodedSmallFiles | None:
        form = {"use_dictionary": False, "column_encoding": None, "compression": "NONE", "compression_level": None}
        first = self._written(edges[0], edges[1], {**self._arguments, **form}) if len(edges) > 1 else b""
        return encode_small_files(self._table, edges, first, bounds_for)

    def file(self, number: int) -> bytes:
        if self._plain is not None and self._plain.can_encode(number):
            return self._plain.file(number)
        return self._written(self._edges[number], self._edges[number + 1], self._arguments)

    def _written(self, start: int, stop: int, arguments: Mapping[str, Any]) -> bytes:
        stream = pa.BufferOutputStream()
        with _as_bad_input(), pq.ParquetWriter(stream, self._form.schema, **arguments) as writer:
            writer.write_table(self._table.slice(start, stop - start), row_group_size=stop - start)
        found = bytes(stream.getvalue())
        if not self._form.int96_leaves:
            return found
        footer_start = len(found) - len(MAGIC) - 4 - int.from_bytes(found[-8:-4], "little")
        footer = binary_as_int96(found[footer_start : -4 - len(MAGIC)], self._form.int96_leaves)
        return found[:footer_start] + framed(footer)


def _as_stored(table: pa.Table, fields: Sequence[DataField], form: _StoredForm) -> pa.Table:
    columns = []
    for column, f in zip(table.columns, fields, strict=True):
        if f.name not in form.rebuilt:
            columns.append(column)
            continue
        with _as_bad_input(f.name):
            columns.append(convert_leaves(to_single_array(column), f.type, _stored_leaf))
    return pa.Table.from_arrays(columns, schema=form.schema)


def _has_required_parts(data_type: DataType) -> bool:
    """Return whether a null of the type may contain nulls of required fields, which Parquet does not allow."""
    if isinstance(data_type, RowType):
        return any(not f.type.nullable for f in data_type.fields)
    return data_type.root is Root.VARIANT


@contextmanager
def _as_bad_input(column: str | None = None) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as e:
        where = "" if column is None else f"column {column!r}: "
        reason = str(e).splitlines()[0]
        if "cast from Decimal" in reason:
            reason += "; a sum has outgrown its DECIMAL: change the column to one of more digits"
        raise BadInput(f"{where}these rows don't fit a Parquet file: {reason}") from None


class _FooterCatcher:
    """A file that passes all bytes on, but keeps the bytes that are written in its `with` block."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self._caught: bytearray | None = None
        self.closed = False

    def __enter__(self) -> _FooterCatcher:
        self._caught = bytearray()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, data: bytes) -> int:
        if self._caught is None:
            self._stream.write(data)
        else:
            self._caught += data
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    @property
    def footer(self) -> bytes:
        """The kept footer, without its length and the magic bytes."""
        assert self._caught is not None
        return bytes(self._caught[: -4 - len(MAGIC)])


class _WriterOptions:
    """The table options for Parquet files. Like in Java, their names are those of parquet-mr."""

    def __init__(self, settings: FormatWriterSettings) -> None:
        codec = PARQUET_CODECS.get(settings.compression.lower())
        if codec is None:
            raise UnsupportedFeature(
                f"file.compression = {settings.compression}",
                "Parquet files can't be compressed with it here",
                f"Set one of {', '.join(PARQUET_CODECS)}",
            )
        self.codec = codec
        self.zstd_level = format_option(settings, "parquet.compression.codec.zstd.level", int, settings.zstd_level)
        self.page_bytes = format_option(settings, "parquet.page.size", parse_size_bytes, _PAGE_BYTES)
        self.row_group_bytes = format_option(
            settings, "parquet.block.size", parse_size_bytes, settings.block_size_bytes
        )
        block_rows = settings.block_rows if self.row_group_bytes is None else None
        self.row_group_rows = block_rows or _ROW_GROUP_ROWS
        self._dictionary = format_option(settings, _DICTIONARY, parse_boolean, None)
        self._dictionary_of = {
            key.removeprefix(_DICTIONARY + "#"): format_option(settings, key, parse_boolean, False)
            for key in settings.options
            if key.startswith(_DICTIONARY + "#")
        }
        # the first version of the format has no differences
        version = settings.options.get("parquet.writer.version", "")
        self._delta = version.strip().lower() not in ("v1", "parquet_1_0")

    @property
    def may_be_plain(self) -> bool:
        """Whether a few rows may be stored in one page per column, without a dictionary."""
        return not self._dictionary and not any(self._dictionary_of.values()) and self.page_bytes >= _PLAIN_PAGE_BYTES

    def writer_arguments(self, form: _StoredForm, encodings: Encodings, bounds_for: Collection[str]) -> dict[str, Any]:
        """Return the arguments of `pq.ParquetWriter`.

        bounds_for: the columns with bounds in the footer, too. Readers skip row groups by them.
        """
        return {
            "compression": self.codec,
            "compression_level": self.zstd_level if self.codec == "ZSTD" else None,
            "use_dictionary": sorted(encodings.dictionary),
            "column_encoding": dict.fromkeys(sorted(encodings.delta), "DELTA_BINARY_PACKED") or None,
            "write_statistics": [f.name for f in form.schema if f.name in bounds_for and f.type != INT96],
            "data_page_size": self.page_bytes,
            **_SINCE_PYARROW_23,
            "store_schema": False,
            "store_decimal_as_integer": True,
            "write_page_checksum": True,
        }

    def encodings(self, table: pa.Table) -> Encodings:
        return choose_encodings(table, dictionary=self._dictionary, per_column=self._dictionary_of, delta=self._delta)


def _stored_leaf(column: pa.Array, data_type: AtomicType) -> pa.Array:
    """Convert values to the form that Arrow writes: times in nanoseconds become the bytes of INT96."""
    if data_type.root is Root.VARIANT:
        return variant(column, arrow_type(data_type))
    in_nanoseconds = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    return encode_int96(column) if in_nanoseconds else stored_leaf(column, data_type)


@dataclass(frozen=True, slots=True)
class _StoredForm:
    """The form of columns in a file.

    schema: the schema with field ids.
    rebuilt: the columns whose stored form differs from the in-memory form.
    int96_leaves: the numbers of the INT96 leaves.
    """

    schema: pa.Schema
    rebuilt: frozenset[str]
    int96_leaves: tuple[int, ...]


@lru_cache(maxsize=256)  # called for each file, and all files of a table have the same form
def _stored_form(fields: tuple[DataField, ...]) -> _StoredForm:
    stored = pa.schema([_stored_field(f) for f in fields])
    rebuilt = {f.name for f, s in zip(fields, stored, strict=True) if s.type != arrow_type(f.type)}
    rebuilt |= {f.name for f in fields if any(map(_has_required_parts, parts_of(f.type)))}
    leaves = [kind for f in stored for _, kind in leaves_of(f.name, f.type)]
    int96_leaves = tuple(number for number, kind in enumerate(leaves) if kind == INT96)
    return _StoredForm(with_field_ids(stored, fields, _FIELD_ID_KEY), frozenset(rebuilt), int96_leaves)


def _stored_field(field: DataField) -> pa.Field:
    empty = pa.array([], arrow_type(field.type))
    return pa.field(field.name, convert_leaves(empty, field.type, _stored_leaf).type, field.type.nullable)
