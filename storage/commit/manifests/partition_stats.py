"""The smallest and largest partition values of a manifest, computed when it is written and used before it is read.

Source: Java `stats/SimpleStatsCollector.java` (mode FULL for every column), `partition/PartitionPredicate.java`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TypeAlias

import pyarrow as pa

from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.files.data_file import EMPTY_STATS, SimpleStats
from tidelake.storage.merge.normalized_keys import normalize_column
from tidelake.storage.model.binary_row import decode_rows, serialize_rows
from tidelake.storage.model.types import DataType

_Comparable: TypeAlias = tuple[int, ...]  # starts with 0 for null, otherwise with 1


def partition_stats(partitions: Sequence[bytes], types: Sequence[DataType]) -> SimpleStats:
    """Return bounds and null counts.

    partitions: the partition of each entry (serialized BinaryRows), at least one
    """
    if not types:
        return EMPTY_STATS
    counts = Counter(partitions)
    rows = list(counts)
    columns = decode_rows(rows, types)
    null_counts = tuple(
        sum(count for value, count in zip(column.is_valid().to_pylist(), counts.values(), strict=True) if not value)
        for column in columns
    )
    if len(rows) == 1:
        return SimpleStats(rows[0], rows[0], null_counts)
    bounds = [_bounds(column) for column in columns]
    (smallest,) = serialize_rows([column.take([low]) for column, (low, _) in zip(columns, bounds, strict=True)], types)
    (largest,) = serialize_rows([column.take([high]) for column, (_, high) in zip(columns, bounds, strict=True)], types)
    return SimpleStats(smallest, largest, null_counts)


def _bounds(column: pa.Array) -> tuple[int, int]:
    """Return the positions of the smallest and the largest value; of a null only if all values are null."""
    keys = _comparable(column)
    places = [i for i, key in enumerate(keys) if key[0]] or [0]
    return min(places, key=keys.__getitem__), max(places, key=keys.__getitem__)


def may_hold(
    manifests: Sequence[ManifestFileMeta], partitions: Collection[bytes], types: Sequence[DataType]
) -> list[bool]:
    """Return for each manifest whether one of the partitions is within its bounds.

    True if the bounds are unknown. Never False for a manifest with an entry of one of the partitions.
    """
    if not types or not manifests:
        return [bool(partitions)] * len(manifests)
    wanted = list(partitions)
    lows = [meta.partition_stats.min_values for meta in manifests]
    highs = [meta.partition_stats.max_values for meta in manifests]
    columns = [_comparable(column) for column in decode_rows([*lows, *highs, *wanted], types, out_of_range="null")]
    n = len(manifests)
    return [
        any(
            all(
                _within(column[2 * n + p], column[m], column[n + m], _null_count(meta, c), meta.num_entries)
                for c, column in enumerate(columns)
            )
            for p in range(len(wanted))
        )
        for m, meta in enumerate(manifests)
    ]


def _null_count(meta: ManifestFileMeta, column: int) -> int | None:
    counts = meta.partition_stats.null_counts
    return counts[column] if column < len(counts) else None


def _within(value: _Comparable, low: _Comparable, high: _Comparable, null_count: int | None, entries: int) -> bool:
    if not value[0]:
        return null_count != 0
    if not low[0] or not high[0]:
        return null_count != entries
    return low <= value <= high


def _comparable(column: pa.Array) -> list[_Comparable]:
    words = normalize_column(column, nullable=True)
    return list(zip(*(word.tolist() for word in words), strict=True))
