"""The index of one partition: maps the hash of each key to the key's bucket, stored in arrays.

Keys with equal hashes have the same bucket. A new key gets the first bucket with room, in ascending order, otherwise a
new bucket. If the number of buckets has reached its limit, it gets any bucket.

An entry is one int64: hash << 16 | bucket. Entries are in a few sorted runs, each larger than the next. A new key
costs eight bytes, and a share of an occasional merge.

Source: Java `index/PartitionIndex.java`, `index/SimpleHashBucketAssigner.java`, `index/BucketAssigner.java`; vectors
`dynamic_bucket.json`, `simple_bucket_assigner.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.files.file_index.value_hashes import hash_numbers

BUCKETS_MAX: Final = 32_767  # bucket ids are signed 16-bit numbers

_BUCKET_BITS: Final = 16
_BUCKET_MASK: Final = (1 << _BUCKET_BITS) - 1
_UNKNOWN: Final = -1
_GROWTH: Final = 4  # two neighbouring runs are merged unless the first has more than this many times the keys


@dataclass(frozen=True, slots=True)
class AssignmentRule:
    """The rule for the buckets of new keys.

    target_rows: a bucket with this number of keys is full.
    buckets_max: limit of buckets in the partition; None: limited only by the range of bucket ids.
    num_assigners: bucket `b` belongs to assigner `b % num_assigners`. Each assigner fills its own buckets.
    """

    target_rows: int
    buckets_max: int | None = None
    num_assigners: int = 1


class PartitionIndex:
    """The index of keys and buckets of one partition. Not thread-safe.

    hashes_by_bucket: the content of the partition's index files, or only the keys of this assigner.
    rows_by_bucket: the number of keys in each bucket, if it is larger than the number of these hashes.
    """

    def __init__(
        self,
        rule: AssignmentRule,
        hashes_by_bucket: Mapping[int, NDArray[np.int32]] | None = None,
        rows_by_bucket: Mapping[int, int] | None = None,
    ) -> None:
        self._rule = rule
        self._rows: dict[int, int] = {}  # keys in each bucket
        self._runs: list[NDArray[np.int64]] = []
        self._new: list[NDArray[np.int64]] = []
        for bucket, hashes in (hashes_by_bucket or {}).items():
            self._rows[bucket] = len(hashes)
        self._rows |= rows_by_bucket or {}
        if hashes_by_bucket:
            run = np.concatenate([_entries(hashes, bucket) for bucket, hashes in hashes_by_bucket.items()])
            run.sort()
            self._runs.append(run)

    def buckets_of(self, hashes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the bucket of each key (n,); -1 for an unknown key."""
        found = np.full(len(hashes), _UNKNOWN, np.int32)
        wanted = hashes.astype(np.int64) << _BUCKET_BITS
        for run in self._runs:
            if len(run):
                at = np.minimum(np.searchsorted(run, wanted), len(run) - 1)
                entries = run[at]
                hit = entries >> _BUCKET_BITS == hashes
                found[hit] = entries[hit] & _BUCKET_MASK
        return found

    def assign(self, hashes: NDArray[np.int32], assigners: NDArray[np.int32] | int = 0) -> NDArray[np.int32]:
        """Return the bucket of each key, in order of arrival.

        hashes (n,): hashes of the keys; may repeat.
        assigners (n,): for each key the assigner that chooses its bucket if it has none: 0 to num_assigners - 1. Or one
            assigner for all keys.
        Raises BadInput if a bucket is needed and no bucket id is left.
        """
        # Sorted hashes make the binary search access memory sequentially.
        distinct, first, places = np.unique(hashes, return_index=True, return_inverse=True)
        buckets = self.buckets_of(distinct)
        new = np.flatnonzero(buckets == _UNKNOWN)
        if len(new):
            arrival = new[np.argsort(first[new])]
            owners = 0 if isinstance(assigners, int) else assigners[first[arrival]]
            for owner in [assigners] if isinstance(assigners, int) else np.unique(owners).tolist():
                own_rows = arrival if isinstance(assigners, int) else arrival[owners == owner]
                buckets[own_rows] = self._choose(int(owner), distinct[own_rows])
            self.add(distinct[new], buckets[new])
        return buckets[places]

    def add(self, hashes: NDArray[np.int32], buckets: NDArray[np.int32]) -> None:
        """Add keys that are not in the index. Each key is passed once."""
        entries = (hashes.astype(np.int64) << _BUCKET_BITS) | buckets
        entries.sort()
        for bucket, count in zip(*np.unique(buckets, return_counts=True), strict=True):
            self._rows[int(bucket)] = self._rows.get(int(bucket), 0) + int(count)
        self._new.append(entries)
        self._runs.append(entries)
        while len(self._runs) > 1 and len(self._runs[-1]) * _GROWTH >= len(self._runs[-2]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort(kind="stable")  # NumPy's stable sort merges two sorted runs
            self._runs.append(merged)

    def new_keys(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return hashes and buckets of the keys that were added since `forget_new`."""
        entries = np.concatenate(self._new) if self._new else np.empty(0, np.int64)
        return _hashes(entries), (entries & _BUCKET_MASK).astype(np.int32)

    def forget_new(self) -> None:
        self._new = []

    def hashes_of(self, bucket: int) -> NDArray[np.int32]:
        """Return all hashes of a bucket, as its index file holds them."""
        return np.concatenate(
            [np.empty(0, np.int32), *(_hashes(run[run & _BUCKET_MASK == bucket]) for run in self._runs)]
        )

    def _choose(self, assigner: int, hashes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Choose buckets.

        hashes: hashes of new keys, in order of arrival.
        """
        chosen: list[NDArray[np.int32]] = []
        count = len(hashes)
        for bucket, room in self._with_room(assigner):
            taken = min(room, count)
            chosen.append(np.full(taken, bucket, np.int32))
            count -= taken
            if not count:
                break
        else:
            chosen.append(self._any_of(assigner, hashes[len(hashes) - count :]))
        return np.concatenate(chosen)

    def _with_room(self, assigner: int) -> Iterator[tuple[int, int]]:
        rule = self._rule
        for bucket in sorted(self._own(assigner)):
            if (room := rule.target_rows - self._rows[bucket]) > 0:
                yield bucket, room
        limit = BUCKETS_MAX if rule.buckets_max is None else rule.buckets_max
        for bucket in range(assigner, limit, rule.num_assigners):
            if bucket not in self._rows:
                yield bucket, max(rule.target_rows, 1)

    def _own(self, assigner: int) -> list[int]:
        return [bucket for bucket in self._rows if bucket % self._rule.num_assigners == assigner]

    def _any_of(self, assigner: int, hashes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Choose by hash, not at random as Java does: a task that Spark runs again must choose the same buckets."""
        if self._rule.buckets_max is None:
            raise BadInput(
                f"a partition has {len(self._rows)} buckets, and all are full: bucket ids end at {BUCKETS_MAX - 1}. "
                f"Set dynamic-bucket.target-row-num, now {self._rule.target_rows}, to a larger number"
            )
        own = sorted(self._own(assigner) or self._rows or [0])
        mixed = hash_numbers(hashes.astype(np.int64)).view(
            np.uint64
        )  # mixed, because the hashes of one assigner have the same remainder
        chosen: NDArray[np.int32] = np.array(own, np.int32)[mixed % np.uint64(len(own))]
        return chosen


def assigners_of(
    partition_hash: int, hashes: NDArray[np.int32], num_channels: int, num_assigners: int
) -> NDArray[np.int32]:
    """Return the channel that assigns the bucket of each key, 0 to num_channels - 1. Remainders have Java's sign."""
    start = abs(int(np.fmod(np.int32(partition_hash), np.int32(num_channels))))
    channels: NDArray[np.int32] = (start + np.abs(np.fmod(hashes, np.int32(num_assigners)))) % num_channels
    return channels


def _entries(hashes: NDArray[np.int32], bucket: int) -> NDArray[np.int64]:
    return (hashes.astype(np.int64) << _BUCKET_BITS) | bucket


def _hashes(entries: NDArray[np.int64]) -> NDArray[np.int32]:
    return (entries >> _BUCKET_BITS).astype(np.int32)
