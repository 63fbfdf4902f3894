"""The bitmaps of a key are merged in one data structure and serialized once. Java serializes after each of them.

That this gives Java's bytes: `tests/interop/test_aggregate_functions.py`. Here: that it gives what step by step gives.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from tests.storage.merge.aggregators.support import fold, function
from tidelake.storage.merge.aggregators.aggregator import Step
from tidelake.storage.merge.values import roaring32

# What a container holds: few values, many far apart, many side by side.
LOWS = st.builds(
    lambda start, count, step: list(range(start, 65_536, step))[:count],
    st.integers(0, 65_535),
    st.sampled_from([1, 2, 5, 4_096]),
    st.sampled_from([1, 2, 16]),
)
HIGHS = st.sampled_from([0, 1, 2, 255, 256, 1 << 20, 1 << 47]) | st.integers(0, (1 << 48) - 1)


def bitmap_32(parts: list[tuple[int, list[int]]]) -> bytes:
    serialised: bytes = BitMap(high % 65_536 << 16 | low for high, lows in parts for low in lows).serialize()
    return serialised


def bitmap_64(parts: list[tuple[int, list[int]]]) -> bytes:
    """In Java's form, array containers only."""
    return united("rbm64", [one_container(high, lows) for high, lows in parts])


def one_container(high: int, lows: list[int]) -> bytes:
    leaf = struct.pack("<BHB", 4, 0, 0) + high.to_bytes(6, "big") + struct.pack("<Q", 0)
    array = struct.pack(f"<BBI{len(lows)}H", 1, 2, len(lows), *lows)
    return b"\1" + struct.pack("<Q", 1) + leaf + struct.pack("<IBI", 1, 0xFE, 1) + array + struct.pack("<QII", 1, 0, 0)


def united(name: str, bitmaps: list[bytes]) -> bytes:
    (result,) = fold(function(name, "BYTES"), "BYTES", [[(Step.AGG, bitmap) for bitmap in bitmaps]])
    assert isinstance(result, bytes)
    return result


def test_a_run_container_is_kept_if_an_array_has_the_same_size() -> None:
    given_ones = [bitmap_64([(1, [4, 5, 6, 7, 8])]), bitmap_64([(0, [0])]), bitmap_64([(1, [0, 2])])]
    assert united("rbm64", given_ones) == reduce(lambda acc, bitmap: united("rbm64", [acc, bitmap]), given_ones)


def test_distant_values_of_a_hot_key_have_constant_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    walked = 0
    update = BitMap.update

    class Counting(BitMap):
        def update(self, *others: Any) -> None:
            nonlocal walked
            walked += len(self) + sum(map(len, others))  # containers: each value has one of its own
            update(self, *others)

    monkeypatch.setattr(roaring32, "BitMap", Counting)
    count = 4_096
    found = united("rbm32", [bitmap_32([(high, [7])]) for high in range(count)])
    assert found == bitmap_32([(high, [7]) for high in range(count)])
    assert walked <= count * (count.bit_length() + 1)


@pytest.mark.parametrize(("name", "bitmap_of"), [("rbm32", bitmap_32), ("rbm64", bitmap_64)], ids=["rbm32", "rbm64"])
@given(data=st.data())
def test_bitmaps_merged_at_once_equal_those_merged_pairwise(
    name: str, bitmap_of: Callable[[list[tuple[int, list[int]]]], bytes], data: st.DataObject
) -> None:
    parts = st.lists(st.tuples(HIGHS, LOWS), min_size=1, max_size=4)
    bitmaps = [bitmap_of(drawn) for drawn in data.draw(st.lists(parts, min_size=2, max_size=6))]
    assert united(name, bitmaps) == reduce(lambda acc, bitmap: united(name, [acc, bitmap]), bitmaps)
