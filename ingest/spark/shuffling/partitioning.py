"""Sends rows to tasks by the task's number, on each release of PySpark.

PySpark 4.1 has `repartitionById`. Older releases only divide rows by a hash, so each task gets a number whose hash
leads to it.

Source: Spark `HashPartitioning`, `Murmur3_x86_32.hashInt`.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from tidelake.ingest.spark.release import HAS_REPARTITION_BY_ID

_SEED: Final = 42
_CANDIDATES_PER_TASK: Final = 32  # the numbers that are tried at once; each hits one of the tasks


def repartitioned(rows: DataFrame, tasks: int, column: str) -> DataFrame:
    """Return the rows, with those of task n in partition n. The column's values may change.

    column: the number of the row's task, an int.
    """
    if HAS_REPARTITION_BY_ID:
        return rows.repartitionById(tasks, column)
    keys = ", ".join(map(str, keys_of_partitions(tasks)))
    return rows.withColumn(column, expr(f"element_at(array({keys}), `{column}` + 1)")).repartition(tasks, column)


@cache
def keys_of_partitions(count: int) -> tuple[int, ...]:
    """Return for each partition a number whose hash leads to it."""
    keys = np.full(count, -1, np.int64)
    start = 0
    while (keys < 0).any():
        numbers = np.arange(start, start + _CANDIDATES_PER_TASK * count)
        start += len(numbers)
        partitions = spark_hashes(numbers.astype(np.int32)).astype(np.int64) % count  # never negative, like pmod
        found, first = np.unique(partitions, return_index=True)
        is_new = keys[found] < 0
        keys[found[is_new]] = numbers[first[is_new]]
    return tuple(keys.tolist())


def spark_hashes(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return what Spark's `hash` makes of ints."""
    with np.errstate(over="ignore"):
        words = numbers.view(np.uint32) * np.uint32(0xCC9E2D51)
        words = _rotated(words, 15) * np.uint32(0x1B873593)
        hashes = _rotated(np.uint32(_SEED) ^ words, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        hashes ^= np.uint32(4)  # bytes of an int
        hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        hashes ^= hashes >> np.uint32(16)
    return hashes.view(np.int32)


def _rotated(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
