"""Moved rows: rows whose key changed, kept from the record that deletes them to the record that inserts them.

1. The record under the new key may leave out values that did not change. They are those of the row when it left its old
   key.
2. The table can't be asked for them: a compaction merges the row into its -D, and a row under the old key now may be
   another one, or an older version whose last records are not read yet.
3. So a row is kept from the record that deletes it to the commit of the record under the new key: in memory, and with
   the snapshot whose position passes the deleting record (`checkpoint.moved_rows_state`).
4. A row is kept for `limit_ms` at most, and all rows take `limit_bytes` at most. Dropped rows are remembered as
   dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from checkpoint.offsets import TopicPartition
from ingest.formats.base import KeyChange
from ingest.tables.moved_rows.key_change_pairs import KeyChangePairs
from storage.clock import epoch_ms
from storage.logs import get_logger
from storage.schema.table_schema import TableSchema

NOT_IN_TABLE: Final = "the table did not have it when it left"
READ_AGAIN: Final = "its records are read again, and the table holds what came after them"
MADE_BY_MERGING: Final = (
    "the table's rows are made of several, by its merge engine, and the record that deleted it brings no old values"
)
_LARGER: Final = "a larger number helps rows that leave after the next start"
DROPPED_BY_AGE: Final = f"it came later than `moved_rows.keep_ms` allows; {_LARGER}"
DROPPED_BY_SIZE: Final = f"more bytes than `moved_rows.bytes_max` were on their way; {_LARGER}"

_ARRIVED_MAX: Final = 100_000  # ids, of one table
_DROPPED_MAX: Final = 100_000  # rows, of one table
EARLY_MAX: Final = 10_000  # ids of rows that came and were not seen leaving, of one table
_REMEMBERED_MS: Final = 7 * 86_400_000  # that a row was dropped

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class MovedRow:
    """A row as it was when it left its key.

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
    """What all tables of a pipeline together keep.

    used_bytes: now.
    """

    limit_ms: int = 86_400_000
    limit_bytes: int = 64 << 20
    now_ms: Callable[[], int] = epoch_ms
    used_bytes: int = 0


class MovedRows:
    """Those of one table. Not thread-safe."""

    def __init__(self, table: str, budget: MovedRowsBudget) -> None:
        self.table = table
        self._budget = budget
        self.pairs = KeyChangePairs[MovedRow]()
        self.read_again: Mapping[TopicPartition, int] = {}
        """Below these offsets records are read another time: the table has what came after them."""
        self._arrived: dict[bytes, None] = {}  # exact ids of rows that have come, for records that are sent again
        self.is_changed = False

    def restore(
        self, left: Sequence[MovedRow], early: Mapping[bytes, int], read_again: Mapping[TopicPartition, int]
    ) -> None:
        """Begin with what a snapshot says."""
        for row in left:
            self.pairs.add_departure(row.change, row)
            self._budget.used_bytes += row.nbytes
        self.pairs.early.update(early)
        self.read_again = dict(read_again)

    def adopt_schema(self, old: TableSchema, new: TableSchema) -> None:
        """The table has other columns now: rows on their way get them. Of new ones nothing is known."""
        old_names = {field.id: field.name for field in old.fields}
        for queue in self.pairs.left.values():
            for at, row in enumerate(queue):
                queue[at] = _with_columns_of(new, row, old_names)
        self.is_changed = True

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way, and nothing was since it was saved."""
        return not (self.is_changed or self.read_again or self.pairs.left or self.pairs.early)

    @property
    def now_ms(self) -> int:
        return self._budget.now_ms()

    def has_arrived(self, change: KeyChange) -> bool:
        """Whether the row under the new key was written before: the record is one that was sent again."""
        return change.id in self._arrived

    def add_departure(self, row: MovedRow) -> None:
        """A row leaves its key: the -D is with the writer."""
        self.is_changed = True
        if self.pairs.add_departure(row.change, row):
            self._budget.used_bytes += row.nbytes
            self._bound_bytes()
        elif row.change.is_exact and row.change.id not in self.pairs.left:
            self._remember_arrival(row.change)

    def add_arrival(self, change: KeyChange) -> None:
        """A row is under its new key: with the writer, or set aside."""
        self.is_changed = True
        left = self.pairs.match_arrival(change)
        if left is not None:
            self._budget.used_bytes -= left.nbytes
            if change.is_exact:
                self._remember_arrival(change)

    def expire(self) -> None:
        """Drop what is too old; much later, or if there is too much of it, forget that it was there."""
        oldest_ms = self._budget.now_ms() - self._budget.limit_ms
        aged = [row for row in self.pairs if row.since_ms <= oldest_ms and row.values is not None]
        self._drop(aged, DROPPED_BY_AGE)
        dropped = [row for row in self.pairs if row.values is None and row.change.is_exact]
        excess = len(dropped) - _DROPPED_MAX
        for at, row in enumerate(dropped):
            if at < excess or row.since_ms <= oldest_ms - _REMEMBERED_MS:
                del self.pairs.left[row.change.id]
                self.is_changed = True
        # The other half of these may never come. If it does, a row is kept for nothing.
        early = [id_ for id_ in self.pairs.early if id_[0]]
        for id_ in early[: max(0, len(early) - EARLY_MAX)]:
            del self.pairs.early[id_]

    def reached(self, ends: Mapping[TopicPartition, int]) -> None:
        """How far the table's position is: what was to be read again may have been."""
        if self.read_again:
            self.read_again = {p: end for p, end in self.read_again.items() if end > ends.get(p, 0)}

    def _bound_bytes(self) -> None:
        if self._budget.used_bytes <= self._budget.limit_bytes:
            return
        excess = self._budget.used_bytes - self._budget.limit_bytes * 9 // 10  # not a row each time
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
    """Of all tables of a pipeline."""

    def __init__(self, budget: MovedRowsBudget) -> None:
        self._budget = budget
        self._tables: dict[str, MovedRows] = {}

    def of(self, table: str) -> MovedRows:
        if table not in self._tables:
            self._tables[table] = MovedRows(table, self._budget)
        return self._tables[table]

    def forget(self, table: str) -> None:
        """What is on its way is what the table's newest snapshot says."""
        gone = self._tables.pop(table, None)
        if gone is not None:
            self._budget.used_bytes -= sum(row.nbytes for row in gone.pairs)

    def all(self) -> Collection[MovedRows]:
        """Of tables that were asked for."""
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
    """The same values as another type; None where it can't hold them all."""
    try:
        return column if column.type == data_type else column.cast(data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
