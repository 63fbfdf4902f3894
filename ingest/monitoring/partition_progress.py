"""How far one topic partition was read and committed, and how far that lags behind the log."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ingest.raw_batch import RawBatch


class _ReadBatch(NamedTuple):
    """A batch that is read and not committed. Times are epoch milliseconds; None where its records have none."""

    next_offset: int
    records: int
    nbytes: int
    oldest_ms: int | None
    newest_ms: int | None


@dataclass(slots=True)
class PartitionProgress:
    """committed: the next offset that every table's position, or what was set aside, has passed.
    read: the next offset to come from the source.
    end: the log's end, as far as it was asked and read; None while unknown.
    newest_committed_ms: the newest record time (epoch) below `committed`; None before this process committed any.
    caught_up_ms: when, by the monotonic clock, the partition last had nothing left to commit.
    """

    committed: int
    read: int
    caught_up_ms: int
    end: int | None = None
    newest_committed_ms: int | None = None
    _uncommitted: deque[_ReadBatch] = field(default_factory=deque)

    @property
    def has_uncommitted(self) -> bool:
        """Whether records were read that no commit covers yet."""
        return bool(self._uncommitted)

    def was_read(self, batch: RawBatch, now_ms: int, now_epoch_ms: int) -> None:
        """now_epoch_ms: no record counts as newer, whatever its producer's clock said: one of a far year would make
        this partition look as if it lagged behind nothing any more.
        """
        self._reached(batch.next_offset)
        if len(batch):
            known = np.minimum(batch.timestamps_ms[batch.timestamps_ms > 0], now_epoch_ms)
            times = (int(known.min()), int(known.max())) if len(known) else (None, None)
            self._uncommitted.append(_ReadBatch(batch.next_offset, len(batch), batch.nbytes, *times))
        elif not self._uncommitted:  # offsets that hold no record: there is nothing to commit
            self._passed(self.read, now_ms)

    def offsets_were_read(self, next_offset: int) -> None:
        """Of records that others saw: their sizes and times are not known."""
        if next_offset > self.read:
            self._uncommitted.append(_ReadBatch(next_offset, next_offset - self.read, 0, None, None))
            self._reached(next_offset)

    def _reached(self, next_offset: int) -> None:
        self.read = max(self.read, next_offset)
        if self.end is not None:
            self.end = max(self.end, self.read)

    def was_committed(self, next_offset: int, now_ms: int) -> tuple[int, int]:
        """next_offset: everything below is committed. Returns records and bytes of the batches that are now, whole."""
        records = nbytes = 0
        while self._uncommitted and self._uncommitted[0].next_offset <= next_offset:
            done = self._uncommitted.popleft()
            records, nbytes = records + done.records, nbytes + done.nbytes
            if done.newest_ms is not None:
                self.newest_committed_ms = max(done.newest_ms, self.newest_committed_ms or 0)
        self._passed(next_offset if self._uncommitted else max(next_offset, self.read), now_ms)
        return records, nbytes

    def _passed(self, next_offset: int, now_ms: int) -> None:
        self.committed = max(self.committed, next_offset)
        if self.lag == 0:
            self.caught_up_ms = now_ms

    def end_is(self, end: int, now_ms: int) -> None:
        self.end = max(end, self.read)
        if self.lag == 0:
            self.caught_up_ms = now_ms

    @property
    def lag(self) -> int:
        """Offsets between `committed` and the end of the log, as far as it is known."""
        return max(self.read, self.end or 0) - self.committed

    def lag_ms(self, now_ms: int, now_epoch_ms: int) -> int:
        """How old the oldest record is that is not committed; 0 when there is none.

        Of records that were not read yet the age is unknown: they are no older than the time since the partition was
        last caught up with, nor than the newest record that is committed.
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


def newest_time_ms(
    batch: RawBatch, offsets: np.ndarray[tuple[int], np.dtype[np.int64]], now_epoch_ms: int
) -> int | None:
    """The newest time of these records of the batch, epoch milliseconds; None where they have none.

    now_epoch_ms: see `PartitionProgress.was_read`.
    """
    if not len(offsets):
        return None
    newest = min(int(batch.timestamps_ms[np.searchsorted(batch.offsets, offsets)].max()), now_epoch_ms)
    return newest if newest > 0 else None
