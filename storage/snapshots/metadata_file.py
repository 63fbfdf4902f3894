"""The records of one metadata file (manifest, manifest list), as bytes.

Written: Avro object containers; Parquet and ORC where option `manifest.format` says so (`columnar_metadata`). Read: all
of them, with any codec; what a file is, its first bytes say.

Source: Java `utils/ObjectsFile.java`, `format/avro/AvroFileFormat.java`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, TypeVar, cast

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from fastavro.types import Schema
from fastavro.write import Writer
from pyarrow import orc

from storage.errors import BadInput, CorruptFile
from storage.snapshots.avro_shapes import AvroSchema

T = TypeVar("T")
Record: TypeAlias = dict[str, Any]

_MAGIC: Final = {b"Obj\x01": "avro", b"PAR1": "parquet", b"ORC": "orc"}
_SYNC_INTERVAL_BYTES: Final = 64_000  # of a block before compression; larger blocks compress better (Java's default)

_AVRO_CODECS: Final = {
    "zstd": "zstandard",
    "none": "null",
    **{codec: codec for codec in ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")},
}


def read_records(data: bytes, path: str, decode: Callable[[Record], T], size_bytes: int | None = None) -> tuple[T, ...]:
    """Every record, decoded one after the other; fields by name.

    path: for messages. size_bytes: how large whoever names the file says it is; a shorter file was cut off, and if that
    happened between two blocks nothing else would tell.
    Raises CorruptFile, also for what `decode` raises: KeyError, TypeError or ValueError for a record of another shape.
    """
    if size_bytes is not None and len(data) < size_bytes:
        raise CorruptFile(path, f"{size_bytes} bytes", f"only {len(data)}", offset=len(data))
    stream = io.BytesIO(data)
    try:
        return tuple(map(decode, _records(data, stream)))
    except _NotMetadataError:
        raise CorruptFile(path, "an Avro, Parquet or ORC file", f"a file that begins with {data[:4]!r}", 0) from None
    except Exception as e:  # whatever the decoder stumbles over: these bytes are not what they should be
        found = f"records without {e}" if isinstance(e, KeyError) else f"{type(e).__name__}: {e}"
        raise CorruptFile(path, "the records of a manifest or manifest list", found, stream.tell() or None) from e


def _records(data: bytes, stream: io.BytesIO) -> Iterable[Record]:
    match format_of_metadata(data):
        case "avro":
            return cast(Iterable[Record], fastavro.reader(stream))
        case "parquet":
            return cast(list[Record], pq.read_table(pa.BufferReader(data)).to_pylist())
        case "orc":
            return cast(list[Record], orc.ORCFile(pa.BufferReader(data)).read().to_pylist())
    raise _NotMetadataError


def format_of_metadata(data: bytes) -> str | None:
    """As option `manifest.format` calls it; None for bytes that are none of it."""
    return next((name for magic, name in _MAGIC.items() if data.startswith(magic)), None)


def file_name(name: str) -> str:
    """A name or path as a record holds it. Raises ValueError for one that no file can have: whoever tries to open it
    would not say where it comes from.
    """
    if "\0" in name:
        raise ValueError(f"{name!r} as the name of a file")
    return name


class _NotMetadataError(Exception):
    """The first bytes are of no format that metadata is kept in."""


class RecordWriter:
    """Builds one Avro container in memory (metadata files are small)."""

    def __init__(self, schema: AvroSchema, codec: str, zstd_level: int) -> None:
        """codec: an Avro name, from `avro_codec`."""
        self._buffer = io.BytesIO()
        self._writer = Writer(
            self._buffer,
            cast(Schema, schema),
            codec=codec,
            sync_interval=_SYNC_INTERVAL_BYTES,
            compression_level=zstd_level if codec == "zstandard" else None,
        )

    def write(self, records: Iterable[Record]) -> None:
        for record in records:
            self._writer.write(record)

    @property
    def size_bytes(self) -> int:
        """Of the blocks that are complete."""
        return self._buffer.tell()

    def finish(self) -> bytes:
        self._writer.flush()
        return self._buffer.getvalue()


def avro_codec(compression: str) -> str:
    """The Avro name of a value of option `manifest.compression`. Raises BadInput."""
    codec = _AVRO_CODECS.get(compression.lower())
    if codec is None:
        raise BadInput(f"option manifest.compression = {compression!r}: expected one of {', '.join(_AVRO_CODECS)}")
    return codec
