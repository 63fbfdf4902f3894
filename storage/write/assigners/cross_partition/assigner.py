"""Assigns dynamic buckets in a table whose keys move between partitions, with an index of all keys and their buckets.

The index is built from the table's files when the first row arrives, and updated with each batch. It is not stored in
the table. Only one writer at a time may add rows: a commit conflicts if another writer added rows in the meantime
(`tidelake.storage.commit.publisher`). If others wrote between two of our commits, the index is built again.

Source: Java `crosspartition/GlobalIndexAssigner.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput, CommitConflict, UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.format import KIND_COLUMN, CommitKind, RowKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import with_kind
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired
from tidelake.storage.write.assigners.bucket_assigner import AssignedRows, PartitionedRows
from tidelake.storage.write.assigners.cross_partition.index_bootstrap import BucketKeys, read_keys
from tidelake.storage.write.assigners.cross_partition.key_index import UNKNOWN, KeyIndex
from tidelake.storage.write.assigners.cross_partition.key_words import RowsByKey, index_words
from tidelake.storage.write.assigners.cross_partition.placement import (
    RULES,
    BucketCapacities,
    BucketCapacityRule,
    Placement,
)

_log = get_logger(__name__)

_RETRACTED: Final = UNKNOWN - 1  # place p of a key without a row is stored as this number minus p
_NO_PLACE: Final = np.int32(0)  # a value for expected keys, of which only the existence matters
_LOADED_KEYS: Final = 1 << 18  # how many keys are added to the index at once
_KINDS_WITH_ROWS: Final = (CommitKind.APPEND, CommitKind.OVERWRITE)


@dataclass(frozen=True, slots=True)
class KeyIndexPart:
    """One of several assigners, in separate tasks, that place the rows of one commit. Each has its own keys.

    snapshot: the snapshot that all of them see; None: a table without snapshots.
    now_ms: the time that decides which keys are forgotten (TTL).
    num_assigners: number of assigners that share the buckets. Each fills its own buckets.
    assigner: number of this assigner
    """

    snapshot: Snapshot | None
    now_ms: int
    num_assigners: int
    assigner: int


class CrossPartitionAssigner:
    """See `BucketAssigner`. `assign` builds the index when the first row arrives.

    spill_directory: for an index that exceeds its memory; None: the system's directory for temporary files.
    replaces: each commit replaces all rows of the table, so its index starts empty.
    part: set if this is one of several assigners; it prepares one commit. None: it is the only assigner.
    """

    is_function_of_rows = False
    moves_rows = True
    reads_files = True

    def __init__(
        self,
        context: TableContext,
        *,
        spill_directory: str | None = None,
        replaces: bool = False,
        rule: BucketCapacityRule | None = None,
        part: KeyIndexPart | None = None,
    ) -> None:
        options = context.options
        self._context = context
        self._spill_directory = spill_directory
        self._replaces = replaces
        self._keys = context.schema.primary_keys
        self._partition_columns = context.schema.partition_keys
        self._partition_types = [f.type for f in context.schema.partition_fields]
        self._place_rows = RULES[options.merge_engine]
        of_part = (1, 0) if part is None else (part.num_assigners, part.assigner)
        self._rule = rule or BucketCapacityRule(options.dynamic_bucket_target_rows, *of_part)
        self._part = part
        self._expected: KeyIndex | None = None
        ttl_ms = options.cross_partition_index_ttl_ms
        self._ttl_ms = ttl_ms
        self._started_s = int(env.monotonic_s())
        self._index: KeyIndex | None = None
        self._base_id: int | None = None  # the snapshot whose keys the index has; None: not tracked
        self._committed: set[int] = set()  # our snapshots with rows since `_base_id`
        self._is_checked_since_commit = True
        self._written_to: BucketId | None = None  # any bucket with rows since the last commit was prepared
        self._is_lost = False

    # ------------------------------------------------------------ rows

    def expect(self, rows: pa.RecordBatch) -> None:
        """Announce rows that will be assigned. After the first call, the index keeps only keys of announced rows.

        Must be called for all rows before the first `assign`.

        rows: at least the key columns.
        """
        if self._expected is None:
            self._expected = self._empty_index()
        groups = RowsByKey.of(index_words([rows.column(name) for name in self._keys]))
        found = self._expected.find(groups.keys)
        new = np.flatnonzero(found.places == UNKNOWN)
        self._expected.put(groups.keys, found, new, np.full(len(new), _NO_PLACE))

    def assign(self, rows: PartitionedRows) -> AssignedRows:
        index = self._opened()
        numbers = np.array([self._partition_number(partition) for partition in rows.partitions], np.int32)
        partitions = numbers[rows.partition_ids]
        groups = RowsByKey.of(index_words([rows.rows.column(name) for name in self._keys]))
        now_s = self._now_s()
        found = index.find(groups.keys, now_s)
        known, was_retracted = _decoded(found.places)
        placed = self._place_rows(groups, partitions, known, self._capacities)
        is_retract = self._are_retracted(rows.rows)
        if placed.deletes is not None and (is_retract.any() or was_retracted.any()):
            placed = _without_retracted(placed, groups, is_retract, was_retracted)
        places = _encoded(placed.key_places, _of_last_rows(groups, is_retract))
        changed = np.flatnonzero(places != found.places)
        if len(changed):
            index.put(groups.keys, found, changed, places[changed], now_s)
        assigned = self._assigned(rows.rows, partitions, placed)
        if assigned.rows.rows.num_rows:
            place = int(placed.places[0])
            partition = self._partitions[int(self._capacities.partition_of[place])]
            self._written_to = BucketId(partition, int(self._capacities.bucket_of[place]))
        return assigned

    def _are_retracted(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return (n,) whether no row of the key is left in its place after a row.

        Such tables have neither a sequence field nor `ignore-delete`. With `rowkind.field` kinds are not known here.
        """
        options = self._context.options
        if KIND_COLUMN not in rows.schema.names or options.row_kind_field is not None:
            return np.zeros(rows.num_rows, np.bool_)
        kinds = rows.column(KIND_COLUMN).to_numpy()
        is_before = (kinds == RowKind.UPDATE_BEFORE) & (not options.ignore_update_before)
        retracted: NDArray[np.bool_] = (kinds == RowKind.DELETE) | is_before
        return retracted

    def _assigned(self, rows: pa.RecordBatch, partitions: NDArray[np.int32], placed: Placement) -> AssignedRows:
        places = placed.places
        if placed.is_dropped is not None:
            kept = ~placed.is_dropped
            rows, places, partitions = rows.filter(pa.array(kept)), places[kept], partitions[kept]
        if placed.deletes is not None and placed.deleted_from is not None and len(placed.deletes):
            rows, places = self._with_deletes(rows, places, placed.deletes, placed.deleted_from)
        elif (self._capacities.partition_of[places] != partitions).any():
            rows = self._in_partitions(rows, places)
        numbers = self._capacities.partition_of[places].astype(np.int64)
        return AssignedRows(PartitionedRows(rows, self._partitions, numbers), self._capacities.bucket_of[places])

    def _with_deletes(
        self, rows: pa.RecordBatch, places: NDArray[np.int32], at: NDArray[np.intp], deleted_from: NDArray[np.int32]
    ) -> tuple[pa.RecordBatch, NDArray[np.int32]]:
        """Add a -D before each of the rows `at`, with the same values, in the partition that its key leaves."""
        if KIND_COLUMN not in rows.schema.names:
            rows = with_kind(rows, RowKind.INSERT)
        deletes = self._in_partitions(rows.take(pa.array(at)), deleted_from)
        kinds = pa.array(np.full(len(at), RowKind.DELETE, np.int8))
        deletes = deletes.set_column(rows.schema.get_field_index(KIND_COLUMN), rows.schema.field(KIND_COLUMN), kinds)
        order = np.argsort(np.concatenate([2 * np.arange(rows.num_rows) + 1, 2 * at]), kind="stable")
        both = pa.concat_batches([rows, deletes]).take(pa.array(order))
        return both, np.concatenate([places, deleted_from])[order]

    def _in_partitions(self, rows: pa.RecordBatch, places: NDArray[np.int32]) -> pa.RecordBatch:
        """Return the rows with the partition columns of their places."""
        found, inverse = np.unique(self._capacities.partition_of[places], return_inverse=True)
        values = decode_rows([self._partitions[number] for number in found.tolist()], self._partition_types)
        for name, column in zip(self._partition_columns, values, strict=True):
            number = rows.schema.get_field_index(name)
            rows = rows.set_column(number, rows.schema.field(number), column.take(pa.array(inverse)))
        return rows

    def _partition_number(self, partition: bytes) -> int:
        number = self._partition_numbers.setdefault(partition, len(self._partitions))
        if number == len(self._partitions):
            self._partitions.append(partition)
        return number

    def _now_s(self) -> int:
        return int(env.monotonic_s()) - self._started_s if self._part is None else 0

    # ------------------------------------------------------------ commits

    @property
    def is_ready(self) -> bool:
        """Whether `assign` needs no read of the table."""
        return self._index is not None and self._is_checked_since_commit

    def prepare_commit(self, identifier: int) -> Sequence[CommitMessage]:
        """Return a message without files. It names the snapshot on which the placement is based."""
        written_to, self._written_to = self._written_to, None
        if written_to is None or self._base_id is None:
            return ()
        return (CommitMessage(written_to, base=CommitBase(key_index=self._base_id)),)

    def committed(self, snapshot_id: int) -> None:
        if self._replaces:
            self._index = None
            return
        self._committed.add(snapshot_id)
        self._is_checked_since_commit = False

    def dropped(self) -> None:
        """Learn that the prepared rows were in the table already. They may be in other buckets there."""
        self._index = None
        self._is_lost = self._written_to is not None

    # ------------------------------------------------------------ the index

    def _opened(self) -> KeyIndex:
        if self._is_lost:
            raise CommitConflict(
                f"{self._context.name}: a commit was already in the table, and more rows were written after it. The "
                "partitions of their keys are unknown now: open the table again, and write these rows again"
            )
        if self._index is not None and not self._is_checked_since_commit:
            self._check_other_writers()
        if self._index is None:
            self._index = self._new_index()
            self._is_checked_since_commit = True
        return self._index

    def _check_other_writers(self) -> None:
        """Check once after each commit whether other writers added rows."""
        self._is_checked_since_commit = True
        latest = self._context.snapshots.latest()
        if self._base_id is None or latest is None:
            return
        if not self._have_others_written(self._base_id, latest):
            self._base_id = latest.id
            self._committed.clear()
        elif self._written_to is None:
            self._index = None
        # Otherwise rows are waiting for their commit. That commit detects the other writer, and conflicts.

    def _have_others_written(self, base_id: int, latest: Snapshot) -> bool:
        """Return whether others added rows, or may have added rows in snapshots that expired."""
        snapshots = [self._context.snapshots.find(number) for number in range(base_id + 1, latest.id + 1)]
        return any(
            one is None or (one.commit_kind in _KINDS_WITH_ROWS and one.id not in self._committed) for one in snapshots
        )

    def _new_index(self) -> KeyIndex:
        self._partitions: list[bytes] = []
        self._partition_numbers: dict[bytes, int] = {}
        self._capacities = BucketCapacities(self._rule)
        index = self._empty_index(None if self._ttl_ms is None else self._ttl_ms // 1000)
        if self._replaces:
            return index
        started = env.monotonic_s()
        latest = self._context.snapshots.latest() if self._part is None else self._part.snapshot
        now_ms = epoch_ms() if self._part is None else self._part.now_ms
        since_ms = None if self._ttl_ms is None else now_ms - self._ttl_ms
        at_once = self._context.options.cross_partition_bootstrap
        with nullcontext() if latest is None else raise_if_snapshot_expired(self._context, latest.id):
            self._load(index, read_keys(self._context, latest, created_since_ms=since_ms, at_once=at_once))
        self._base_id = 0 if latest is None else latest.id
        self._committed.clear()
        _log.info(
            "index of keys made",
            table=self._context.name,
            snapshot=self._base_id,
            keys=len(index),
            memory_bytes=index.memory_bytes,
            took_ms=int((env.monotonic_s() - started) * 1000),
        )
        return index

    def _empty_index(self, ttl_s: int | None = None) -> KeyIndex:
        no_keys = [pa.array([], self._context.schema.arrow.field(name).type) for name in self._keys]
        return KeyIndex(
            len(index_words(no_keys)),
            self._context.options.lookup_cache_max_memory_bytes,
            spill_directory=self._spill_directory,
            ttl_s=ttl_s,
        )

    def _load(self, index: KeyIndex, read: Iterator[BucketKeys]) -> None:
        waiting: list[BucketKeys] = []
        count = 0
        for keys in read:
            waiting.append(keys)
            count += len(keys.keys[0])
            if count >= _LOADED_KEYS:
                self._put(index, waiting)
                waiting, count = [], 0
        if waiting:
            self._put(index, waiting)

    def _put(self, index: KeyIndex, parts: Sequence[BucketKeys]) -> None:
        places = []
        for part in parts:
            partition, bucket = self._partition_number(part.bucket[0]), part.bucket[1]
            count = len(part.keys[0])
            places.append(np.full(count, self._capacities.place(partition, bucket), np.int32))
            self._capacities.add(partition, bucket, count)
        groups = RowsByKey.of(tuple(np.concatenate(words) for words in zip(*(p.keys for p in parts), strict=True)))
        place_of_row = np.concatenate(places)[groups.order]
        if len(duplicates := np.flatnonzero(~groups.is_first)):
            raise self._duplicate_key_error(place_of_row[duplicates[0] - 1], place_of_row[duplicates[0]])
        keys = groups.keys
        if self._expected is not None:
            is_expected = self._expected.find(keys).places != UNKNOWN
            keys, place_of_row = tuple(word[is_expected] for word in keys), place_of_row[is_expected]
        found = index.find(keys)
        if len(known := np.flatnonzero(found.places != UNKNOWN)):
            raise self._duplicate_key_error(found.places[known[0]], place_of_row[known[0]])
        index.put(keys, found, np.arange(len(keys[0])), place_of_row)

    def _duplicate_key_error(self, place: np.int32, other: np.int32) -> BadInput:
        one, two = sorted((self._where(place), self._where(other)))
        return BadInput(
            f"{self._context.name}: a key has a row in {one} and another one in {two}. Two jobs wrote to the table at "
            "the same time, or a job dropped keys (cross-partition-upsert.index-ttl). Overwrite the table with its "
            "own rows (dynamic-partition-overwrite = false)"
        )

    def _where(self, place: np.int32) -> str:
        partition = self._partitions[int(self._capacities.partition_of[place])]
        return f"{partition_directory(self._context, partition)}, bucket {int(self._capacities.bucket_of[place])}"


def _encoded(places: NDArray[np.int32], is_retracted: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return what the index stores for keys: a place, or a number below UNKNOWN if the key has no row there any more.

    So the index needs no second column. `_decoded` is the inverse.
    """
    return np.where(is_retracted & (places != UNKNOWN), _RETRACTED - places, places).astype(np.int32)


def _decoded(stored: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    is_retracted = stored < UNKNOWN
    return np.where(is_retracted, _RETRACTED - stored, stored).astype(np.int32), is_retracted


def _of_last_rows(groups: RowsByKey, of_rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return (m,) the value of each key's last row."""
    is_last = np.append(groups.is_first[1:], np.ones(min(1, len(groups.order)), np.bool_))
    of_keys: NDArray[np.bool_] = of_rows[groups.order[is_last]]
    return of_keys


def _without_retracted(
    placed: Placement, groups: RowsByKey, is_retract: NDArray[np.bool_], was_retracted: NDArray[np.bool_]
) -> Placement:
    """Leave out deletes of rows that were retracted before they moved.

    An update that comes as -U and +U, or as -D and +I, has removed the row from its old partition, with its old values.
    One more -D would have the new values: a changelog of the input would retract a row that never existed.

    was_retracted (m,): of the keys before the batch.
    """
    assert placed.deletes is not None
    assert placed.deleted_from is not None
    before = np.empty(len(groups.order), np.bool_)  # whether the row before, of the same key, was retracted
    before[1:] = is_retract[groups.order[:-1]]
    before[groups.is_first] = was_retracted[groups.group[groups.is_first]]
    of_rows = np.empty_like(before)
    of_rows[groups.order] = before
    kept = ~of_rows[placed.deletes]
    return replace(placed, deletes=placed.deletes[kept], deleted_from=placed.deleted_from[kept])


def check_replaceable(
    context: TableContext, partition: Mapping[str, Any] | None, *, is_dynamic: bool | None = None
) -> None:
    """Raise UnsupportedFeature if a key of the new rows may keep a row in a partition that is not replaced.

    partition: column -> value of the replaced partition. None: the whole table, or the partitions of the new rows.
    is_dynamic: without a partition: whether only the partitions of the new rows are replaced. None: option
        `dynamic-partition-overwrite` decides.
    """
    if bucket_mode(context.schema, context.options) is not BucketMode.CROSS_PARTITION:
        return
    of_new_rows = context.options.dynamic_partition_overwrite if is_dynamic is None else is_dynamic
    if partition is not None or of_new_rows:
        raise UnsupportedFeature(
            f"{context.name}: an overwrite of partitions of a table whose keys move between them",
            "the same key may have a row in another partition, which would not be replaced",
            "Write the rows without an overwrite, or overwrite everything with dynamic-partition-overwrite = false",
        )
