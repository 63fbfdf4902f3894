"""A folder of change-log files as a source. It needs no server.

The folder's `*.jsonl`, `*.jsonl.gz` and `*.jsonl.zst` files are read in the order of their names. New files and
appended data are read when they are found. Positions are the offsets in the records. After a restart all files are read
again from the first one, and records below the position are dropped, at some hundred thousand lines per second. A file
may be removed after all its records were read.

A partition whose offsets don't rise in the order of reading is refused, because a change would be lost or read twice.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, TopicPartition
from tidelake.errors import BadInput
from tidelake.ingest.clock import Clock, SystemClock
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.change_log_file import MAX_RECORD_BYTES, SUFFIXES, ChangeLogFile
from tidelake.ingest.sources.change_log_record import (
    BadLine,
    PartitionRecords,
    first_decrease,
    is_complete,
    parse_records,
)
from tidelake.ingest.sources.source import AtOffsets, Earliest, Start, empty_batch
from tidelake.storage.base.threads import run_cpu_bound
from tidelake.storage.fileio.access import Access, access

POLL_INTERVAL_MS: Final = 1_000


class ChangeLogFolder:
    """A folder of change logs. See the module.

    follow: wait for more data at the end. A truncated line or truncated compressed data then waits for the rest.
        Otherwise reading ends after the existing data, and every file must be complete.
    kept_headers: names of the record headers that the format reads.
    known: partitions that exist even if no record of them was read.
    """

    def __init__(
        self,
        path: Path,
        *,
        follow: bool,
        kept_headers: frozenset[str],
        poll_interval_ms: int = POLL_INTERVAL_MS,
        max_record_bytes: int = MAX_RECORD_BYTES,
        clock: Clock | None = None,
        known: Iterable[TopicPartition] = (),
    ) -> None:
        self._path = path
        self._follow = follow
        self._kept_headers = kept_headers
        self._poll_interval_ms = poll_interval_ms
        self._max_record_bytes = max_record_bytes
        self._clock = clock or SystemClock()
        self._known = frozenset(known)
        self._identity = SourceIdentity()
        self._files: dict[str, ChangeLogFile] = {}
        self._positions: dict[TopicPartition, int] = {}  # records below these were read before the restart
        # The lowest allowed next offset, and the file that set it.
        self._next: dict[TopicPartition, tuple[int, Path | None]] = {}

    async def open(self, known: Collection[TopicPartition] = ()) -> frozenset[TopicPartition]:
        """See `Source.open`. Raises BadInput if the folder does not exist. New partitions appear with their first
        record.
        """
        with access(Access.READ, str(self._path)):
            is_folder = await asyncio.to_thread(self._path.is_dir)
        if not is_folder:
            raise BadInput(f"{self._path} is not a folder. Set `source.path` to the folder with the change logs")
        path = await asyncio.to_thread(self._path.resolve)
        self._identity = SourceIdentity(cluster_id=path.as_uri())
        return self._known.union(known)

    @property
    def identity(self) -> SourceIdentity:
        """The identity of a folder is its absolute path. Its topics have no ids."""
        return self._identity

    async def offsets(self, partitions: Collection[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        """See `Source.offsets`. A partition that `start` doesn't name begins with its first record."""
        if not isinstance(start, Earliest | AtOffsets):
            raise BadInput(
                f"a folder of change logs can be read from its beginning or from offsets, not from start {start}"
            )
        named = start.offsets if isinstance(start, AtOffsets) else {}
        return {partition: named.get(partition, 0) for partition in partitions}

    async def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        """Return no bounds: files may be removed after they were read, and the end is known only after reading it."""
        return {}

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        self._positions = dict(positions)
        self._files = {}
        self._next = {partition: (offset, None) for partition, offset in positions.items()}
        while True:
            blocks = self._scan_folder()
            while (found := await asyncio.to_thread(next, blocks, None)) is not None:
                for batch in await run_cpu_bound(self._batches, *found):
                    yield batch
            if not self._follow:
                return
            await self._clock.sleep_ms(self._poll_interval_ms)

    async def check_identity(self) -> None:
        """Do nothing: a folder has no identity other than its path."""

    async def deleted_topics(self) -> Collection[str]:
        return ()

    async def commit_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        """Do nothing: a folder has no consumer group."""

    async def close(self) -> None:
        """Do nothing: files are open only while a block is read."""

    def _scan_folder(self) -> Iterator[tuple[bytes | memoryview, ChangeLogFile]]:
        """Yield the new lines in the folder, block by block, each with its file. Blocks the thread.

        A block is valid until the next one is requested.
        """
        for name, size_bytes in self._listing():
            file = self._files.setdefault(name, ChangeLogFile(self._path / name, self._max_record_bytes))
            if file.has_new_data(size_bytes):
                for block in file.blocks():
                    yield block, file
                if self._has_last_line(file):
                    yield file.tail, file
                    file.consume_tail()

    def _listing(self) -> list[tuple[str, int]]:
        found = []
        with access(Access.READ, str(self._path)), os.scandir(self._path) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIXES) and entry.is_file():
                    with suppress(FileNotFoundError):  # a file that was read may be removed
                        found.append((entry.name, entry.stat().st_size))
        return sorted(found)

    def _has_last_line(self, file: ChangeLogFile) -> bool:
        """Return whether the file ends with a complete record without a line end."""
        if file.is_cut and not self._follow:
            raise BadInput(f"{file.path} ends within its compressed data. Write the complete file, or remove it")
        if not file.tail.strip():
            return False
        if is_complete(file.tail):
            return True
        if not self._follow:
            raise BadInput(
                f"{file.path}:{file.line_of(0)}: the last line is incomplete: {file.tail[:80]!r}. Complete it"
            )
        return False

    def _batches(self, block: bytes | memoryview, file: ChangeLogFile) -> list[RawBatch]:
        try:
            found = parse_records(block, self._kept_headers)
        except BadLine as bad:
            raise BadInput(bad.sentence(f"{file.path}:{file.line_of(bad.offset)}")) from None
        return [batch for records in found for batch in self._new(records, file)]

    def _new(self, records: PartitionRecords, file: ChangeLogFile) -> Iterator[RawBatch]:
        """Yield the records that were not read before. A new partition is announced first."""
        partition = records.partition
        if partition not in self._next:
            self._next[partition] = (0, None)
            yield empty_batch(partition, 0)
        expected, setter = self._next[partition]
        if fall := first_decrease(records.offsets, int(records.offsets[0])):
            raise _order_error(file.path, partition, *fall)
        first = int(np.searchsorted(records.offsets, self._positions.get(partition, 0)))
        if first == len(records.offsets):
            return
        if fall := first_decrease(records.offsets[first:], expected):
            raise _order_error(file.path, partition, *fall, setter)
        batch = records.batch(first)
        self._next[partition] = (batch.next_offset, file.path)
        yield batch


def _order_error(path: Path, log: TopicPartition, found: int, before: int, holder: Path | None = None) -> BadInput:
    where = "" if holder in (None, path) else f" of {holder}"
    return BadInput(
        f"{path}: offset {found} of {log} comes after {before}{where}: offsets of a partition must increase. Files are "
        "read in the order of their names: rename the files, or remove duplicate records"
    )
