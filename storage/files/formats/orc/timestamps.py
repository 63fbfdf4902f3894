"""Decodes timestamps of ORC files that Arrow can't read: Arrow uses nanoseconds, which only cover 1677 to 2262.

This is used for columns whose bounds in the file's footer exceed that range, such as a `valid_to` in the year 9999. ORC
stores seconds since 2015 in one stream, and nanoseconds in another. If there are nulls, a third stream says which rows
are present.

Source: ORC specification v1, "Run Length Encoding version 2", "Timestamp Columns"; ORC C++ `ColumnReader.cc`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import cramjam
import numpy as np
import pyarrow as pa
import zstandard

from tidelake.errors import UnsupportedFeature
from tidelake.storage.files.formats.arrow_conversion import times_from_parts
from tidelake.storage.files.formats.orc.protobuf import Message, parse_message, varints, zigzag
from tidelake.storage.files.formats.orc.run_lengths import Integers, decode_bits, decode_integers

_TIMESTAMP, _TIMESTAMP_INSTANT = 9, 18  # orc_proto.proto, Type.Kind
_PRESENT, _DATA, _SECONDARY = 0, 1, 5  # Stream.Kind
_DIRECT_V2: Final = 2  # ColumnEncoding.Kind
_LZO: Final = 3  # CompressionKind
_ORC_EPOCH_S: Final = 1_420_070_400
# Slightly less than the range of nanoseconds, because bounds are stored in whole milliseconds.
_ARROW_RANGE_MS: Final = (-(2**63) // 10**6 + 1000, 2**63 // 10**6 - 1000)
_UTC_NAMES: Final = frozenset({"", "UTC", "GMT", "Etc/UTC", "Etc/GMT", "Zulu", "UCT", "Z"})


@dataclass(frozen=True, slots=True)
class Stripe:
    offset: int
    index_bytes: int
    data_bytes: int
    footer_bytes: int
    rows: int


class OrcTail:
    """The metadata at the end of an ORC file.

    tail: the message FileTail, as returned by Arrow.
    """

    def __init__(self, tail: bytes) -> None:
        message = parse_message(tail)
        postscript = parse_message(message[1][0])
        self._footer = parse_message(message[2][0])
        self._decompress = _decompressor(postscript.get(2, [0])[0], postscript.get(3, [0])[0])

    @cached_property
    def stripes(self) -> list[Stripe]:
        messages = [parse_message(data) for data in self._footer.get(3, [])]
        return [Stripe(*(m.get(number, [0])[0] for number in range(1, 6))) for m in messages]

    @cached_property
    def _types(self) -> list[Message]:
        return [parse_message(data) for data in self._footer[4]]

    def columns_beyond_nanoseconds(self) -> tuple[list[str], list[str]]:
        """Return (top-level time columns, columns with nested times) that Arrow can't read.

        Columns without known bounds are included.
        """
        root = self._types[0]
        names = [name.decode() for name in root.get(3, [])]
        top = _numbers(root.get(2, []))
        ends = [*top[1:], len(self._types)]
        flat: list[str] = []
        nested: list[str] = []
        for name, first, end in zip(names, top, ends, strict=True):
            beyond = [number for number in range(first, end) if self._exceeds_arrow_range(number)]
            if beyond:
                (flat if beyond == [first] else nested).append(name)
        return flat, nested

    def _exceeds_arrow_range(self, number: int) -> bool:
        if self._types[number].get(1, [0])[0] not in (_TIMESTAMP, _TIMESTAMP_INSTANT):
            return False
        statistics = self._footer.get(7, [])
        of_column = parse_message(statistics[number]) if number < len(statistics) else {}
        if of_column.get(1, [None])[0] == 0:
            return False  # no values
        bounds = parse_message(of_column[9][0]) if 9 in of_column else {}
        known = [zigzag(bounds[field][0]) for field in (3, 4) if field in bounds]  # minimumUtc, maximumUtc
        first, last = _ARROW_RANGE_MS
        return len(known) < 2 or not all(first <= ms <= last for ms in known)

    def read_times(self, source: pa.NativeFile, stripe: Stripe, column: str, target: pa.DataType) -> pa.Array:
        """Read a top-level timestamp column of a stripe.

        target: its in-memory type.

        Raises UnsupportedFeature if a time exceeds the range of `target`, too. Raises pa.ArrowInvalid for invalid
        content.
        """
        try:
            return self._read_times(source, stripe, column, target)
        except (KeyError, IndexError) as e:
            raise pa.ArrowInvalid(f"the footer of a stripe lacks {e}") from None

    def _read_times(self, source: pa.NativeFile, stripe: Stripe, column: str, target: pa.DataType) -> pa.Array:
        root = self._types[0]
        number = _numbers(root[2])[[name.decode() for name in root[3]].index(column)]
        footer_at = stripe.offset + stripe.index_bytes + stripe.data_bytes
        footer = parse_message(self._decompress(_read(source, footer_at, stripe.footer_bytes)))
        self._check_readable(footer, number)
        streams = {}
        at = stripe.offset
        for stream in map(parse_message, footer.get(1, [])):
            size = stream.get(3, [0])[0]
            if stream.get(2, [0])[0] == number:
                streams[stream.get(1, [0])[0]] = (at, size)
            at += size

        def content(kind: int) -> bytes:
            return self._decompress(_read(source, *streams[kind]))

        present = decode_bits(content(_PRESENT), stripe.rows) if _PRESENT in streams else np.ones(stripe.rows, np.bool_)
        count = int(present.sum())
        seconds = np.zeros(stripe.rows, np.int64)
        nanos = np.zeros(stripe.rows, np.int64)
        if count:
            seconds[present] = decode_integers(content(_DATA), count, signed=True) + _ORC_EPOCH_S
            nanos[present] = _with_zeros(decode_integers(content(_SECONDARY), count, signed=False))
        seconds -= (seconds < 0) & (nanos > 999_999)  # both Java's and C++'s writers round seconds towards 1970
        like = pa.array(seconds, pa.int64(), mask=~present)
        return times_from_parts(seconds + nanos // 10**9, nanos % 10**9, target, like)

    def _check_readable(self, stripe_footer: Message, number: int) -> None:
        is_local = self._types[number].get(1, [0])[0] == _TIMESTAMP
        zone = stripe_footer.get(3, [b""])[0].decode()
        if is_local and zone not in _UTC_NAMES:
            raise UnsupportedFeature(
                f"ORC times outside of 1677 to 2262 in time zone {zone}",
                "the rules of a writer's time zone are not applied here",
                "Read the table with Paimon Java, or write it in UTC",
            )
        encoding = parse_message(stripe_footer[2][number])
        if encoding.get(1, [0])[0] != _DIRECT_V2:
            raise UnsupportedFeature(
                "ORC run-length encoding version 1", "it is older than Paimon", "Rewrite the file with Paimon Java"
            )


def _numbers(values: Sequence[int | bytes]) -> list[int]:
    """Return repeated integers, which may be packed."""
    return [n for v in values for n in ([v] if isinstance(v, int) else varints(v))]


def _read(source: pa.NativeFile, at: int, size: int) -> bytes:
    source.seek(at)
    data: bytes = source.read(size)
    if len(data) < size:
        raise pa.ArrowInvalid(f"it ends at byte {at + len(data)}, within a stream")
    return data


# ---------------------------------------------------------------- compression: chunks with a header of three bytes


def _decompressor(kind: int, chunk_bytes: int) -> Callable[[bytes], bytes]:
    codecs: dict[int, Callable[[bytes], bytes]] = {
        1: lambda data: zlib.decompress(data, -15),
        2: lambda data: bytes(cramjam.snappy.decompress_raw(data)),
        4: lambda data: bytes(cramjam.lz4.decompress_block(data, output_len=chunk_bytes)),
        5: lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    }
    if kind == 0:
        return lambda data: data
    if kind not in codecs:
        raise UnsupportedFeature(
            f"ORC files compressed with {'LZO' if kind == _LZO else f'codec {kind}'}",
            "neither Arrow nor this module has a decoder for it",
            "Set file.compression = zstd, and rewrite the files with Java's compaction",
        )
    return lambda data: b"".join(_chunks(data, codecs[kind]))


def _chunks(data: bytes, decompress: Callable[[bytes], bytes]) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        header = int.from_bytes(data[at : at + 3], "little")
        chunk = data[at + 3 : at + 3 + (header >> 1)]
        at += 3 + (header >> 1)
        try:
            yield chunk if header & 1 else decompress(chunk)
        except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError) as e:
            raise pa.ArrowInvalid(f"a chunk can't be decompressed: {e}") from None


def _with_zeros(encoded: Integers) -> Integers:
    """Decode nanoseconds. The lowest three bits are the number of removed decimal zeros minus one."""
    zeros = encoded & 7
    return (encoded >> 3) * np.where(zeros == 0, 1, 10 ** (zeros + 1))
