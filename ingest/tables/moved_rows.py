"""Moved rows: rows whose key changed, kept from the record that deletes them to the record that inserts them.

1. The record under the new key may leave out values that did not change. They are the values of the row when it was
   deleted under its old key.
2. The table can't provide these values: a compaction merges the row with its -D. A row that is now under the old key
   may be another row, or an older version whose last records were not read yet.
3. So a row is kept from the record that deletes it to the commit of the record under the new key: in memory, and with
   the snapshot whose position passes the deleting record (`tidelake.checkpoint.moved_rows_state`).
4. A row is kept for at most `limit_ms`, and all rows together take at most `limit_bytes`. For dropped rows, the fact
   that they were dropped is kept.

The two halves of a key change may arrive in any order, from different partitions, and have the same id. If several
changes may have one id (see `KeyChange.is_exact`), the first half with the old key belongs to the first half with the
new key: all halves of one kind are in one partition, so they are in the source's order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.formats.base import KeyChange
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.model.schema.table_schema import TableSchema

NOT_IN_TABLE_REASON: Final = "the table did not have the row when it was deleted under the old key"
READ_AGAIN_REASON: Final = "its records are read again, and the table already has later changes"
MERGED_ROW_REASON: Final = (
    "the merge engine combines several rows, and the record that deleted the row has no old values"
)
_LARGER_LIMIT_HINT: Final = "a larger number only helps rows that are deleted after the next start"
DROPPED_BY_AGE: Final = f"the row arrived later than `moved_rows.keep_ms` allows; {_LARGER_LIMIT_HINT}"
DROPPED_BY_SIZE: Final = f"more bytes of moved rows than `moved_rows.bytes_max` were waiting; {_LARGER_LIMIT_HINT}"

_ARRIVED_MAX: Final = 100_000  # ids of one table
_DROPPED_MAX: Final = 100_000  # rows of one table
EARLY_MAX: Final = 10_000  # ids of one table, of rows that arrived before they were deleted under the old key
_DROPPED_ROWS_TTL_MS: Final = 7 * 86_400_000  # how long dropped rows are remembered

_log = get_logger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class KeyChangePairs(Generic[T]):
    """Halves of key changes whose other half has not arrived yet. T: the data that is kept of a row with the old key.

    left: the data of rows that were deleted under their old key, by id, oldest first.
    early: the number of rows, by id, that arrived under their new key before they were deleted under the old one.
    """

    left: dict[bytes, deque[T]] = field(default_factory=dict)
    early: Counter[bytes] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[T]:
        """Iterate over the kept data, approximately oldest first."""
        for queue in self.left.values():
            yield from queue

    def add_departure(self, change: KeyChange, kept: T) -> bool:
        """Add a row that was deleted under its old key. Returns whether its data is kept.

        It is not kept if the other half has arrived already, or if the same record has arrived before: a connector that
        restarts sends records again.
        """
        if self.early[change.id] > 0:
            self.early[change.id] -= 1
            self._drop_if_zero(change.id)
            return False
        self._drop_if_zero(change.id)
        if change.is_exact and change.id in self.left:
            return False
        self.left.setdefault(change.id, deque()).append(kept)
        return True

    def match_new_half(self, change: KeyChange) -> T | None:
        """Match a row that arrived under its new key. Returns the kept data; None if the other half is missing yet."""
        queue = self.left.get(change.id)
        if not queue:
            self.early[change.id] = 1 if change.is_exact else self.early[change.id] + 1
            return None
        kept = queue.popleft()
        if not queue:
            del self.left[change.id]
        return kept

    def subset(self, ids: Collection[bytes]) -> KeyChangePairs[T | int]:
        """Return a copy with these ids, to simulate the changes of a batch. For its rows, the row number is kept."""
        return KeyChangePairs(
            {id_: deque[T | int](self.left[id_]) for id_ in ids if id_ in self.left},
            Counter({id_: self.early[id_] for id_ in ids if id_ in self.early}),
        )

    def _drop_if_zero(self, id_: bytes) -> None:
        if not self.early[id_]:
            del self.early[id_]


@dataclass(frozen=True, slots=True, eq=False)
class MovedRow:
    """A row with its values when it was deleted under its old key.

    change: the key change.
    values: one row with the table's columns. None: no value is known.
    unknown: columns whose value is not known.
    why_unknown: the reason, for messages.
    since_ms: when its record was read, epoch milliseconds.
    """

    change: KeyChange
    values: pa.RecordBatch | None
    since_ms: int
    unknown: frozenset[str] = frozenset()
    why_unknown: str = ""
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", 0 if self.values is None else int(self.values.nbytes))

    def dropped(self, why: str) -> MovedRow:
        return replace(self, values=None, why_unknown=why)


@dataclass(slots=True)
class MovedRowsBudget:
    """The limits of moved rows, for all tables of a pipeline together.

    limit_ms: how long a row is kept.
    limit_bytes: maximum bytes of kept rows.
    used_bytes: current bytes of kept rows.
    """

    limit_ms: int = 86_400_000
    limit_bytes: int = 64 << 20
    now_ms: Callable[[], int] = epoch_ms
    used_bytes: int = 0


class MovedRows:
    """The moved rows of one table. Not thread-safe."""

    def __init__(self, table: str, budget: MovedRowsBudget) -> None:
        self.table = table
        self._budget = budget
        self.pairs = KeyChangePairs[MovedRow]()
        self.read_again: Mapping[TopicPartition, int] = {}
        """Records below these offsets are read a second time, although the table has later ones."""
        self._arrived: dict[bytes, None] = {}  # exact ids of arrived rows, to recognize records that are sent again
        self.is_changed = False

    def restore(
        self, left: Sequence[MovedRow], early: Mapping[bytes, int], read_again: Mapping[TopicPartition, int]
    ) -> None:
        """Restore the state of a snapshot."""
        for row in left:
            self.pairs.add_departure(row.change, row)
            self._budget.used_bytes += row.nbytes
        self.pairs.early.update(early)
        self.read_again = dict(read_again)

    def adopt_schema(self, old: TableSchema, new: TableSchema) -> None:
        """Change the columns of moved rows to those of the new schema. Values of new columns are unknown."""
        old_names = {field.id: field.name for field in old.fields}
        for queue in self.pairs.left.values():
            for at, row in enumerate(queue):
                queue[at] = _with_columns_of(new, row, old_names)
        self.is_changed = True

    @property
    def is_idle(self) -> bool:
        """Whether no rows are moved now, and none were since the last save."""
        return not (self.is_changed or self.read_again or self.pairs.left or self.pairs.early)

    @property
    def now_ms(self) -> int:
        return self._budget.now_ms()

    def has_arrived(self, change: KeyChange) -> bool:
        """Return whether the row under the new key was written before, so that the record was sent again."""
        return change.id in self._arrived

    def are_read_again(self, raw: RawBatch, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return (n,) whether the records at these offsets are read again, although the table has later ones."""
        return offsets < self.read_again.get(TopicPartition(raw.topic, raw.partition), 0)

    def add_departure(self, row: MovedRow) -> None:
        """Add a row that was deleted under its old key: its -D is in the writer."""
        self.is_changed = True
        if self.pairs.add_departure(row.change, row):
            self._budget.used_bytes += row.nbytes
            self._bound_bytes()
        elif row.change.is_exact and row.change.id not in self.pairs.left:
            self._remember_arrival(row.change)

    def add_arrival(self, change: KeyChange) -> None:
        """Add a row that arrived under its new key: it is in the writer, or was set aside."""
        self.is_changed = True
        left = self.pairs.match_new_half(change)
        if left is not None:
            self._budget.used_bytes -= left.nbytes
            if change.is_exact:
                self._remember_arrival(change)

    def expire(self) -> None:
        """Drop the values of rows that are too old. Forget dropped rows much later, or if they are too many."""
        oldest_ms = self._budget.now_ms() - self._budget.limit_ms
        aged = [row for row in self.pairs if row.since_ms <= oldest_ms and row.values is not None]
        self._drop(aged, DROPPED_BY_AGE)
        dropped = [row for row in self.pairs if row.values is None and row.change.is_exact]
        excess = len(dropped) - _DROPPED_MAX
        for at, row in enumerate(dropped):
            if at < excess or row.since_ms <= oldest_ms - _DROPPED_ROWS_TTL_MS:
                del self.pairs.left[row.change.id]
                self.is_changed = True
        # The other half of these may never arrive. If it does, a row is kept needlessly.
        early = [id_ for id_ in self.pairs.early if id_[0]]
        for id_ in early[: max(0, len(early) - EARLY_MAX)]:
            del self.pairs.early[id_]

    def reached(self, ends: Mapping[TopicPartition, int]) -> None:
        """Update `read_again` by the table's position: records below it were read again."""
        if self.read_again:
            self.read_again = {p: end for p, end in self.read_again.items() if end > ends.get(p, 0)}

    def _bound_bytes(self) -> None:
        if self._budget.used_bytes <= self._budget.limit_bytes:
            return
        # Rows are dropped down to 90 % of the limit, so that not every new row drops another.
        excess = self._budget.used_bytes - self._budget.limit_bytes * 9 // 10
        dropped = []
        for row in self.pairs:
            if excess <= 0:
                break
            if row.values is not None:
                dropped.append(row)
                excess -= row.nbytes
        self._drop(dropped, DROPPED_BY_SIZE)

    def _drop(self, rows: Sequence[MovedRow], why: str) -> None:
        for row in rows:
            queue = self.pairs.left[row.change.id]
            queue[queue.index(row)] = row.dropped(why)
            self._budget.used_bytes -= row.nbytes
        if rows:
            self.is_changed = True
            _log.warning(
                "rows that were to come under another key are kept no longer",
                table=self.table,
                rows=len(rows),
                reason=why,
                first=str(rows[0].change),
                effect="a record that lacks values of such a row is refused",
            )

    def _remember_arrival(self, change: KeyChange) -> None:
        self._arrived[change.id] = None
        if len(self._arrived) > _ARRIVED_MAX:
            del self._arrived[next(iter(self._arrived))]


