"""Several readers of one table: each takes the buckets that are its own, so a key always goes to the same one.

Source: Java `flink/source/assigners/*`, `ChannelComputer.java` (a bucket's reader is its number modulo the readers).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from storage.bucketing import BucketMode, bucket_mode
from storage.errors import BadInput
from storage.manifests.manifest_entry import ManifestEntry
from storage.table import TableContext


@dataclass(frozen=True, slots=True)
class Share:
    """Reader `index` of `count`. Where buckets mean nothing (bucket = -1 without a key), files are shared out."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.index < self.count:
            raise BadInput(f"share=({self.index}, {self.count}): expected (index, count) with 0 <= index < count")

    @classmethod
    def of(cls, given: Sequence[int] | None) -> Share:
        """(index, count); None is all."""
        if given is None:
            return ALL
        if len(given) != 2:
            raise BadInput(f"share={given!r}: expected (index, count)")
        return cls(*given)

    @property
    def is_all(self) -> bool:
        return self.count == 1

    def takes(self, context: TableContext, entry: ManifestEntry) -> bool:
        if self.is_all:
            return True
        if bucket_mode(context.schema, context.options) is BucketMode.UNAWARE:
            return zlib.crc32(entry.file.file_name.encode()) % self.count == self.index
        return (zlib.crc32(entry.partition) + entry.bucket) % self.count == self.index

    def consumer(self, name: str) -> str:
        """Each reader keeps its own position; expiry spares what the slowest needs."""
        return name if self.is_all else f"{name}-{self.index + 1}-of-{self.count}"

    def is_another_count(self, consumer: str, *, of: str) -> bool:
        """Whether a consumer is that of a reader under the name `of` when there were more or fewer of them."""
        if consumer == of:
            return not self.is_all
        index, between, count = consumer.removeprefix(f"{of}-").partition("-of-")
        is_a_share = consumer.startswith(f"{of}-") and between and index.isdecimal() and count.isdecimal()
        return bool(is_a_share) and int(count) != self.count


ALL: Final = Share()
