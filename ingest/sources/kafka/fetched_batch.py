"""A record batch as the broker sent it, before any of its records is looked at."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from ingest.sources.kafka.decompression import DecompressionLimitExceeded, uncompressed

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")  # see `aiokafka.record.default_records`
_CHECKED_FROM: Final = 21  # the attributes, behind the checksum
_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10


class FetchedBatch:
    """In the place of a batch of aiokafka's, which makes an object of each record; iterating gives the batch itself.

    data: the whole batch.

    base_offset: what the offsets of its records are counted from.
    next_offset: where reading goes on after it.
    start: records below are not wanted.
    payload: its records, compressed by `codec` (Kafka's number; 0: not compressed).
    producer_id: -1 where the producer has none.
    """

    __slots__ = (
        "_checked",
        "_checksum",
        "base_offset",
        "codec",
        "first_timestamp_ms",
        "has_log_append_time",
        "is_transactional",
        "max_timestamp_ms",
        "next_offset",
        "payload",
        "producer_id",
        "record_count",
        "start",
    )

    is_control_batch: Final = False

    def __init__(self, data: memoryview) -> None:
        header = _HEADER.unpack_from(data)
        self._checksum: int = header[4]
        self._checked = data[_CHECKED_FROM:]
        self.base_offset: int = header[0]
        self.next_offset: int = header[0] + header[6] + 1
        self.codec: int = header[5] & _CODEC
        self.has_log_append_time = bool(header[5] & _LOG_APPEND_TIME)
        self.is_transactional = bool(header[5] & _TRANSACTIONAL)
        self.first_timestamp_ms: int = header[7]
        self.max_timestamp_ms: int = header[8]
        self.producer_id: int = header[9]
        self.record_count: int = header[12]
        self.payload = data[_HEADER.size :]
        self.start = self.base_offset

    def __iter__(self) -> Iterator[FetchedBatch]:
        yield self

    @property
    def offset(self) -> int:
        """Of the last record that it had."""
        return self.next_offset - 1

    def validate_crc(self) -> bool:
        """Whether the checksum is that of the bytes. The processor's instruction takes a sixteenth of the time that
        aiokafka's tables do, which was a twentieth of all that a pipeline does.
        """
        return crc32c(self._checked) == self._checksum

    def uncompress(self, limit_bytes: int) -> None:
        """Its records, as they were before they were compressed, take the place of its payload.

        Raises CorruptRecordException for what can't be uncompressed, and DecompressionLimitExceeded with the offset.
        """
        try:
            self.payload, self.codec = memoryview(uncompressed(self.codec, self.payload, limit_bytes)), 0
        except DecompressionLimitExceeded:
            raise DecompressionLimitExceeded(self.start) from None
