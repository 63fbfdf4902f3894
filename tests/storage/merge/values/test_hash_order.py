"""Hash codes and the order of hash tables equal Java's."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from tidelake.storage.merge.values.hash_order import HashOrderedList, hash_codes


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        pytest.param(pa.array([7, -1, None], pa.int32()), [7, -1, 0], id="Integer"),
        pytest.param(pa.array([-1, 2**33 + 5], pa.int64()), [0, 7], id="Long: its halves xor"),
        pytest.param(pa.array([True, False, None]), [1231, 1237, 0], id="Boolean"),
        pytest.param(pa.array([1.0, -0.0], pa.float64()), [1072693248, -2147483648], id="Double: its bits"),
        pytest.param(pa.array([1.0], pa.float32()), [1065353216], id="Float: its bits"),
        pytest.param(
            pa.array([Decimal("12.34"), Decimal("-12.34")], pa.decimal128(10, 2)), [38256, -38252], id="BigDecimal"
        ),
        pytest.param(
            pa.array([datetime(1969, 12, 31, 23, 59, 59, 999999)], pa.timestamp("us")), [999000], id="Timestamp"
        ),
    ],
)
def test_values_hash_as_in_java(values: pa.Array, codes: list[int]) -> None:
    assert hash_codes(values) == codes


@pytest.mark.parametrize(
    ("hashes", "most", "order"),
    [
        pytest.param([], 0, [], id="nothing"),
        pytest.param([17, 1, 0], 3, [0, 17, 1], id="16 bins, 17 and 1 share one in the order they came"),
        pytest.param([17, 1, 0], 13, [0, 1, 17], id="13 were there once: 32 bins"),
        pytest.param([65536, 2, -1], 3, [-1, 65536, 2], id="the upper half counts too"),
    ],
)
def test_entries_are_ordered_by_their_bins(hashes: list[int], most: int, order: list[int]) -> None:
    assert through_a_table(hashes, most) == order


def test_entries_computed_if_absent_precede_others_of_their_bin() -> None:
    assert through_a_table([1, 17, 33, 0], 4, newest_first=True) == [0, 33, 17, 1]


def through_a_table(hashes: list[int], most: int, *, newest_first: bool = False) -> list[int]:
    line: HashOrderedList[int] = HashOrderedList(lambda code: code, lambda code: code, newest_first=newest_first)
    line.extend(hashes)
    line.rebuild(most)
    return line.in_order()
