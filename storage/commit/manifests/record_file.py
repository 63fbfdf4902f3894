"""Encodes and decodes the records of one metadata file (manifest, manifest list).

Files are written as Avro object containers, or as Parquet or ORC if option `manifest.format` says so
(`columnar_records`). All formats and codecs can be read; the first bytes of a file identify its format.

Source: Java `utils/ObjectsFile.java`, `format/avro/AvroFileFormat.java`.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar, cast

import cramjam
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from fastavro.types import Schema
from fastavro.write import Writer, schemaless_writer
from pyarrow import orc

from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.base import env
from tidelake.storage.base.garbage_collection import paused_collection
from tidelake.storage.commit.manifests.avro_schemas import AvroSchema
from tidelake.storage.model.format import AVRO_CODECS

T = TypeVar("T")
Record: TypeAlias = dict[str, Any]

_MAGIC: Final = {b"Obj\x01": "avro", b"PAR1": "parquet", b"ORC": "orc"}
_SYNC_MARKER_BYTES: Final = 16
_SYNC_INTERVAL_BYTES: Final = 64_000  # uncompressed size of a block; larger ones compress better (Java's default)


def read_records(data: bytes, path: str, decode: Callable[[Record], T], size_bytes: int | None = None) -> tuple[T, ...]:
    """Decode all records, one after the other; fields are found by name.

    path: for error messages.
    size_bytes: the size in the metadata that names the file. A shorter file is truncated. Without this check, a file
        that was truncated between two blocks would look complete.
    Raises CorruptFile, also for KeyError, TypeError or ValueError of `decode` for a record of another form.
    """
    if size_bytes is not None and len(data) < size_bytes:
        raise CorruptFile(path, f"{size_bytes} bytes", f"only {len(data)}", offset=len(data))
    stream = io.BytesIO(data)
    try:
        with paused_collection():
            return tuple(map(decode, _records(data, stream)))
    except _NotMetadataError:
        raise CorruptFile(path, "an Avro, Parquet or ORC file", f"a file that begins with {data[:4]!r}", 0) from None
    except Exception as e:  # any error of the decoder: the bytes are invalid
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
    """Return the format as in option `manifest.format`; None for bytes of no such format."""
    return next((name for magic, name in _MAGIC.items() if data.startswith(magic)), None)


def file_name(name: str) -> str:
    """Return a name or path of a record. Raises ValueError for one that no file can have.

    Opening such a file would fail without a hint to the record.
    """
    if "\0" in name:
        raise ValueError(f"{name!r} as the name of a file")
    return name


class _NotMetadataError(Exception):
    """The first bytes are of no metadata format."""


class AvroRecordWriter:
    """Builds one Avro container in memory (metadata files are small).

    Only records are encoded with fastavro. Its own writer processes the schema twice for each file, to produce the same
    header again, which took longer than the records of a commit.
    """

    def __init__(self, schema: AvroSchema, codec: str, zstd_level: int) -> None:
        """Prepare the parts that all files share.

        schema: a constant object that never changes.
        codec: an Avro name, from `avro_codec`.
        """
        self._parsed, header = _beginning(schema, codec)
        self._compress = _COMPRESSORS[codec]
        self._zstd_level = zstd_level
        self._sync_marker = env.random_bytes(_SYNC_MARKER_BYTES)
        self._file = io.BytesIO()
        self._file.write(header + self._sync_marker)
        self._block = io.BytesIO()
        self._block_records = 0

    def write(self, records: Iterable[Record]) -> None:
        for record in records:
            schemaless_writer(self._block, self._parsed, record)
            self._block_records += 1
            if self._block.tell() >= _SYNC_INTERVAL_BYTES:
                self._end_block()

    @property
    def size_bytes(self) -> int:
        """Size of the complete blocks."""
        return self._file.tell()

    def finish(self) -> bytes:
        if self._block_records:
            self._end_block()
        return self._file.getvalue()

    def _end_block(self) -> None:
        """Write a block. Source: Avro specification, "Object Container Files"."""
        data = self._compress(self._block.getvalue(), self._zstd_level)
        self._file.write(b"".join((_long(self._block_records), _long(len(data)), data, self._sync_marker)))
        self._block = io.BytesIO()
        self._block_records = 0


_beginnings: Final[dict[tuple[int, str], tuple[AvroSchema, Schema, bytes]]] = {}


def _beginning(schema: AvroSchema, codec: str) -> tuple[Schema, bytes]:
    """Return fastavro's parsed schema, and the first bytes of each container, up to the sync marker."""
    known = _beginnings.get((id(schema), codec))
    if known is None:
        parsed, begun = fastavro.parse_schema(cast(Schema, schema)), io.BytesIO()
        Writer(begun, cast(Schema, schema), codec=codec)  # not with the parsed schema, which has full names
        header = begun.getvalue()[:-_SYNC_MARKER_BYTES]
        known = _beginnings[id(schema), codec] = schema, parsed, header  # holds the schema, so its id stays unique
    return known[1], known[2]


def _long(number: int) -> bytes:
    """Encode Avro's long: zigzag, then seven bits in each byte, the lowest first.

    number: not negative.
    """
    left, parts = number << 1, bytearray()
    while left > 0x7F:
        parts.append(left & 0x7F | 0x80)
        left >>= 7
    parts.append(left)
    return bytes(parts)


def _zstandard(data: bytes, level: int) -> bytes:
    return zstandard.ZstdCompressor(level).compress(data)


def _deflate(data: bytes, _: int) -> bytes:
    return zlib.compress(data, wbits=-zlib.MAX_WBITS)


def _snappy(data: bytes, _: int) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data)) + zlib.crc32(data).to_bytes(4, "big")


_COMPRESSORS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "null": lambda data, _: data,
    "deflate": _deflate,
    "snappy": _snappy,
    "bzip2": lambda data, _: bz2.compress(data),
    "xz": lambda data, _: lzma.compress(data),
    "zstandard": _zstandard,
}


def avro_codec(compression: str, option: str = "manifest.compression") -> str:
    """Return the Avro name for a value of the option. Raises BadInput."""
    codec = AVRO_CODECS.get(compression.lower())
    if codec is None:
        raise BadInput(f"option {option} = {compression!r}: expected one of {', '.join(AVRO_CODECS)}")
    return codec
