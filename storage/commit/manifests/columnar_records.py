"""Writes the records of a metadata file as Parquet or ORC, the values of option `manifest.format` other than Avro.

Java up to 2.0 writes the format of the option, and reads every manifest of the table in this format, whatever the file
has. Later releases support only Avro. So all manifests of a table must have one format:
`tidelake.storage.ddl.option_changes` refuses to change the option once there are snapshots, and
`tidelake.storage.maintenance.verify` reports files of another format. Columns, nesting and types are those of the Avro
records, as Java defines them; Java finds columns by name.

Source: Java `utils/ObjectsFile.java` (1.x, 2.0), `format/parquet/*`, `format/orc/*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from tidelake.errors import BadInput
from tidelake.storage.commit.manifests.avro_schemas import AvroSchema
from tidelake.storage.commit.manifests.record_file import AvroRecordWriter, Record, avro_codec
from tidelake.storage.model.format import PARQUET_CODECS

MANIFEST_FORMATS: Final = ("avro", "parquet", "orc")

_ORC_CODECS: Final = {
    "none": "uncompressed",
    "snappy": "snappy",
    "zlib": "zlib",
    "lz4": "lz4",
    "zstd": "zstd",
}
_STRIPE_BYTES: Final = 1 << 20  # small, because the size of the file is only known after each stripe

_ATOMIC: Final = {"int": pa.int32(), "long": pa.int64(), "bytes": pa.binary(), "string": pa.string()}
_TINYINT_COLUMNS: Final = frozenset({"_KIND", "_FILE_SOURCE"})  # columns of type TINYINT, which Avro lacks


class MetadataWriter(Protocol):
    """Collects records and returns the whole file at the end.

    size_bytes: the size so far, as far as known.
    """

    @property
    def size_bytes(self) -> int: ...
    def write(self, records: Iterable[Record]) -> None: ...
    def finish(self) -> bytes: ...


def metadata_writer(schema: AvroSchema, file_format: str, compression: str, zstd_level: int) -> MetadataWriter:
    """Return a writer for the values of options `manifest.format` and `manifest.compression`. Raises BadInput."""
    match file_format.lower():
        case "avro":
            return AvroRecordWriter(schema, avro_codec(compression), zstd_level)
        case "parquet":
            return ParquetRecordWriter(schema, _codec(compression, PARQUET_CODECS, "Parquet"), zstd_level)
        case "orc":
            return OrcRecordWriter(schema, _codec(compression, _ORC_CODECS, "ORC"))
    raise BadInput(f"option manifest.format = {file_format!r}: expected one of {', '.join(MANIFEST_FORMATS)}")


def _codec(compression: str, codecs: Mapping[str, str], of: str) -> str:
    codec = codecs.get(compression.lower())
    if codec is None:
        raise BadInput(f"option manifest.compression = {compression!r}: {of} manifests take one of {', '.join(codecs)}")
    return codec


class ParquetRecordWriter:
    def __init__(self, schema: AvroSchema, codec: str, zstd_level: int) -> None:
        self._schema = arrow_schema_of(schema)
        self._sink = pa.BufferOutputStream()
        level = zstd_level if codec == "ZSTD" else None
        self._writer = pq.ParquetWriter(
            self._sink, self._schema, compression=codec, compression_level=level, store_schema=False
        )

    @property
    def size_bytes(self) -> int:
        return int(self._sink.tell())

    def write(self, records: Iterable[Record]) -> None:
        self._writer.write_batch(pa.RecordBatch.from_pylist(list(records), self._schema))

    def finish(self) -> bytes:
        self._writer.close()
        return bytes(self._sink.getvalue())


class OrcRecordWriter:
    def __init__(self, schema: AvroSchema, codec: str) -> None:
        self._schema = arrow_schema_of(schema)
        self._sink = pa.BufferOutputStream()
        self._writer = orc.ORCWriter(self._sink, compression=codec, stripe_size=_STRIPE_BYTES)
        self._is_empty = True

    @property
    def size_bytes(self) -> int:
        return int(self._sink.tell())

    def write(self, records: Iterable[Record]) -> None:
        self._writer.write(pa.Table.from_pylist(list(records), self._schema))
        self._is_empty = False

    def finish(self) -> bytes:
        if self._is_empty:
            self.write(())  # writes the columns
        self._writer.close()
        return bytes(self._sink.getvalue())


def arrow_schema_of(schema: AvroSchema) -> pa.Schema:
    return pa.schema([_field(field) for field in schema["fields"]])


def _field(field: Mapping[str, Any]) -> pa.Field:
    name, kind = field["name"], field["type"]
    is_nullable = isinstance(kind, list)
    arrow_type = pa.int8() if name in _TINYINT_COLUMNS else _arrow_type(kind[1] if is_nullable else kind)
    return pa.field(name, arrow_type, nullable=is_nullable)


def _arrow_type(kind: Any) -> pa.DataType:
    match kind:
        case str():
            return _ATOMIC[kind]
        case {"logicalType": "timestamp-millis"}:
            return pa.timestamp("ms")
        case {"type": "array", "items": [_, items]}:
            return pa.list_(pa.field("element", _arrow_type(items)))
        case {"type": "array", "items": items}:
            return pa.list_(pa.field("element", _arrow_type(items), nullable=False))
        case {"type": "record", "fields": fields}:
            return pa.struct([_field(field) for field in fields])
    raise AssertionError(f"no Arrow type for {kind!r}")
