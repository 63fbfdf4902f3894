"""Positions along curves: ranks, interleaving, and the Hilbert curve."""

from __future__ import annotations

import datetime
import tracemalloc
from decimal import Decimal
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.compaction.append.clustering import (
    ClusteringStrategy,
    Curve,
    RankScale,
    hilbert_transposed,
    interleaved,
    rank_bits,
)
from tidelake.errors import BadInput


def grid(bits: int, dimensions: int) -> list[np.ndarray[Any, np.dtype[np.uint64]]]:
    """Every point of a cube, an array an axis."""
    points = list(product(range(1 << bits), repeat=dimensions))
    return [np.array(axis, np.uint64) for axis in zip(*points, strict=True)]


@pytest.mark.parametrize(("bits", "dimensions"), [(1, 2), (3, 2), (5, 2), (2, 3), (3, 3), (2, 4)])
def test_the_hilbert_curve_visits_every_point_and_steps_only_to_neighbours(bits: int, dimensions: int) -> None:
    axes = grid(bits, dimensions)
    positions = interleaved(hilbert_transposed(axes, bits), bits)
    assert sorted(positions.tolist()) == list(range(1 << (bits * dimensions)))
    order = np.argsort(positions)
    for here, there in pairwise(order):
        assert sum(abs(int(axis[here]) - int(axis[there])) for axis in axes) == 1


@given(st.lists(st.tuples(*[st.integers(0, 2**16 - 1)] * 3), min_size=1, max_size=20))
def test_interleaving_takes_the_highest_bits_first(points: list[tuple[int, int, int]]) -> None:
    axes = [np.array(axis, np.uint64) for axis in zip(*points, strict=True)]
    texts = [[f"{value:016b}" for value in point] for point in points]
    expected = [int("".join("".join(bits) for bits in zip(*text, strict=True)), 2) for text in texts]
    assert interleaved(axes, 16).tolist() == expected


D = datetime.date


@pytest.mark.parametrize(
    "ordered",
    [
        pytest.param(pa.array([None, -(2**63), -5, 0, 7, 2**63 - 1], pa.int64()), id="numbers"),
        pytest.param(pa.array([None, float("-inf"), -0.5, -0.0, 0.0, 1e300, float("nan")]), id="floats"),
        pytest.param(pa.array([None, "", "a", "customer-0001", "customer-0002", "é"]), id="texts with one beginning"),
        pytest.param(pa.array([None, b"", b"\0", b"\0\0", b"\xff"]), id="bytes"),
        pytest.param(
            pa.array([None, Decimal("-1E+20"), Decimal(3), Decimal("9E+20")], pa.decimal128(38, 2)),
            id="long decimals",
        ),
        pytest.param(pa.array([None, D(1900, 1, 1), D(1969, 12, 31), D(2024, 1, 1)]), id="dates"),
        pytest.param(pa.array([None, False, True]), id="booleans"),
        pytest.param(pa.array([None, None], pa.int32()), id="nulls only"),
        pytest.param(pa.array([], pa.string()), id="no rows"),
    ],
)
def test_ranks_rise_with_the_values_and_nulls_come_first(ordered: pa.Array) -> None:
    ranks = RankScale.of([ordered.slice(1), ordered], 16).ranks(ordered)
    assert ranks.tolist() == sorted(set(ranks.tolist())) or ordered.null_count > 1
    assert all(rank == 0 for rank, value in zip(ranks.tolist(), ordered, strict=True) if not value.is_valid)
    assert all(0 < rank < 2**16 for rank, value in zip(ranks.tolist(), ordered, strict=True) if value.is_valid)


def test_one_huge_string_does_not_enlarge_the_other_rows() -> None:
    """Only the beginning of a text counts; all words of this one, for every row, would be half a gigabyte."""
    texts = pa.array([f"text {i:05}" for i in range(9_999)] + ["x" * 40_000])
    tracemalloc.start()
    try:
        ranks = RankScale.of([texts], 16).ranks(texts)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (np.diff(ranks.astype(np.int64)) > 0).all()
    assert peak_bytes < 400 * len(texts)


def test_a_column_of_two_values_has_the_same_weight_as_one_of_a_million() -> None:
    """Their ranks differ in the highest bit, where a curve looks first."""
    ranks = RankScale.of([pa.array([3, 4])], 16).ranks(pa.array([3, 4]))
    assert (ranks >> np.uint64(14)).tolist() == [2, 3]


def test_many_values_fill_the_ranks_evenly_for_any_skew() -> None:
    values = np.exp(np.random.default_rng(0).normal(0, 8, 100_000))
    ranks = RankScale.of([pa.array(values)], 8).ranks(pa.array(values))
    counts = np.bincount(ranks.astype(np.int64), minlength=256)
    assert counts.max() < 3 * len(values) / 256


def test_a_sample_need_not_hold_every_value() -> None:
    scale = RankScale.of([pa.array([10, 20])], 16)
    assert scale.ranks(pa.array([5, 10, 15, 20, 25])).tolist() == sorted(
        scale.ranks(pa.array([5, 10, 15, 20, 25])).tolist()
    )


@pytest.mark.parametrize("strategy", [ClusteringStrategy.ZORDER, ClusteringStrategy.HILBERT])
@pytest.mark.parametrize("columns", [2, 3, 9, 16])
def test_neighbours_on_a_curve_are_near_in_every_column(strategy: ClusteringStrategy, columns: int) -> None:
    chance = np.random.default_rng(1)
    names = [f"c{i}" for i in range(columns)]
    rows = pa.record_batch([chance.permutation(4096) for _ in names], names)
    positions = Curve.from_samples(names, strategy, [rows]).positions(rows)
    assert positions.min() >= 0
    pieces = np.array_split(np.argsort(positions, kind="stable"), 64)
    spans = [np.ptp(rows.column(name).to_numpy()[piece]) / 4096 for name in names for piece in pieces]
    assert np.mean(spans) < (0.2 if columns == 2 else 0.4 if columns == 3 else 0.95)


@pytest.mark.parametrize(("columns", "bits"), [(2, 16), (3, 16), (4, 15), (7, 9), (16, 3)])
def test_a_position_fits_a_positive_number(columns: int, bits: int) -> None:
    assert rank_bits(columns) == bits
    assert columns * bits < 64


@pytest.mark.parametrize(
    ("columns", "given_", "chosen"),
    [
        pytest.param(1, None, ClusteringStrategy.ORDER, id="one column"),
        pytest.param(2, None, ClusteringStrategy.ZORDER, id="two columns"),
        pytest.param(4, None, ClusteringStrategy.ZORDER, id="four columns"),
        pytest.param(5, None, ClusteringStrategy.HILBERT, id="five columns"),
        pytest.param(3, ClusteringStrategy.ORDER, ClusteringStrategy.ORDER, id="as asked for"),
    ],
)
def test_the_strategy_follows_the_number_of_columns(
    columns: int, given_: ClusteringStrategy | None, chosen: ClusteringStrategy
) -> None:
    assert ClusteringStrategy.choose([f"c{i}" for i in range(columns)], given_) is chosen


def test_a_curve_needs_at_least_two_columns() -> None:
    with pytest.raises(BadInput, match=r"hilbert takes 2 to 16 columns, not 1; sort by order instead"):
        ClusteringStrategy.choose(["a"], ClusteringStrategy.HILBERT)
    with pytest.raises(
        BadInput, match=r"there is no clustering strategy 'spiral'; the strategies are order, zorder, hilbert"
    ):
        ClusteringStrategy.parse("spiral")
