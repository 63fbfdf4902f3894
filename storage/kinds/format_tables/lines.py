"""Reads lines of compressed text files in blocks, and writes such files.

Source: Java `format/text/StandardLineReader.java`, `CustomLineReader.java`, `HadoopCompressionUtils.java`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CorruptFile, UnsupportedFeature
from tidelake.storage.kinds.format_tables.format_options import is_standard

BLOCK_BYTES: Final = 4 * 1024 * 1024
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_ARROW_CODECS: Final = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}
_EXTENSIONS: Final = {"gzip": "gzip", "bzip2": "bz2", "zstd": "zstd"}


def read_lines(source: pa.NativeFile, path: str, line_end: str) -> Iterator[pa.Array]:
    """Yield blocks of whole lines as (n,) strings. Blocks are never empty. Closes `source`.

    The last line may be without a line end.

    path: the path of the file. Like in Hadoop, its extension decides the codec.
    line_end: the line delimiter, see `is_standard`.

    Raises CorruptFile for bytes that are not UTF-8, or can't be decompressed.
    """
    standard = is_standard(line_end)
    parted, carried, first = b"\n" if standard else line_end.encode(), b"", True
    with source:
        for data in _decompressed(source, path):
            block = carried + (data.removeprefix(_BYTE_ORDER_MARK) if first and standard else data)
            first = False
            tail = b"\r" if standard and block.endswith(b"\r") else b""  # a line end may continue in the next block
            if standard:
                block = block.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            whole, found, carried = block.rpartition(parted)
            carried += tail
            if found:
                yield _split(whole, parted, path)
    if carried:
        yield _split(carried.removesuffix(b"\r") if standard else carried, parted, path)


def _split(whole: bytes, end: bytes, path: str) -> pa.Array:
    try:
        text = pa.array([whole], pa.binary()).cast(pa.string())
    except pa.ArrowInvalid as e:
        raise CorruptFile(path, "text in UTF-8", "other bytes") from e
    return pc.split_pattern(text, end.decode()).flatten()


def _decompressed(source: pa.NativeFile, path: str) -> Iterator[bytes]:
    extension = path.rpartition(".")[2].lower()
    if extension in ("snappy", "lz4"):
        raise UnsupportedFeature(f"{path}", f"this release can't read Hadoop's framing of {extension}", "Use gzip")
    try:
        if extension == "deflate":
            yield from _inflated(source)
            return
        codec = _ARROW_CODECS.get(extension)
        stream = source if codec is None else pa.CompressedInputStream(source, codec)
        while data := stream.read(BLOCK_BYTES):
            yield data
    except (zlib.error, pa.ArrowInvalid) as e:
        raise CorruptFile(path, f"a file in {extension}", str(e).splitlines()[0]) from e
    except OSError as e:  # an error of Arrow's codecs has no number, an error of a disk has one
        if e.errno is not None:
            raise
        raise CorruptFile(path, f"a file in {extension}", str(e).splitlines()[0]) from e


def _inflated(source: pa.NativeFile) -> Iterator[bytes]:
    inflate = zlib.decompressobj()
    while data := source.read(BLOCK_BYTES):
        if block := inflate.decompress(data):
            yield block
    if not inflate.eof:
        raise zlib.error("the file ends too early")


class LineWriter:
    """A writer of one file of lines. It never closes the given stream.

    codec: the codec, with its name in options (`tidelake.storage.kinds.format_tables.format_options.compression_of`).
    encode: rows -> the bytes of their lines, each with its line end.
    header: the header of the file. Like in Java, it is written with the first rows.
    """

    def __init__(
        self, stream: pa.NativeFile, codec: str, encode: Callable[[pa.RecordBatch], bytes], header: bytes = b""
    ) -> None:
        self._stream = stream
        self._encode = encode
        self._header = header
        self._deflate = zlib.compressobj() if codec == "deflate" else None
        self._compressed = pa.CompressedOutputStream(stream, _EXTENSIONS[codec]) if codec in _EXTENSIONS else None

    @property
    def written_bytes(self) -> int:
        return int(self._stream.tell())

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows. Raises BadInput for values that a reader would misinterpret."""
        lines = self._encode(rows)
        self._put(self._header + lines)
        self._header = b""

    def _put(self, data: bytes) -> None:
        if self._deflate is not None:
            self._stream.write(self._deflate.compress(data))
        else:
            (self._compressed or self._stream).write(data)

    def close(self) -> None:
        if self._deflate is not None:
            self._stream.write(self._deflate.flush())
        if self._compressed is not None:
            self._compressed.close()


def joined(lines: pa.Array, end: str) -> bytes:
    """Return all lines, each with its line end.

    lines (n,): strings without nulls.
    """
    parts = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    text: str = pc.binary_join(parts, end)[0].as_py()
    return (text + end).encode() if len(lines) else b""
