from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelake.errors import BadInput
from tidelake.ingest.formats.debezium.debezium_envelope import OLD_KEY_HEADER
from tidelake.ingest.raw_batch import RawBatch, binary_column, join_batches, timestamp_type_names, timestamp_types_of


def _batch(n: int = 4, **changed: Any) -> RawBatch:
    columns: dict[str, Any] = {
        "offsets": np.arange(10, 10 + 2 * n, 2, dtype=np.int64),  # gaps, as a compacted topic has them
        "timestamps_ms": np.full(n, -1, np.int64),
        "keys": pa.array([b"k"] * n, pa.binary()),
        "values": pa.array([None if i == 1 else b"v" * i for i in range(n)], pa.binary()),
        "next_offset": 10 + 2 * n + 5,
        "headers": {2: ((OLD_KEY_HEADER, b"{}"),)},
    }
    return RawBatch("t", 3, **(columns | changed))


@pytest.mark.parametrize(
    "values",
    [[], [None], [b""], [b"a", None, b"", b"\0" * 300], [None] * 9 + [b"x"], [b"abc"] * 20],
    ids=["no value", "a null", "no bytes", "all kinds", "many nulls", "alike"],
)
def test_a_joined_column_equals_the_column_of_its_values(values: list[bytes | None]) -> None:
    column = binary_column(values)
    column.validate(full=True)
    assert column.equals(pa.array(values, pa.binary()))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"keys": pa.array([b"k"], pa.binary())}, "t-3: columns of unequal length"),
        ({"values": pa.array(["v"] * 4)}, "t-3: keys and values are binary, not string"),
        ({"timestamp_types": np.zeros(3, np.int8)}, "t-3: columns of unequal length"),
        ({"next_offset": 16}, "t-3: next offset 16 is not past 16"),
    ],
)
def test_a_batch_that_contradicts_itself_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        _batch(**changed)


def test_a_batch_without_records_may_still_move_the_position() -> None:
    assert (len(_batch(0, headers={})), _batch(0, headers={}).next_offset) == (0, 15)


@pytest.mark.parametrize(
    ("start", "stop", "offsets", "next_offset", "headers"),
    [
        (0, 4, [10, 12, 14, 16], 23, {2}),
        (1, 3, [12, 14], 16, {1}),
        (3, 9, [16], 23, set()),
        (2, 2, [], 14, set()),
        (4, 9, [], 23, set()),
    ],
)
def test_a_slice_ends_where_the_next_record_begins(
    start: int, stop: int, offsets: list[int], next_offset: int, headers: set[int]
) -> None:
    part = _batch().slice(start, stop)
    assert part.offsets.tolist() == offsets
    assert part.next_offset == next_offset
    assert set(part.headers) == headers
    assert part.values.to_pylist() == _batch().values.to_pylist()[start:stop]


NAMES = ["CreateTime", None, "LogAppendTime", "NoTimestampType"]


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 3), (2, 9), (2, 2)])
def test_a_slice_keeps_the_timestamp_types(start: int, stop: int) -> None:
    part = _batch(timestamp_types=timestamp_types_of(NAMES)).slice(start, stop)
    assert [part.timestamp_type(row) for row in range(len(part))] == NAMES[start:stop]
    assert timestamp_type_names(part.timestamp_types, np.arange(len(part))).to_pylist() == NAMES[start:stop]


def test_batches_with_and_without_timestamp_types_are_joined() -> None:
    reported = _batch(timestamp_types=timestamp_types_of(NAMES))
    (whole,) = join_batches([_batch(), reported, _batch()], 1 << 20)
    assert [whole.timestamp_type(row) for row in range(len(whole))] == [*[None] * 4, *NAMES, *[None] * 4]
    (silent,) = join_batches([_batch(), _batch()], 1 << 20)
    assert silent.timestamp_types is None
    assert timestamp_types_of(["a name that Kafka lacks", None]) is None


def test_an_unknown_timestamp_type_number_is_null() -> None:
    assert timestamp_type_names(np.array([3, -3, 1], np.int8), np.arange(3)).to_pylist() == [None, None, NAMES[2]]


def test_a_slice_weighs_less_than_its_batch() -> None:
    values = pa.array([b"x" * 1000] * 100, pa.large_binary())
    n = len(values)
    whole = RawBatch("t", 0, np.arange(n), np.zeros(n, np.int64), pa.array([None] * n, pa.binary()), values, n)
    assert 100_000 < whole.nbytes < 110_000
    assert whole.slice(0, 10).nbytes < 12_000


def test_batches_of_one_partition_that_follow_one_another_are_joined() -> None:
    whole = _batch()
    parts = [whole.slice(0, 1), whole.slice(1, 3), whole.slice(3, 4)]
    other = _batch(1, headers={}, next_offset=11)
    first, second, third = join_batches([*parts, replace(other, partition=4), whole], 1 << 20)
    for joined in (first, third):
        assert (joined.offsets.tolist(), joined.next_offset, joined.headers) == ([10, 12, 14, 16], 23, whole.headers)
        assert joined.values.equals(whole.values)
    assert (second.partition, len(second)) == (4, 1)
    assert [len(batch) for batch in join_batches(parts, 1)] == [1, 2, 1]
