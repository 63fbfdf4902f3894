"""Rows reach the task with their number, also on releases of PySpark that only divide rows by a hash."""

from __future__ import annotations

import numpy as np
import pytest

from tidelake.ingest.spark.shuffling.partitioning import keys_of_partitions, spark_hashes


def test_hashes_are_those_of_spark() -> None:
    """`SELECT hash(0), hash(1)`"""
    assert spark_hashes(np.array([0, 1], np.int32)).tolist() == [933211791, -559580957]


@pytest.mark.parametrize("count", [1, 2, 7, 200, 1_000])
def test_each_partition_has_a_number_that_leads_to_it(count: int) -> None:
    keys = np.array(keys_of_partitions(count), np.int32)
    assert (spark_hashes(keys).astype(np.int64) % count).tolist() == list(range(count))
