"""Partition bounds in a manifest list, and the manifests that they exclude."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.model.snapshots.tables import data_file
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta, describe_manifest
from tidelake.storage.commit.manifests.partition_stats import may_hold, partition_stats
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS, SimpleStats
from tidelake.storage.model.binary_row import serialize_row
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.types import BOOLEAN, DATE, DOUBLE, INT, STRING, DataType, decimal

Values = tuple[Any, ...]


def rows(values: Sequence[Values], types: Sequence[DataType]) -> list[bytes]:
    return [serialize_row(value, types) for value in values]


def manifest(values: Sequence[Values], types: Sequence[DataType]) -> ManifestFileMeta:
    partitions = rows(values, types)
    entries = [ManifestEntry(FileKind.ADD, p, 0, -1, data_file(str(i))) for i, p in enumerate(partitions)]
    return describe_manifest("m", 1, entries, partition_stats(partitions, types))


@pytest.mark.parametrize(
    ("types", "values", "low", "high", "nulls"),
    [
        pytest.param([INT], [(3,), (-1,), (3,)], (-1,), (3,), (0,), id="numbers"),
        pytest.param([STRING], [("b",), ("a" * 300,), (None,)], ("a" * 300,), ("b",), (1,), id="texts are not cut"),
        pytest.param([INT, STRING], [(1, "z"), (2, "a")], (1, "a"), (2, "z"), (0, 0), id="each column by itself"),
        pytest.param([INT, STRING], [(1, None), (2, None)], (1, None), (2, None), (0, 2), id="a column of nulls"),
        pytest.param([STRING], [(None,)], (None,), (None,), (1,), id="one null partition"),
        pytest.param(
            [DATE],
            [(date(1969, 12, 31),), (date(2024, 1, 1),)],
            (date(1969, 12, 31),),
            (date(2024, 1, 1),),
            (0,),
            id="dates",
        ),
        pytest.param([BOOLEAN], [(True,), (False,)], (False,), (True,), (0,), id="booleans"),
        pytest.param(
            [decimal(30, 2)],
            [(Decimal("-1.50"),), (Decimal("1e20"),)],
            (Decimal("-1.50"),),
            (Decimal("1e20"),),
            (0,),
            id="long decimals",
        ),
        pytest.param([DOUBLE], [(math.nan,), (1.0,), (-0.0,)], (-0.0,), (math.nan,), (0,), id="NaN is the largest"),
    ],
)
def test_partition_bounds_are_computed(
    types: list[DataType], values: list[Values], low: Values, high: Values, nulls: tuple[int, ...]
) -> None:
    expected = SimpleStats(serialize_row(low, types), serialize_row(high, types), nulls)
    assert partition_stats(rows(values, types), types) == expected


def test_an_unpartitioned_table_has_empty_bounds() -> None:
    assert partition_stats([EMPTY_ROW, EMPTY_ROW], []) == EMPTY_STATS


AB = manifest([(1, "a"), (5, "b")], [INT, STRING])
NULLS = manifest([(1, None), (2, None)], [INT, STRING])
SOME_NULLS = manifest([(1, None), (2, "m")], [INT, STRING])


@pytest.mark.parametrize(
    ("held", "asked", "expected"),
    [
        pytest.param(AB, [(3, "a")], True, id="within"),
        pytest.param(AB, [(0, "a")], False, id="below in one column"),
        pytest.param(AB, [(3, "c")], False, id="above in one column"),
        pytest.param(AB, [(0, "a"), (5, "b")], True, id="one of several"),
        pytest.param(AB, [], False, id="none asked for"),
        pytest.param(AB, [(3, None)], False, id="a null where there are none"),
        pytest.param(SOME_NULLS, [(1, None)], True, id="a null where there are some"),
        pytest.param(SOME_NULLS, [(1, "m")], True, id="a value where there are some nulls"),
        pytest.param(NULLS, [(1, "m")], False, id="a value where there are only nulls"),
    ],
)
def test_manifests_are_selected_by_partition_bounds(
    held: ManifestFileMeta, asked: list[Values], expected: bool
) -> None:
    types = [INT, STRING]
    assert may_hold([held], rows(asked, types), types) == [expected]


@pytest.mark.parametrize("asked", [7, None])
def test_a_manifest_without_statistics_may_contain_any_partition(asked: int | None) -> None:
    types = [INT]
    null = serialize_row([None], types)
    unknown = ManifestFileMeta("m", 1, 2, 0, SimpleStats(null, null, (None,)), 0)
    assert may_hold([unknown], rows([(asked,)], types), types) == [True]


def test_any_manifest_of_an_unpartitioned_table_may_contain_its_only_partition() -> None:
    assert may_hold([AB, NULLS], [EMPTY_ROW], []) == [True, True]


PARTITIONS = st.lists(
    st.tuples(st.none() | st.integers(-3, 3), st.none() | st.text("aé\U0001f600", max_size=3)), min_size=1, max_size=6
)


@given(PARTITIONS, PARTITIONS)
def test_a_manifest_that_contains_a_partition_is_never_skipped(held: list[Values], asked: list[Values]) -> None:
    types = [INT, STRING]
    if set(held) & set(asked):
        assert may_hold([manifest(held, types)], rows(asked, types), types) == [True]
