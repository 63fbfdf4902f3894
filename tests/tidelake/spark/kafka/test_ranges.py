"""Offset ranges become tasks without gaps or duplicates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.spark.kafka.ranges import TASK_OFFSETS_MIN, RecordRange, held_parts, limited, missing_ranges, tasks

SIZES = st.lists(st.integers(1, 3 * TASK_OFFSETS_MIN), max_size=6)


def ranges(*sizes: int) -> list[RecordRange]:
    return [RecordRange(TopicPartition("t", n), 10 * n, 10 * n + size) for n, size in enumerate(sizes)]


@given(sizes=SIZES, partitions_min=st.none() | st.integers(1, 9), records_max=st.none() | st.integers(50, 20_000))
def test_tasks_read_each_offset_once_in_the_order_of_a_partition(
    sizes: list[int], partitions_min: int | None, records_max: int | None
) -> None:
    wanted = ranges(*sizes)
    found = tasks(wanted, partitions_min, records_max)
    pieces = [piece for task in found for piece in task]
    for part in wanted:
        own = [piece for piece in pieces if piece.partition == part.partition]
        assert [part.start, *(piece.end for piece in own)] == [*(piece.start for piece in own), part.end]
    assert len(found) >= min(partitions_min or 0, sum(sizes))
    assert all(sum(map(len, task)) <= (records_max or sum(sizes)) for task in found)


@pytest.mark.parametrize(
    ("sizes", "partitions_min", "expected"),
    [
        pytest.param([], None, 0, id="nothing"),
        pytest.param([3] * 5, None, 1, id="few records share a task"),
        pytest.param([TASK_OFFSETS_MIN] * 2, None, 2, id="many records of a partition have their own"),
        pytest.param([9_000], 4, 4, id="a partition is divided"),
        pytest.param([3] * 5, 2, 5, id="more partitions than asked for"),
    ],
)
def test_the_number_of_tasks_follows_the_options(sizes: list[int], partitions_min: int | None, expected: int) -> None:
    assert len(tasks(ranges(*sizes), partitions_min, None)) == expected


@given(sizes=SIZES, offsets_max=st.integers(1, 20_000))
def test_a_limited_batch_advances_every_partition_and_exceeds_the_limit_only_for_that(
    sizes: list[int], offsets_max: int
) -> None:
    starts = {r.partition: r.start for r in ranges(*sizes)}
    ends = {r.partition: r.end for r in ranges(*sizes)}
    found = limited(starts, ends, offsets_max)
    assert all(starts[p] < found[p] <= ends[p] for p in ends)
    small = sum(size * offsets_max < sum(sizes) for size in sizes)  # their share is less than one offset
    assert sum(found[p] - starts[p] for p in ends) <= offsets_max + small


@pytest.mark.parametrize(
    ("sizes", "offsets_max", "expected"),
    [
        pytest.param([1, 1, 4], 6, [1, 1, 4], id="all fit"),
        pytest.param([10, 30], 20, [5, 15], id="in proportion"),
        pytest.param([10, 10, 10], 10, [3, 3, 3], id="rounded down"),
        pytest.param([1, 1, 4], 3, [1, 1, 2], id="small shares are one, as in Spark's own connector"),
        pytest.param([5] * 4, 2, [1] * 4, id="more partitions than offsets"),
    ],
)
def test_a_limited_batch_divides_offsets_among_partitions(
    sizes: list[int], offsets_max: int, expected: list[int]
) -> None:
    starts = {r.partition: r.start for r in ranges(*sizes)}
    ends = {r.partition: r.end for r in ranges(*sizes)}
    found = limited(starts, ends, offsets_max)
    assert [found[p] - starts[p] for p in ends] == expected


@pytest.mark.parametrize(
    ("held", "lost", "left"),
    [
        pytest.param((0, 99), [], [(10, 20)], id="all is there"),
        pytest.param((15, 99), [(10, 15)], [(15, 20)], id="the beginning is gone"),
        pytest.param((0, 17), [(17, 20)], [(10, 17)], id="the end is gone"),
        pytest.param((30, 40), [(10, 20)], [], id="older than all"),
        pytest.param((0, 5), [(10, 20)], [], id="newer than all"),
        pytest.param(None, [(10, 20)], [], id="the partition is gone"),
    ],
)
def test_lost_offsets_are_reported_exactly(
    held: tuple[int, int] | None, lost: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    partition = TopicPartition("t", 0)
    there = {} if held is None else {partition: OffsetRange(*held)}
    wanted = [RecordRange(partition, 10, 20)]
    assert [(part.start, part.end) for part in missing_ranges(wanted, there)] == lost
    assert [(part.start, part.end) for part in held_parts(wanted, there)] == left