class MovedRowsByTable:
    """The moved rows of all tables of a pipeline."""

    def __init__(self, budget: MovedRowsBudget) -> None:
        self._budget = budget
        self._tables: dict[str, MovedRows] = {}

    def of(self, table: str) -> MovedRows:
        if table not in self._tables:
            self._tables[table] = MovedRows(table, self._budget)
        return self._tables[table]

    def forget(self, table: str) -> None:
        """Forget the moved rows of a table. Only the state of its newest snapshot is valid."""
        removed = self._tables.pop(table, None)
        if removed is not None:
            self._budget.used_bytes -= sum(row.nbytes for row in removed.pairs)

    def all(self) -> Collection[MovedRows]:
        """Return the moved rows of all tables for which `of` was called."""
        return self._tables.values()


def _with_columns_of(schema: TableSchema, row: MovedRow, old_names: Mapping[int, str]) -> MovedRow:
    if row.values is None:
        return row
    columns, unknown = [], set[str]()
    for field_, arrow in zip(schema.fields, schema.arrow, strict=True):
        old_name = old_names.get(field_.id)
        column = None if old_name is None else widened(row.values[old_name], arrow.type)
        if column is None or old_name in row.unknown:
            unknown.add(field_.name)
        columns.append(pa.nulls(1, arrow.type) if column is None else column)
    fields = [field_.with_nullable(True) for field_ in schema.arrow]
    values = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    why = row.why_unknown or "the column is newer than the row"
    return replace(row, values=values, unknown=frozenset(unknown), why_unknown=why if unknown else row.why_unknown)


def widened(column: pa.Array, data_type: pa.DataType) -> pa.Array | None:
    """Return the values cast to another type; None if it can't hold all of them."""
    try:
        return column if column.type == data_type else column.cast(data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
