"""Counts the keys of each bucket. A new key gets the first bucket of its partition with room.

Source: Java `crosspartition/BucketAssigner.java`; vectors `cross_partition.json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class BucketCapacityRule:
    """The rule that decides which buckets have room for new keys.

    target_rows: a bucket with this number of keys is full
    num_assigners: bucket `b` belongs to assigner `b % num_assigners`
    assigner: the assigner that this rule is for; it fills only its own buckets
    """

    target_rows: int
    num_assigners: int = 1
    assigner: int = 0


@dataclass(slots=True)
class BucketCapacities:
    """The number of keys in each bucket.

    Partitions are given as numbers. A place is the number of a bucket of a partition.

    partition_of (places,): the partition of each place.
    bucket_of (places,): the bucket of each place.
    """

    rule: BucketCapacityRule
    partition_of: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    bucket_of: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    _places: dict[tuple[int, int], int] = field(default_factory=dict)
    _rows: dict[int, dict[int, int]] = field(default_factory=dict)  # number of keys by partition and bucket

    def place(self, partition: int, bucket: int) -> int:
        number = self._places.setdefault((partition, bucket), len(self._places))
        if number == len(self.bucket_of):
            self.partition_of = np.append(self.partition_of, np.int32(partition))
            self.bucket_of = np.append(self.bucket_of, np.int32(bucket))
        return number

    def add(self, partition: int, bucket: int, count: int) -> None:
        rows = self._rows.setdefault(partition, {})
        rows[bucket] = rows.get(bucket, 0) + count

    def release(self, places: NDArray[np.int32]) -> None:
        """Removes one key from each of these places, which may repeat."""
        for place, count in zip(*np.unique(places, return_counts=True), strict=True):
            self.add(int(self.partition_of[place]), int(self.bucket_of[place]), -int(count))

    def take(self, partitions: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns the places of n new keys, in order of arrival.

        partitions (n,): the partition of each key
        """
        order = np.argsort(partitions, kind="stable")
        ordered = partitions[order]
        edges = np.flatnonzero(np.diff(ordered, prepend=-1, append=-1))
        places = np.empty(len(partitions), np.int32)
        for start, stop in pairwise(edges.tolist()):
            partition = int(ordered[start])
            for bucket, count in self._buckets(partition, stop - start):
                places[order[start : start + count]] = self.place(partition, bucket)
                self.add(partition, bucket, count)
                start += count  # noqa: PLW2901 - the rest starts here
        return places

    def _buckets(self, partition: int, count: int) -> Iterator[tuple[int, int]]:
        """Yields the buckets that take `count` keys, and how many keys each one takes."""
        for bucket, room in self._with_room(partition):
            taken = min(room, count)
            yield bucket, taken
            count -= taken
            if not count:
                return

    def _with_room(self, partition: int) -> Iterator[tuple[int, int]]:
        rule, rows = self.rule, dict(self._rows.get(partition, {}))
        for bucket in sorted(rows):
            if bucket % rule.num_assigners == rule.assigner and rows[bucket] < rule.target_rows:
                yield bucket, rule.target_rows - rows[bucket]
        bucket = rule.assigner
        while True:
            if bucket not in rows:
                yield bucket, max(rule.target_rows, 1)
            bucket += rule.num_assigners
