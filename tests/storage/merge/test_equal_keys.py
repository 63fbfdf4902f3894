"""Groups of equal keys of any length: short, long or mixed."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.merge.equal_keys import Groups

# Rows of a group: mostly few, at times more than there are rounds, at times nothing but hot keys.
LENGTHS = st.lists(st.integers(1, 4) | st.sampled_from([1, 31, 32, 33, 34, 90]), max_size=30) | st.lists(
    st.integers(7, 70), max_size=4
)


def groups_of(lengths: list[int]) -> Groups:
    ends = np.cumsum(lengths, dtype=np.intp)
    return Groups(np.arange(sum(lengths)), ends - np.array(lengths, np.intp))


def rows_of_each(lengths: list[int], values: list[Any]) -> list[list[Any]]:
    ends = list(accumulate(lengths))
    return [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]


@pytest.mark.parametrize(
    ("operation", "of_two", "numbers"),
    [
        (np.add, operator.add, st.integers(-(2**50), 2**50)),
        (np.maximum, max, st.integers(-(2**63), 2**63 - 1)),
        (np.minimum, min, st.integers(-(2**63), 2**63 - 1)),
        (np.multiply, operator.mul, st.integers(-1, 1)),
    ],
    ids=["add", "maximum", "minimum", "multiply"],
)
@given(lengths=LENGTHS, data=st.data())
def test_a_group_is_reduced_to_one_value(
    operation: np.ufunc,
    of_two: Callable[[int, int], int],
    numbers: st.SearchStrategy[int],
    lengths: list[int],
    data: st.DataObject,
) -> None:
    values = data.draw(st.lists(numbers, min_size=sum(lengths), max_size=sum(lengths)))
    reduced = groups_of(lengths).reduce(operation, np.array(values, np.int64))
    assert reduced.tolist() == [reduce(of_two, rows) for rows in rows_of_each(lengths, values)]


@given(LENGTHS, st.data())
def test_the_first_and_the_last_wanted_row_of_a_group_are_found(lengths: list[int], data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.booleans(), min_size=sum(lengths), max_size=sum(lengths)))
    groups, mask = groups_of(lengths), np.array(wanted, np.bool_)
    positions = [[p for p in rows if wanted[p]] for rows in rows_of_each(lengths, list(range(sum(lengths))))]
    assert groups.first(mask).tolist() == [found[0] if found else -1 for found in positions]
    assert groups.last(mask).tolist() == [found[-1] if found else -1 for found in positions]
    assert groups.any(mask).tolist() == [bool(found) for found in positions]


@given(LENGTHS, st.randoms(use_true_random=False))
def test_floats_are_added_one_row_after_the_other(lengths: list[int], random: Random) -> None:
    values = [random.uniform(-1, 1) * 10.0 ** random.randrange(-20, 20) for _ in range(sum(lengths))]
    sums = groups_of(lengths).reduce_in_order(np.add, np.array(values))
    assert sums.tolist() == [reduce(operator.add, rows) for rows in rows_of_each(lengths, values)]


def test_group_reductions_keep_the_dtype() -> None:
    for lengths in ([1, 2], [40, 40], [1, 40]):
        for dtype in (np.int8, np.int32, np.float32, np.bool_):
            assert groups_of(lengths).reduce(np.maximum, np.ones(sum(lengths), dtype)).dtype == dtype
