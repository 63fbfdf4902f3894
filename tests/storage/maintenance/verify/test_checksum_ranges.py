"""Checksums identify the ranges of keys in which two tables differ."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.maintenance.verify import checksum_ranges
from tidelake.storage.maintenance.verify.checksum_ranges import Checksums

State = Mapping[tuple[str, int], int | None]
STATES = st.dictionaries(
    st.tuples(st.sampled_from(["", "a", "a" * 9, "b"]), st.integers(-3, 3)), st.none() | st.integers(0, 2)
)
CUTS = st.lists(st.integers(0, 28), max_size=4).map(sorted)
KEY = ("k", "n")


def batches(state: State, cuts: list[int]) -> list[pa.RecordBatch]:
    keys = sorted(state)
    columns = {"k": [k for k, _ in keys], "n": [n for _, n in keys], "v": [state[key] for key in keys]}
    schema = pa.schema([pa.field("k", pa.string(), False), pa.field("n", pa.int64(), False), ("v", pa.int64())])
    rows = pa.RecordBatch.from_pydict(columns, schema)
    edges = [0, *(min(cut, len(keys)) for cut in cuts), len(keys)]
    return [rows.slice(start, stop - start) for start, stop in pairwise(edges)]


@given(one=STATES, other=STATES, cuts=CUTS, other_cuts=CUTS, range_rows=st.integers(1, 5))
def test_checksum_ranges_differ_if_a_row_differs(
    one: State, other: State, cuts: list[int], other_cuts: list[int], range_rows: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksum_ranges, "RANGE_ROWS", range_rows)
        first = Checksums.of(batches(one, cuts), KEY, [*KEY, "v"])
        second = Checksums(first.ranges, [*KEY, "v"])
        for batch in batches(other, other_cuts):
            second.add(batch)
    ends = [] if first.ranges.ends is None else [(row["k"], row["n"]) for row in first.ranges.ends.to_pylist()]
    assert len(ends) + 1 == len(first.ranges)
    expected = [False] * len(first.ranges)
    for key in one.keys() | other.keys():
        if key not in one or key not in other or one[key] != other[key]:
            expected[sum(end < key for end in ends)] = True
    assert first.differing_ranges(second).tolist() == expected


def test_memory_is_one_key_per_ten_thousand_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum_ranges, "RANGE_ROWS", 1000)
    rows = pa.RecordBatch.from_pydict({"k": list(range(10_500))})
    batches = [rows.slice(start, 300) for start in range(0, 10_500, 300)]
    assert len(Checksums.of(batches, ["k"], ["k"]).ranges) == 9
    assert len(Checksums.of([rows], ["k"], ["k"]).ranges) == 11
