"""Divides one table among several readers. Each reader has its own buckets, so a key is always read by the same reader.

Option `scan.bucket` restricts a read to one bucket of every partition.

Source: Java `flink/source/assigners/*`, `ChannelComputer.java` (a bucket's reader is its number modulo the readers).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class Subtask:
    """Reader `index` of `count` readers.

    Buckets are divided among the readers. A table with bucket = -1 and without a primary key is divided by files, and
    with data evolution by partitions.

    bucket: the only bucket that is read. None: all buckets.
    """

    index: int = 0
    count: int = 1
    bucket: int | None = None

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.index < self.count:
            raise BadInput(f"share=({self.index}, {self.count}): expected (index, count) with 0 <= index < count")
        if self.bucket is not None and self.bucket < 0:
            raise BadInput(f"option scan.bucket = {self.bucket}: bucket numbers start at 0")

    @classmethod
    def of(cls, options: TableOptions, given: Sequence[int] | None = None) -> Subtask:
        """Return the subtask of a reader.

        given: (index, count). None: this reader reads everything that the options allow.
        """
        if given is None:
            return cls(bucket=options.scan_bucket)
        if len(given) != 2:
            raise BadInput(f"share={given!r}: expected (index, count)")
        index, count = given
        return cls(index, count, options.scan_bucket)

    @property
    def is_whole(self) -> bool:
        """Whether this is the only reader."""
        return self.count == 1

    def is_assigned(self, context: TableContext, entry: ManifestEntry) -> bool:
        if self.bucket is not None and entry.bucket != self.bucket:
            return False
        if self.is_whole:
            return True
        is_unaware = bucket_mode(context.schema, context.options) is BucketMode.UNAWARE
        if is_unaware and not context.options.data_evolution_enabled:  # with it, files of the same rows stay together
            return zlib.crc32(entry.file.file_name.encode()) % self.count == self.index
        return (zlib.crc32(entry.partition) + entry.bucket) % self.count == self.index

    def keep_entry(
        self, context: TableContext, also: Callable[[ManifestEntry], bool] | None = None
    ) -> Callable[[ManifestEntry], bool] | None:
        """Return a filter of manifest entries for a scan; None if all are kept.

        also: another condition that an entry must fulfil. None: no other condition.
        """
        if self.is_whole and self.bucket is None:
            return also
        return lambda entry: self.is_assigned(context, entry) and (also is None or also(entry))

    def consumer(self, name: str) -> str:
        """Return the consumer name of this reader. Each reader has its own, so expiry respects the slowest reader."""
        return name if self.is_whole else f"{name}-{self.index + 1}-of-{self.count}"

    def has_other_reader_count(self, consumer: str, *, of: str) -> bool:
        """Whether a consumer belongs to a reader under the name `of` from a time with another number of readers."""
        if consumer == of:
            return not self.is_whole
        index, between, count = consumer.removeprefix(f"{of}-").partition("-of-")
        is_a_share = consumer.startswith(f"{of}-") and between and index.isdecimal() and count.isdecimal()
        return bool(is_a_share) and int(count) != self.count


ALL: Final = Subtask()
