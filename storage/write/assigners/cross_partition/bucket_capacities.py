"""How many keys each bucket of each partition has, and which bucket a new key gets: the first one with room.

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
    """Which buckets have room for new keys.

    target_rows: a bucket with that many keys is full
    num_assigners: buckets belong to assigner `bucket % num_assigners`; `assigner` fills its own
    """

    target_rows: int
    num_assigners: int = 1
    assigner: int = 0


@dataclass(slots=True)
class BucketCapacities:
    """Partitions by number. A place is a bucket of a partition, by number, too: as many keys as there are have one.

    partition_of, bucket_of (places,): of each place.
    """

    rule: BucketCapacityRule
    partition_of: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    bucket_of: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    _places: dict[tuple[int, int], int] = field(default_factory=dict)
    _rows: dict[int, dict[int, int]] = field(default_factory=dict)  # by partition and bucket: keys

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
        """One key has left each of these places, which may repeat."""
        for place, count in zip(*np.unique(places, return_counts=True), strict=True):
            self.add(int(self.partition_of[place]), int(self.bucket_of[place]), -int(count))

    def take(self, partitions: NDArray[np.int32]) -> NDArray[np.int32]:
        """Places of new keys (n,), in order of arrival.

        partitions (n,): of each
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
                start += count  # noqa: PLW2901 - of what is left
        return places

    def _buckets(self, partition: int, count: int) -> Iterator[tuple[int, int]]:
        """Which buckets take `count` keys, and how many each."""
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
