"""How far one topic partition was read and committed, and its lag behind the end of the log."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelake.checkpoint.record_times import RecordTimes
from tidelake.ingest.raw_batch import RawBatch


class _ReadBatch(NamedTuple):
    """A batch that was read and is not committed. Times are epoch milliseconds; None if its records have no times.

    offsets: the offsets of its records; None if they have no gaps before `next_offset`.
    """

    next_offset: int
    records: int
    nbytes: int
    oldest_ms: int | None
    newest_ms: int | None
    offsets: NDArray[np.int64] | None = None

    def split(self, offset: int) -> tuple[int, int, _ReadBatch]:
        """Return the records and bytes below an offset, and the rest. The bytes are a share: records have no sizes."""
        if self.offsets is None:
            below = max(0, self.records - (self.next_offset - offset))
        else:
            below = int(np.searchsorted(self.offsets, offset))
        nbytes = self.nbytes * below // self.records
        rest = self._replace(
            records=self.records - below,
            nbytes=self.nbytes - nbytes,
            offsets=None if self.offsets is None else self.offsets[below:],
        )
        return below, nbytes, rest


@dataclass(slots=True)
class PartitionProgress:
    """The progress of one partition.

    committed: the next offset after the records that are committed in every table, or were set aside.
    read: the next offset to read from the source.
    caught_up_ms: monotonic time when all records of the partition were last committed.
    end: the end of the log, as last reported or read; None while unknown.
    newest_committed_ms: the newest record time (epoch) below `committed`; None until this process commits a record.
    """

    committed: int
    read: int
    caught_up_ms: int
    end: int | None = None
    newest_committed_ms: int | None = None
    _uncommitted: deque[_ReadBatch] = field(default_factory=deque)

    @property
    def has_uncommitted(self) -> bool:
        """Whether records were read that are not committed yet."""
        return bool(self._uncommitted)

    def was_read(self, batch: RawBatch, now_ms: int, now_epoch_ms: int) -> None:
        """Add a batch that was read.

        now_epoch_ms: the upper bound of record times. If a producer's clock is ahead, a record time in the far future
            would hide the lag of this partition from then on.
        """
        self._reached(batch.next_offset)
        if len(batch):
            known = np.minimum(batch.timestamps_ms[batch.timestamps_ms > 0], now_epoch_ms)
            oldest_ms, newest_ms = (int(known.min()), int(known.max())) if len(known) else (None, None)
            is_gapless = int(batch.offsets[0]) + len(batch) == batch.next_offset
            offsets = None if is_gapless else batch.offsets
            self._uncommitted.append(
                _ReadBatch(batch.next_offset, len(batch), batch.nbytes, oldest_ms, newest_ms, offsets)
            )
        elif not self._uncommitted:  # these offsets hold no record, so nothing is to be committed
            self._passed(self.read, now_ms)

    def offsets_read(self, next_offset: int, nbytes: int = 0) -> None:
        """Add records that other processes read. Their times are unknown.

        nbytes: bytes of the records, without those that were added before.
        """
        if next_offset > self.read:
            self._uncommitted.append(_ReadBatch(next_offset, next_offset - self.read, nbytes, None, None))
            self._reached(next_offset)

    def _reached(self, next_offset: int) -> None:
        self.read = max(self.read, next_offset)
        if self.end is not None:
            self.end = max(self.end, self.read)

    def was_committed(self, next_offset: int, now_ms: int) -> tuple[int, int]:
        """Record a commit. Returns the number of records and bytes that it added.

        next_offset: all records below are committed. A batch may be committed in part.
        """
        records = nbytes = 0
        while self._uncommitted and self._uncommitted[0].next_offset <= next_offset:
            done = self._uncommitted.popleft()
            records, nbytes = records + done.records, nbytes + done.nbytes
            if done.newest_ms is not None:
                self.newest_committed_ms = max(done.newest_ms, self.newest_committed_ms or 0)
        if self._uncommitted:
            more_records, more_bytes, rest = self._uncommitted[0].split(next_offset)
            if more_records and rest.records:
                records, nbytes = records + more_records, nbytes + more_bytes
                self._uncommitted[0] = rest
        self._passed(next_offset if self._uncommitted else max(next_offset, self.read), now_ms)
        return records, nbytes

    def _passed(self, next_offset: int, now_ms: int) -> None:
        self.committed = max(self.committed, next_offset)
        if self.lag == 0:
            self.caught_up_ms = now_ms

    def set_end_offset(self, end: int, now_ms: int) -> None:
        self.end = max(end, self.read)
        if self.lag == 0:
            self.caught_up_ms = now_ms

    @property
    def lag(self) -> int:
        """The number of offsets between `committed` and the known end of the log."""
        return max(self.read, self.end or 0) - self.committed

    def lag_ms(self, now_ms: int, now_epoch_ms: int) -> int:
        """Return the age of the oldest record that is not committed; 0 if all are committed.

        The age of records that were not read yet is unknown. They arrived after the partition was last caught up, and
        after the newest committed record.
        """
        if self.lag == 0:
            return 0
        oldest_ms = next((batch.oldest_ms for batch in self._uncommitted if batch.oldest_ms is not None), None)
        if oldest_ms is not None:
            return max(0, now_epoch_ms - oldest_ms)
        behind_ms = now_ms - self.caught_up_ms
        if self.newest_committed_ms is not None:
            behind_ms = min(behind_ms, now_epoch_ms - self.newest_committed_ms)
        return max(0, behind_ms)


def record_times(
    batch: RawBatch, offsets: np.ndarray[tuple[int], np.dtype[np.int64]], now_epoch_ms: int
) -> RecordTimes | None:
    """Return the oldest and the newest time of these records of the batch; None if they have no times.

    now_epoch_ms: see `PartitionProgress.was_read`.
    """
    times = np.minimum(batch.timestamps_ms[np.searchsorted(batch.offsets, offsets)], now_epoch_ms)
    known = times[times > 0]
    return RecordTimes(int(known.min()), int(known.max())) if len(known) else None
