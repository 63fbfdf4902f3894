"""Places rows whose keys may be in another partition. Each merge engine has one rule. The functions read no files.

    the key is             deduplicate                          partial-update, aggregation    first-row
    new                    it gets a bucket of its partition    the same                       the same
    in the row's partition the row is written to its bucket     the same                       the same
    in another partition   -D there, then as for a new key      the row is written there       the row is dropped

A new key gets the first bucket of its partition with room. Each row sees the effect of earlier rows of its key. The
room of keys that leave a bucket can be used by the next batch.

Source: Java `crosspartition/GlobalIndexAssigner.java`, `BucketAssigner.java`, `DeleteExistingProcessor.java`,
`UseOldExistingProcessor.java`, `SkipNewExistingProcessor.java`; vectors `cross_partition.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelake.storage.model.options import MergeEngine
from tidelake.storage.write.assigners.cross_partition.key_index import UNKNOWN
from tidelake.storage.write.assigners.cross_partition.key_words import RowsByKey


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
        """Remove one key from each of these places, which may repeat."""
        for place, count in zip(*np.unique(places, return_counts=True), strict=True):
            self.add(int(self.partition_of[place]), int(self.bucket_of[place]), -int(count))

    def take(self, partitions: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the places of n new keys, in order of arrival.

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
        """Yield the buckets that take `count` keys, and how many keys each one takes."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """The placement of n rows of a batch with m keys.

    places (n,): the place of each row.
    is_dropped (n,): which rows are not written; None: all are written.
    deletes (d,): rows before which their key is deleted in another place.
    deleted_from (d,): the places of these deletes.
    key_places (m,): the place of each key afterwards.
    """

    places: NDArray[np.int32]
    key_places: NDArray[np.int32]
    is_dropped: NDArray[np.bool_] | None = None
    deletes: NDArray[np.intp] | None = None
    deleted_from: NDArray[np.int32] | None = None


Rule: TypeAlias = Callable[[RowsByKey, NDArray[np.int32], NDArray[np.int32], BucketCapacities], Placement]
"""A rule is called with the keys of a batch, the partition of each row (n,), the current place of each key (m,), and
the capacities of the buckets, which it changes.
"""


def _delete_old_rows(
    groups: RowsByKey, partitions: NDArray[np.int32], known: NDArray[np.int32], capacities: BucketCapacities
) -> Placement:
    """Move keys. Local arrays are in the order of `groups.order`; the returned arrays are not."""
    order, is_first = groups.order, groups.is_first
    wanted = partitions[order]
    known_of_row = known[groups.group]
    before = np.empty_like(wanted)  # the partition in which a row finds its key
    before[1:] = wanted[:-1]
    before[is_first] = _partitions_of(known_of_row[is_first], capacities)
    is_new = before != wanted
    places = np.where(is_new, np.int32(UNKNOWN), known_of_row)
    at = np.flatnonzero(is_new)
    at = at[np.argsort(order[at])]
    places[at] = capacities.take(wanted[at])
    places = places[np.maximum.accumulate(np.where(is_new | is_first, np.arange(len(order)), 0))]
    moved = np.flatnonzero(is_new & (before != UNKNOWN))
    deleted_from = np.where(is_first[moved], known_of_row[moved], places[moved - 1])
    capacities.release(deleted_from)
    is_last = np.append(is_first[1:], np.ones(min(1, len(order)), np.bool_))
    in_order = np.empty_like(places)
    in_order[order] = places
    return Placement(in_order, places[is_last], deletes=order[moved], deleted_from=deleted_from)


def _use_old_partition(
    groups: RowsByKey, partitions: NDArray[np.int32], known: NDArray[np.int32], capacities: BucketCapacities
) -> Placement:
    key_places = known.copy()
    first_rows = groups.order[groups.is_first]
    new = np.flatnonzero(known == UNKNOWN)
    new = new[np.argsort(first_rows[new])]
    key_places[new] = capacities.take(partitions[first_rows[new]])
    places = np.empty(len(groups.order), np.int32)
    places[groups.order] = key_places[groups.group]
    return Placement(places, key_places)


def _skip_new_rows(
    groups: RowsByKey, partitions: NDArray[np.int32], known: NDArray[np.int32], capacities: BucketCapacities
) -> Placement:
    placed = _use_old_partition(groups, partitions, known, capacities)
    is_dropped = capacities.partition_of[placed.places] != partitions
    return Placement(placed.places, placed.key_places, is_dropped=is_dropped)


def _partitions_of(places: NDArray[np.int32], capacities: BucketCapacities) -> NDArray[np.int32]:
    """Return the partition of each place; UNKNOWN for UNKNOWN."""
    partitions = np.full(len(places), UNKNOWN, np.int32)
    is_known = places != UNKNOWN
    partitions[is_known] = capacities.partition_of[places[is_known]]
    return partitions


RULES: Final[Mapping[MergeEngine, Rule]] = {
    MergeEngine.DEDUPLICATE: _delete_old_rows,
    MergeEngine.PARTIAL_UPDATE: _use_old_partition,
    MergeEngine.AGGREGATION: _use_old_partition,
    MergeEngine.FIRST_ROW: _skip_new_rows,
}
