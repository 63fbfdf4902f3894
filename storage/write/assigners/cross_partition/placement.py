"""Places rows whose keys may be in another partition. Each merge engine has one rule. The functions read no files.

    the key is             deduplicate                          partial-update, aggregation    first-row
    new                    it gets a bucket of its partition    the same                       the same
    in the row's partition the row is written to its bucket     the same                       the same
    in another partition   -D there, then as for a new key      the row is written there       the row is dropped

Each row sees the effect of earlier rows of its key. The room of keys that leave a bucket can be used by the next batch.

Source: Java `crosspartition/GlobalIndexAssigner.java`, `DeleteExistingProcessor.java`, `UseOldExistingProcessor.java`,
`SkipNewExistingProcessor.java`; vectors `cross_partition.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelake.storage.model.options import MergeEngine
from tidelake.storage.write.assigners.cross_partition.bucket_capacities import BucketCapacities
from tidelake.storage.write.assigners.cross_partition.key_index import UNKNOWN
from tidelake.storage.write.assigners.cross_partition.key_words import RowsByKey


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
    """Moves keys. Local arrays are in the order of `groups.order`; the returned arrays are not."""
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
    """Returns the partition of each place; UNKNOWN for UNKNOWN."""
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
