"""ORC data files.

Arrow's writer stores field ids (`paimon.id`), but not the lengths of CHAR and VARCHAR. Java can still read the columns.

Source: Java `format/orc/*`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.files.formats.arrow_conversion import (
    UNITS_PER_SECOND,
    convert_leaves,
    in_column,
    stored_leaf,
    to_arrow_type,
)
from tidelake.storage.files.formats.file_field_ids import with_field_ids
from tidelake.storage.files.formats.file_format import (
    BATCH_BYTES_MAX,
    ChunkFilter,
    Edges,
    FormatWriterSettings,
    WantedRows,
    batch_of,
    corruption,
    format_option,
    parts_of,
    refuse_types,
)
from tidelake.storage.files.formats.orc.timestamps import OrcTail
from tidelake.storage.files.stats_collection import Bounds, ColumnMinMax, MinMaxCollector
from tidelake.storage.model.options.values import parse_size_bytes
from tidelake.storage.model.types import MAX_LENGTH, STRING_ROOTS, AtomicType, DataField, Root, arrow_schema, arrow_type
from tidelake.storage.model.types.arrow_buffers import fixed_width_values, to_single_array

_FIELD_ID_KEY: Final = "paimon.id"
_CODECS: Final = {
    "none": "uncompressed",
    "uncompressed": "uncompressed",
    "snappy": "snappy",
    "zlib": "zlib",
    "lz4": "lz4",
    "zstd": "zstd",
}
_STRIPE_BYTES: Final = 64 * 1024 * 1024
_DICTIONARY_SHARE: Final = 0.8  # the share of distinct values up to which a dictionary is used, as in Java
_STORED_RATIO: Final = 0.4  # an estimate for the rows of the stripe that is not written yet

_EXPECTED: Final = "an ORC file with the columns of its schema"
_SAMPLE_ROWS: Final = 64  # to estimate the size of rows; a scan can't change its batch size later


class OrcFormat:
    """See `FileFormat`."""

    def open_writer(
        self, stream: pa.NativeFile, fields: Sequence[DataField], settings: FormatWriterSettings
    ) -> OrcWriter:
        return OrcWriter(stream, fields, settings)

    def small_files(
        self, rows: pa.RecordBatch, fields: Sequence[DataField], settings: FormatWriterSettings, edges: Edges
    ) -> None:
        return None

    def read(
        self,
        source: pa.NativeFile,
        path: str,
        wanted: Sequence[DataField],
        *,
        batch_rows: int,
        batch_bytes: int = BATCH_BYTES_MAX,
        chunk_filter: ChunkFilter | None = None,
        wanted_rows: WantedRows | None = None,
        use_threads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(wanted)
        with source:
            with corruption(path, _EXPECTED):
                stored_batches = _stored_batches(source, wanted, batch_rows, batch_bytes)
            while True:
                with corruption(path, _EXPECTED):
                    stored = next(stored_batches, None)
                    if stored is None:
                        return
                    stored.validate(full=True)  # ORC has no checksums, and Arrow accepts any bytes as text
                    columns = [_column(stored, f, schema.field(i).type) for i, f in enumerate(wanted)]
                yield batch_of(columns, stored.num_rows, schema)

    def chunk_bounds(self, source: pa.NativeFile, path: str, wanted: Sequence[DataField]) -> Bounds | None:
        source.close()
        return None


# ---------------------------------------------------------------- reading


def _stored_batches(
    source: pa.NativeFile, wanted: Sequence[DataField], batch_rows: int, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    import pyarrow.dataset as ds  # noqa: PLC0415 - it imports pandas if installed, which takes half a second

    file = orc.ORCFile(source)
    tail = OrcTail(file.reader.serialized_file_tail())
    present = [f for f in wanted if file.schema.get_field_index(f.name) >= 0]
    beyond, beyond_nested = (frozenset(names) for names in tail.columns_beyond_nanoseconds())
    for f in present:
        if f.name in beyond_nested:
            raise UnsupportedFeature(
                f"times outside of the years 1677 to 2262 within column {f.name!r} of an ORC file",
                "this release decodes such times only in top-level columns",
                "Rewrite the table with file.format = parquet",
            )
    if not present:
        return _sliced((batch_of([], stripe.rows, pa.schema([])) for stripe in tail.stripes), batch_rows)
    if any(f.name in beyond for f in present):
        return _sliced(_stripes_with_times(file, tail, source, present, beyond), batch_rows)
    fragment = ds.OrcFileFormat().make_fragment(source)
    columns = {f.name: ds.field(f.name) for f in present}

    def scan(rows: int) -> Iterator[pa.RecordBatch]:
        scanner = fragment.scanner(columns=columns, batch_size=rows, batch_readahead=0, use_threads=False)
        return (batch for batch in scanner.to_batches() if batch.num_rows)

    if batch_rows > _SAMPLE_ROWS and (sample := next(scan(_SAMPLE_ROWS), None)) is not None:
        batch_rows = max(1, min(batch_rows, batch_bytes * sample.num_rows // max(1, sample.nbytes)))
    return scan(batch_rows)


def _stripes_with_times(
    file: orc.ORCFile, tail: OrcTail, source: pa.NativeFile, present: Sequence[DataField], beyond: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """Yield whole stripes, with the columns that Arrow can read, and the times that it can't."""
    by_arrow = [f.name for f in present if f.name not in beyond]
    for number, stripe in enumerate(tail.stripes):
        rest = file.read_stripe(number, by_arrow) if by_arrow else None
        columns = {} if rest is None else dict(zip(rest.schema.names, rest.columns, strict=True))
        for f in present:
            if f.name in beyond:
                with in_column(f.name):
                    columns[f.name] = tail.read_times(source, stripe, f.name, arrow_type(f.type))
        yield pa.RecordBatch.from_pydict(columns)


