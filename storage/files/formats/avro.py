"""Avro data files.

Source: Java `format/avro/*`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any, Final, TypeAlias, cast

import fastavro
import pyarrow as pa
from fastavro.write import Writer

from tidelake.errors import UnsupportedFeature
from tidelake.storage.files.formats.arrow_conversion import in_column
from tidelake.storage.files.formats.avro_schema import AvroType, avro_schema
from tidelake.storage.files.formats.avro_values import from_values, to_values
from tidelake.storage.files.formats.file_format import (
    BATCH_BYTES_MAX,
    ChunkFilter,
    Edges,
    FormatWriterSettings,
    WantedRows,
    batch_of,
    corruption,
)
from tidelake.storage.files.stats_collection import Bounds, ColumnMinMax, MinMaxCollector
from tidelake.storage.model.format import AVRO_CODECS
from tidelake.storage.model.types import DataField, arrow_schema

Row: TypeAlias = dict[str, Any]

_BLOCK_BYTES: Final = 64_000  # before compression, as in Java


class AvroFormat:
    """See `FileFormat`."""

    def open_writer(
        self, stream: pa.NativeFile, fields: Sequence[DataField], settings: FormatWriterSettings
    ) -> AvroWriter:
        return AvroWriter(stream, fields, settings)

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
        with source:
            rows: list[Row] = []
            rows_bytes = 0
            container = _AvroContainer(source, path, {f.name for f in wanted})
            for block, block_bytes in container.blocks():
                if rows and rows_bytes + block_bytes > batch_bytes:
                    yield container.batch(rows, wanted)
                    rows, rows_bytes = [], 0
                rows += block
                rows_bytes += block_bytes
                while len(rows) >= batch_rows:
                    yield container.batch(rows[:batch_rows], wanted)
                    rows, rows_bytes = rows[batch_rows:], block_bytes
            if rows:
                yield container.batch(rows, wanted)

    def chunk_bounds(self, source: pa.NativeFile, path: str, wanted: Sequence[DataField]) -> Bounds | None:
        source.close()
        return None


# ---------------------------------------------------------------- reading


class _AvroContainer:
    """An Avro object container, which is read block by block, without fastavro's handling of logical types.

    That handling would convert every time and decimal to a Python object, and fails for years after 9999.
    """

    def __init__(self, source: pa.NativeFile, path: str, names: set[str]) -> None:
        self._source = source
        self._path = path
        with self._corruption():
            self._reader = fastavro.block_reader(cast(IO[bytes], _Remaining(source)))
            root: AvroType = self._reader.writer_schema
            # In Java's files of some columns (data evolution) a row is a union of null and a record, and never null.
            schema, is_union = (root[-1], True) if isinstance(root, list) else (root, False)
            self._types = {f["name"]: f["type"] for f in schema["fields"]}
            stored = _without_logical_types(schema)
            wanted = {**stored, "fields": [f for f in stored["fields"] if f["name"] in names]}
            self._stored, self._wanted = (
                fastavro.parse_schema({"type": "array", "items": ["null", record] if is_union else record})
                for record in (stored, wanted)
            )

    def _corruption(self) -> AbstractContextManager[None]:
        return corruption(self._path, "an Avro file with the columns of its schema", self._source.tell)

    def blocks(self) -> Iterator[tuple[list[Row], int]]:
        """Yield the rows of each block, and their size in bytes."""
        while True:
            with self._corruption():
                block = next(self._reader, None)
                if block is None:
                    return
                # The rows of a block, between a count and an end mark, are an Avro array, which is decoded at once.
                content = block.bytes_.getvalue()  # type: ignore[attr-defined]  # missing in the stubs
                data = io.BytesIO(_zigzag(block.num_records) + content + b"\0")
                rows = cast(list[Row], fastavro.schemaless_reader(data, self._stored, self._wanted))
            yield rows, len(content)

    def batch(self, rows: Sequence[Row], wanted: Sequence[DataField]) -> pa.RecordBatch:
        schema = arrow_schema(wanted)
        with self._corruption():
            columns = [self._column(f, rows, kind) for f, kind in zip(wanted, schema.types, strict=True)]
        return batch_of(columns, len(rows), schema)

    def _column(self, field: DataField, rows: Sequence[Row], kind: pa.DataType) -> pa.Array:
        if field.name not in self._types:
            return pa.nulls(len(rows), kind)
        with in_column(field.name):
            return from_values([row[field.name] for row in rows], field.type, self._types[field.name])


class _Remaining:
    """A file that refuses to read beyond its end.

    Otherwise Arrow would allocate as much memory as a damaged length says.
    """

    def __init__(self, source: pa.NativeFile) -> None:
        self._source = source
        self._left = source.size() - source.tell()

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes, or none at the end. Raises ValueError if fewer bytes are left."""
        if size > self._left > 0:
            raise ValueError(f"a length of {size} bytes where {self._left} are left")
        data: bytes = self._source.read(max(0, min(size, self._left)))
        self._left -= len(data)
        return data

    def tell(self) -> int:
        position: int = self._source.tell()
        return position


def _without_logical_types(avro_type: AvroType) -> AvroType:
    if isinstance(avro_type, list):
        return [_without_logical_types(t) for t in avro_type]
    if not isinstance(avro_type, dict):
        return avro_type
    plain = {key: value for key, value in avro_type.items() if key not in ("logicalType", "precision", "scale")}
    for key in ("type", "items", "values"):
        if key in plain:
            plain[key] = _without_logical_types(plain[key])
    if "fields" in plain:
        plain["fields"] = [_without_logical_types(f) for f in plain["fields"]]
    return plain


def _zigzag(number: int) -> bytes:
    """Encode a positive count as Avro's long."""
    out = bytearray()
    rest = number << 1
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


# ---------------------------------------------------------------- writing


class AvroWriter:
    """See `FormatWriter`."""

    def __init__(self, stream: pa.NativeFile, fields: Sequence[DataField], settings: FormatWriterSettings) -> None:
        name = settings.options.get("avro.codec", settings.compression)
        codec = AVRO_CODECS.get(name.lower())
        if codec is None:
            raise UnsupportedFeature(
                f"file.compression = {name}",
                "Avro files can't be compressed with it",
                f"Set one of {', '.join(AVRO_CODECS)}",
            )
        self._stream = stream
        self._fields = fields
        self._min_max = MinMaxCollector(settings.bounds_for)
        self._writer = Writer(
            stream,
            avro_schema(fields),
            codec=codec,
            sync_interval=_BLOCK_BYTES,
            compression_level=settings.zstd_level if codec == "zstandard" else None,
        )

    @property
    def written_bytes(self) -> int:
        return int(self._stream.tell())

    @property
    def stored_ratio(self) -> float | None:
        return None  # no estimate is needed, because blocks are small

    def write(self, batch: pa.RecordBatch) -> None:
        self._min_max.add(batch)
        names = [f.name for f in self._fields]
        columns = [to_values(c, f.type) for c, f in zip(batch.columns, self._fields, strict=True)]
        for row in zip(*columns, strict=True):
            self._writer.write(dict(zip(names, row, strict=True)))

    def close(self) -> ColumnMinMax:
        self._writer.flush()
        return self._min_max.min_max()

    def abort(self) -> None:
        """Do nothing: no rows are buffered."""
