"""Limits the uncompressed size of record batches.

100 KB of zstd may become gigabytes. We uncompress record batches ourselves (`uncompressed`). aiokafka uncompresses
batches of the older message format, each as a whole. Its parsers, compiled or not, look up their decoders by name in
their own modules. We replace these decoders by ours, which apply the limit of `decompression_limit`. Other uses of
aiokafka in this process are not affected.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Final, TypeAlias

import cramjam
import pyarrow as pa
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from tidelake.ingest.sources.kafka.client_check import unsupported_client

_PIECE_BYTES: Final = 1 << 20
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"  # snappy-java's stream: a header of 16 bytes, then blocks with their lengths
_GZIP: Final = 1  # the codec's number in the attributes of a batch

_Decompress: TypeAlias = Callable[[Any], bytes]
_limit: ContextVar[int | None] = ContextVar("bytes that a batch may be uncompressed", default=None)


class DecompressionLimitExceeded(Exception):
    """A batch is larger than the limit after decompression.

    offset: the offset of the batch; None if it is unknown.
    """

    def __init__(self, offset: int | None = None) -> None:
        super().__init__("a batch is larger than the limit after decompression")
        self.offset = offset


@contextmanager
def decompression_limit(limit_bytes: int) -> Iterator[None]:
    """Limit the size of batches that this task parses in the block. Larger ones raise DecompressionLimitExceeded."""
    token = _limit.set(limit_bytes)
    try:
        yield
    finally:
        _limit.reset(token)


def install_limited_decoders() -> None:
    """Install our decoders in aiokafka's parsers, once. Raises UnsupportedFeature if a release doesn't use them."""
    for parser in (DefaultRecordBatch, LegacyRecordBatch):
        module = sys.modules[parser.__module__]
        for name, decoder in _DECODERS.items():
            theirs = getattr(module, name, None)
            if theirs is not None and not hasattr(theirs, "__wrapped__"):
                setattr(module, name, _bounded(theirs, decoder))
    if not _are_bounded():
        raise unsupported_client("it decompresses batches in a different way, without a limit")


def _bounded(theirs: _Decompress, ours: Callable[[Any, int], bytes]) -> _Decompress:
    @wraps(theirs)
    def decode(payload: Any) -> bytes:
        limit = _limit.get()
        return theirs(payload) if limit is None else ours(payload, limit)

    return decode


def _are_bounded() -> bool:
    builder = DefaultRecordBatchBuilder(2, _GZIP, 0, -1, -1, 0, 1 << 20)
    builder.append(0, None, None, bytes(1000), [])
    batch = MemoryRecords(bytes(builder.build())).next_batch()
    try:
        with decompression_limit(100):
            list(batch)
    except DecompressionLimitExceeded:
        return True
    return False


# ---------------------------------------------------------------- the codecs


def uncompressed(codec: int, payload: memoryview, limit_bytes: int) -> bytes | memoryview:
    """Return the uncompressed payload of a record batch.

    codec: the codec's number in the batch's attributes.

    Raises DecompressionLimitExceeded, and CorruptRecordException for invalid compressed data.
    """
    if codec == 0:
        return payload
    try:
        decode = _DECODERS[_DECODER_OF_CODEC[codec]]
    except KeyError:
        raise CorruptRecordException(f"unknown compression {codec}") from None
    return decode(payload, limit_bytes)


def _streamed(codec: str, payload: Any, limit_bytes: int) -> bytes:
    pieces: list[bytes] = []
    left = limit_bytes
    try:
        with pa.input_stream(pa.py_buffer(payload), compression=codec, buffer_size=0) as stream:
            while piece := stream.read(min(_PIECE_BYTES, left + 1)):
                left -= len(piece)
                if left < 0:
                    raise DecompressionLimitExceeded
                pieces.append(piece)
    except (pa.ArrowException, OSError) as error:
        raise CorruptRecordException(f"{codec}: {error}") from error
    return b"".join(pieces)


def _snappy(payload: Any, limit_bytes: int) -> bytes:
    data = memoryview(payload)
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit_bytes)
    pieces: list[bytes] = []
    at = 16
    while at < len(data):
        (size,) = struct.unpack_from("!i", data, at)
        pieces.append(_snappy_block(data[at + 4 : at + 4 + size], limit_bytes))
        limit_bytes -= len(pieces[-1])
        at += 4 + max(0, size)
    return b"".join(pieces)


def _snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    """Return an uncompressed block. Its length at the beginning is checked first, because the decoder trusts it."""
    try:
        if cramjam.snappy.decompress_raw_len(block) > limit_bytes:
            raise DecompressionLimitExceeded
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptRecordException(f"snappy: {error}") from error


_DECODERS: Final[dict[str, Callable[[Any, int], bytes]]] = {
    "gzip_decode": partial(_streamed, "gzip"),
    "lz4_decode": partial(_streamed, "lz4"),
    "zstd_decode": partial(_streamed, "zstd"),
    "snappy_decode": _snappy,
}
_DECODER_OF_CODEC: Final = {_GZIP: "gzip_decode", 2: "snappy_decode", 3: "lz4_decode", 4: "zstd_decode"}