def _sliced(batches: Iterator[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, batch_rows):
            yield batch.slice(start, batch_rows)


def _column(stored: pa.RecordBatch, field: DataField, kind: pa.DataType) -> pa.Array:
    position = stored.schema.get_field_index(field.name)
    if position < 0:
        return pa.nulls(stored.num_rows, kind)
    column = stored.column(position)
    with in_column(field.name):
        if any(part.root is Root.CHAR for part in parts_of(field.type)):
            return convert_leaves(column, field.type, _without_padding)
        return to_arrow_type(column, field.type)


def _without_padding(column: pa.Array, data_type: AtomicType) -> pa.Array:
    """Remove trailing blanks of CHAR, like Java's reader. Java's writer pads CHAR(n) with blanks."""
    column = stored_leaf(column, data_type)
    return pc.ascii_rtrim(column, characters=" ") if data_type.root is Root.CHAR else column


# ---------------------------------------------------------------- writing


class OrcWriter:
    """See `FormatWriter`."""

    def __init__(self, stream: pa.NativeFile, fields: Sequence[DataField], settings: FormatWriterSettings) -> None:
        refuse_types(fields, lambda part: part.root in (Root.VARIANT, Root.VECTOR), "ORC")
        self._stream = stream
        self._fields = fields
        self._schema = with_field_ids(pa.schema([_stored_field(f) for f in fields]), fields, _FIELD_ID_KEY)
        self._min_max = MinMaxCollector(settings.bounds_for)
        self._writer = _opened(stream, settings)
        self._stripe_start = 0
        self._held_bytes = 0
        self._all_bytes = 0  # in-memory bytes of all rows
        self._guess = _STORED_RATIO if settings.stored_ratio is None else settings.stored_ratio
        self.stored_ratio: float | None = None
        self._is_empty = True

    @property
    def written_bytes(self) -> int:
        return int(self._stream.tell() + self._held_bytes * self._guess)

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._min_max.add(batch)
        self._write(pa.Table.from_batches([batch]))
        if self._stream.tell() > self._stripe_start:
            self._stripe_start, self._held_bytes = self._stream.tell(), 0
        self._held_bytes += batch.nbytes
        self._all_bytes += batch.nbytes

    def _write(self, table: pa.Table) -> None:
        columns = [_stored(to_single_array(c), f) for c, f in zip(table.columns, self._fields, strict=True)]
        self._writer.write(pa.Table.from_arrays(columns, schema=self._schema))
        self._is_empty = False

    def close(self) -> ColumnMinMax:
        if self._is_empty:
            self._write(arrow_schema(self._fields).empty_table())  # otherwise Arrow writes no schema
        self._writer.close()
        if self._all_bytes:
            self.stored_ratio = self._stream.tell() / self._all_bytes
        return self._min_max.min_max()

    def abort(self) -> None:
        self._writer.is_open = False  # otherwise its destructor continues to write


def _opened(stream: pa.NativeFile, settings: FormatWriterSettings) -> orc.ORCWriter:
    name = settings.options.get("orc.compress", settings.compression)
    codec = _CODECS.get(name.lower())
    if codec is None:
        raise UnsupportedFeature(
            f"file.compression = {name}", "ORC files can't be compressed with it", f"Set one of {', '.join(_CODECS)}"
        )
    stripe_bytes = settings.block_size_bytes or _STRIPE_BYTES
    return orc.ORCWriter(
        stream,
        compression=codec,
        stripe_size=format_option(settings, "orc.stripe.size", parse_size_bytes, stripe_bytes),
        dictionary_key_size_threshold=format_option(settings, "orc.dictionary.key.threshold", float, _DICTIONARY_SHARE),
    )


def _stored_field(field: DataField) -> pa.Field:
    return pa.field(field.name, _stored(pa.array([], arrow_type(field.type)), field).type)  # ORC columns are nullable


def _stored(column: pa.Array, field: DataField) -> pa.Array:
    return convert_leaves(column, field.type, lambda part, data_type: _stored_leaf(part, data_type, field.name))


def _stored_leaf(column: pa.Array, data_type: AtomicType, name: str) -> pa.Array:
    if data_type.root is Root.TIME:
        return column.cast(pa.int32())
    if data_type.root in STRING_ROOTS and data_type.length < MAX_LENGTH:
        return pc.utf8_slice_codeunits(column, 0, data_type.length)  # Java truncates, too
    if pa.types.is_timestamp(column.type):
        _refuse_early_fractions(column, name)
    return column


def _refuse_early_fractions(column: pa.Array, name: str) -> None:
    """Raise BadInput for fractions of milliseconds before 1970: Java can't read files with such times from Arrow."""
    per_milli = UNITS_PER_SECOND[column.type.unit] // 1000
    if per_milli <= 1:
        return
    ticks = fixed_width_values(column, np.int64)
    wrong = (ticks < 0) & (ticks % per_milli != 0)
    if column.null_count:
        wrong &= column.is_valid().to_numpy(zero_copy_only=False)
    if wrong.any():
        value = column[int(np.flatnonzero(wrong)[0])].cast(pa.string()).as_py()
        raise BadInput(
            f"column {name!r}: {value} is before 1970 and finer than a millisecond, which Java can't read from an ORC "
            "file written here. Set file.format = parquet, or cut the value to milliseconds"
        )
