"""The lag of a partition, in offsets and in time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelake.checkpoint.record_times import RecordTimes
from tidelake.ingest.monitoring.partition_progress import PartitionProgress, record_times
from tidelake.ingest.raw_batch import RawBatch

NOW_MS = 1_700_000_000_000


def batch(offsets: list[int], times: list[int] | None = None, next_offset: int | None = None) -> RawBatch:
    values = pa.array([b"v"] * len(offsets), pa.binary())
    at = np.array(offsets, np.int64)
    stamps = np.array(times if times is not None else [0] * len(offsets), np.int64)
    return RawBatch("log", 0, at, stamps, values, values, next_offset or offsets[-1] + 1)


def test_read_records_count_as_lag_until_they_are_committed() -> None:
    progress = PartitionProgress(5, 5, caught_up_ms=0)
    progress.was_read(batch([5, 6], [1_000, 2_000]), 10, NOW_MS)
    assert (progress.lag, progress.lag_ms(20, 5_000), progress.has_uncommitted) == (2, 4_000, True)
    assert progress.was_committed(7, 30) == (2, batch([5, 6]).nbytes)
    assert (progress.lag, progress.lag_ms(40, 5_000), progress.newest_committed_ms) == (0, 0, 2_000)


def test_a_partly_committed_batch_still_counts_as_lag() -> None:
    progress = PartitionProgress(0, 0, 0)
    progress.was_read(batch([0, 1, 2], [1, 2, 3]), 0, NOW_MS)
    nbytes = batch([0, 1, 2]).nbytes
    assert progress.was_committed(2, 0) == (2, nbytes * 2 // 3)
    assert (progress.committed, progress.lag, progress.has_uncommitted) == (2, 1, True)
    assert progress.was_committed(2, 0) == (0, 0)
    assert progress.was_committed(3, 0) == (1, nbytes - nbytes * 2 // 3)


@given(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(st.integers(0, 70), max_size=8),
)
def test_each_record_is_counted_by_the_commit_that_passes_it(gaps: list[list[int]], commits: list[int]) -> None:
    """Batches of records with gaps between their offsets, and commits at any offset."""
    progress, offset, held, nbytes = PartitionProgress(0, 0, 0), 0, list[int](), 0
    for of_batch in gaps:
        offsets = [offset := offset + gap for gap in of_batch]
        read = batch(offsets)
        progress.was_read(read, 0, NOW_MS)
        held, nbytes = held + offsets, nbytes + read.nbytes
    done, done_bytes = 0, 0
    for commit in [*sorted(commits), offset + 1]:
        records, more_bytes = progress.was_committed(commit, 0)
        done, done_bytes = done + records, done_bytes + more_bytes
        assert done == sum(one < commit for one in held)
    assert done_bytes == nbytes


def test_offsets_that_hold_no_record_are_no_lag() -> None:
    """Markers of transactions move a partition's position, and there is nothing to commit."""
    progress = PartitionProgress(3, 3, 0)
    progress.set_end_offset(5, 0)
    assert progress.lag == 2
    progress.was_read(batch([], next_offset=5), 0, NOW_MS)
    assert (progress.committed, progress.lag) == (5, 0)


def test_the_end_of_the_log_is_not_before_what_was_read() -> None:
    """It is asked now and then."""
    progress = PartitionProgress(0, 0, 0)
    progress.was_read(batch([0]), 0, NOW_MS)
    progress.set_end_offset(2, 0)
    progress.was_read(batch([1, 2]), 0, NOW_MS)
    assert progress.end == 3
    progress.offsets_read(7)
    assert progress.end == 7
    progress.set_end_offset(6, 0)  # an answer that was late
    assert (progress.end, progress.lag) == (7, 7)


def test_offsets_without_records_behind_a_pending_batch_count_as_lag() -> None:
    progress = PartitionProgress(0, 0, 0)
    progress.was_read(batch([0], [9]), 0, NOW_MS)
    progress.was_read(batch([], next_offset=4), 0, NOW_MS)
    assert progress.lag == 4
    progress.was_committed(1, 0)
    assert progress.lag == 0


def test_unread_records_are_no_older_than_the_last_time_without_lag() -> None:
    """A topic that was quiet for an hour is not an hour behind when a record comes."""
    progress = PartitionProgress(0, 0, 0)
    progress.was_read(batch([0], [1_000]), 0, NOW_MS)
    progress.was_committed(1, 0)
    progress.set_end_offset(1, 3_600_000)
    progress.set_end_offset(2, 3_600_500)
    assert progress.lag_ms(3_600_700, 3_601_000 + 1_000) == 700


def test_records_without_a_timestamp_do_not_change_the_newest_time() -> None:
    progress = PartitionProgress(0, 0, 100)
    progress.was_read(batch([0], [-1]), 100, NOW_MS)
    assert progress.lag_ms(150, 10**12) == 50  # since it was caught up
    progress.was_committed(1, 200)
    assert progress.newest_committed_ms is None
    assert record_times(batch([0], [-1]), np.array([0]), NOW_MS) is None
    assert record_times(batch([0], [5]), np.array([], np.int64), NOW_MS) is None


def test_the_times_are_those_of_records_with_rows() -> None:
    assert record_times(batch([3, 7, 9], [30, 90, 10]), np.array([3, 9, 9]), NOW_MS) == RecordTimes(10, 30)


def test_a_record_without_a_time_is_not_the_oldest() -> None:
    assert record_times(batch([3, 7, 9], [30, -1, 40]), np.array([3, 7, 9]), NOW_MS) == RecordTimes(30, 40)


def test_a_producer_clock_ahead_of_ours_is_limited_to_now() -> None:
    """Else freshness and lag would be 0 from that record on, however long nothing more comes."""
    progress = PartitionProgress(0, 0, caught_up_ms=0)
    ahead = batch([0, 1], [NOW_MS + 3_600_000, 2**63 - 1])
    progress.was_read(ahead, 0, NOW_MS)
    assert progress.lag_ms(5_000, NOW_MS + 5_000) == 5_000
    progress.was_committed(2, 5_000)
    assert progress.newest_committed_ms == NOW_MS
    assert record_times(ahead, np.array([0, 1]), NOW_MS) == RecordTimes(NOW_MS, NOW_MS)
    progress.set_end_offset(9, 6_000)
    assert progress.lag_ms(65_000, NOW_MS + 65_000) == 60_000
