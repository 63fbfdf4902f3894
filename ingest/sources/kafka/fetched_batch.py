"""A record batch as the broker sent it, before any of its records is looked at."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from ingest.sources.kafka.decompression import DecompressionLimitExceeded, uncompressed

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")  # see `aiokafka.record.default_records`
_LOG_APPEND_TIME: Final = 0x08
_CODEC: Final = 0x07


class FetchedBatch:
    """In the place of a batch of aiokafka's, which makes an object of each record; iterating gives the batch itself.

    checked: aiokafka's batch, for its header and checksum.
    data: the whole batch.

    base_offset: what the offsets of its records are counted from.
    next_offset: where reading goes on after it.
    start: records below are not wanted.
    payload: its records, compressed by `codec` (Kafka's number; 0: not compressed).
    """

    __slots__ = (
        "base_offset",
        "checked",
        "codec",
        "first_timestamp_ms",
        "has_log_append_time",
        "max_timestamp_ms",
        "next_offset",
        "payload",
        "record_count",
        "start",
    )

    is_control_batch: Final = False

    def __init__(self, checked: Any, data: memoryview) -> None:
        header = _HEADER.unpack_from(data)
        self.checked = checked
        self.base_offset: int = header[0]
        self.next_offset: int = header[0] + header[6] + 1
        self.codec: int = header[5] & _CODEC
        self.has_log_append_time = bool(header[5] & _LOG_APPEND_TIME)
        self.first_timestamp_ms: int = header[7]
        self.max_timestamp_ms: int = header[8]
        self.record_count: int = header[12]
        self.payload = data[_HEADER.size :]
        self.start = self.base_offset

    def __iter__(self) -> Iterator[FetchedBatch]:
        yield self

    @property
    def offset(self) -> int:
        """Of the last record that it had."""
        return self.next_offset - 1

    @property
    def producer_id(self) -> Any:
        return self.checked.producer_id

    @property
    def is_transactional(self) -> Any:
        return self.checked.is_transactional

    def validate_crc(self) -> Any:
        return self.checked.validate_crc()

    def uncompress(self, limit_bytes: int) -> None:
        """Its records, as they were before they were compressed, take the place of its payload.

        Raises CorruptRecordException for what can't be uncompressed, and DecompressionLimitExceeded with the offset.
        """
        try:
            self.payload, self.codec = memoryview(uncompressed(self.codec, self.payload, limit_bytes)), 0
        except DecompressionLimitExceeded:
            raise DecompressionLimitExceeded(self.start) from None
