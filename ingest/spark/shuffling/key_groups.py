"""Divides the keys of a table whose buckets an index chooses into key groups. All rows of a key reach one assigner.

    key ── hash ── key group ── shuffle partition ── assigner     bucket b gets new keys of assigner b % assigners only

A key group is a function of the key. If keys keep their partitions, it is a function of the key's hash in the index.

Source: Java `index/BucketAssigner.java` (computeHashKey, isMyBucket).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tidelake.storage.model.binary_row import hash_rows
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners.bucket_assigner import AssignedRows, PartitionedRows, StatelessAssigner
from tidelake.storage.write.assigners.dynamic import num_assigners_of


def has_dynamic_buckets(context: TableContext) -> bool:
    """Return whether an index stores the bucket of each key."""
    return bucket_mode(context.schema, context.options) in (BucketMode.DYNAMIC, BucketMode.CROSS_PARTITION)


def keys_change_partition(context: TableContext) -> bool:
    return bucket_mode(context.schema, context.options) is BucketMode.CROSS_PARTITION


def fixed_assigners(context: TableContext) -> int | None:
    """Return the number of assigners per partition in the table's options; None: it depends on the work."""
    return None if keys_change_partition(context) else num_assigners_of(context)


class KeyGroupAssigner(StatelessAssigner):
    """A `BucketAssigner` for the shuffle to assigners: its buckets are key groups.

    key_groups: number of key groups.
    """

    is_function_of_rows = True

    def __init__(self, context: TableContext, shuffle_partitions: int) -> None:
        schema = context.schema
        self._keys = schema.primary_keys if keys_change_partition(context) else schema.trimmed_primary_keys
        self._types = [field.type for field in schema.select(self._keys)]
        self.key_groups = fixed_assigners(context) or shuffle_partitions

    def assign(self, rows: PartitionedRows) -> AssignedRows:
        hashes = hash_rows([rows.rows.column(name) for name in self._keys], self._types)
        return AssignedRows(rows, key_groups_of(hashes, self.key_groups))


def key_groups_of(hashes: NDArray[np.int32], key_groups: int) -> NDArray[np.int32]:
    of_keys: NDArray[np.int32] = np.abs(np.fmod(hashes, np.int32(key_groups)))
    return of_keys


def shuffle_partition_of_key_group(context: TableContext, key: BucketId, shuffle_partitions: int) -> int:
    """Return the shuffle partition of a key group.

    If keys change their partition, all rows of a key have one shuffle partition.

    key: a key group of a partition.
    """
    partition = b"" if keys_change_partition(context) else key.partition
    return (zlib.crc32(context.name.encode()) + zlib.crc32(partition) + key.bucket) % shuffle_partitions


def owners_of(
    context: TableContext, shuffle_partitions: int, num_assigners: int
) -> Callable[[bytes, NDArray[np.int32]], NDArray[np.int32]]:
    """Return a function that finds the assigners of a partition's keys, by their hashes.

    It is not for keys that change their partition.

    num_assigners: number of assigners if the table's options don't set it.
    """
    fixed = fixed_assigners(context)

    def owners(partition: bytes, hashes: NDArray[np.int32]) -> NDArray[np.int32]:
        key_groups = key_groups_of(hashes, fixed or shuffle_partitions)
        if fixed is not None:
            return key_groups
        first = shuffle_partition_of_key_group(context, BucketId(partition, 0), shuffle_partitions)
        found: NDArray[np.int32] = ((first + key_groups) % shuffle_partitions % num_assigners).astype(np.int32)
        return found

    return owners
