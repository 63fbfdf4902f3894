"""Computes the changes of a plain query's table from the changes of its source, and checks which queries allow that.

The query runs on the inserted and on the deleted rows separately. A row-wise query returns the inserted and deleted
rows of the result. A grouping query returns partial sums, which are added to the existing groups or subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.materialized.plain_query import OutputColumn, PlainQuery, Role
from tidelake.materialized.source_changes import RowsChanged, key_codes
from tidelake.storage.merge.changelog_rows import KeyedRows, row_changes
from tidelake.storage.model.format import KIND_COLUMN
from tidelake.storage.model.options import MergeEngine
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.lookup.row_lookup import lookup_newest_rows
from tidelake.storage.write.row_converter import RowConverter

Run = Callable[[pa.RecordBatch], pa.RecordBatch]  # runs the query over these rows as its table

_DIGITS: Final = 66  # digits of intermediate sums


class NotMaintainable(Exception):
    """The table can't be refreshed from changes. str() is the reason, as the continuation of `because`."""


def check_maintainable(query: PlainQuery, source: TableContext, target: TableContext) -> None:
    """Raise NotMaintainable if no changes could be applied."""
    if not target.schema.has_primary_key:
        if query.is_grouped:
            raise NotMaintainable(
                "rows of groups change, and the table has no primary key by which they could be replaced"
            )
        if source.schema.has_primary_key:
            raise NotMaintainable(
                "rows of the source change, and the table has no primary key by which they could be replaced"
            )
        if query.of_role(*_AGGREGATES):
            raise NotMaintainable(
                "the query has a single row, and the table has no primary key by which it could be replaced"
            )
        return
    options = target.options
    if options.merge_engine is not MergeEngine.DEDUPLICATE or options.sequence_fields or options.ignore_delete:
        raise NotMaintainable("the table's merge engine or sequence.field may keep an older row")
    wanted = _keys_of_result(query, source)
    if not wanted:
        raise NotMaintainable("the source has no primary key, but the table has one")
    if not has_key_of(query, source, target):
        what = "the columns that the query groups by" if query.is_grouped else "that of the source"
        raise NotMaintainable(f"the primary key of the table is not {what}: {', '.join(sorted(wanted))}")


def has_key_of(query: PlainQuery, source: TableContext, target: TableContext) -> bool:
    """Return whether the table's primary key is the key of the query's rows: of its groups, or of its source."""
    columns = query.of_role(Role.COLUMN)
    of_key = [output for output in columns if output.name in target.schema.primary_keys]
    wanted = _keys_of_result(query, source)
    has_unique_key = len(of_key) == len(target.schema.primary_keys) == len(wanted)
    return {o.argument for o in of_key} == wanted and has_unique_key and not (query.is_grouped and columns != of_key)


def _keys_of_result(query: PlainQuery, source: TableContext) -> set[str]:
    """Return the columns of the source that identify a row of the result."""
    return set(_group_keys(query)) if query.is_grouped else set(source.schema.primary_keys)


def _group_keys(query: PlainQuery) -> list[str]:
    return [output.argument for output in query.of_role(Role.COLUMN) if output.argument is not None]


_AGGREGATES: Final = (Role.COUNT, Role.SUM, Role.MIN, Role.MAX)


@dataclass(frozen=True)
class TargetChanges:
    """The changes of the target in one refresh.

    base: the target's newest snapshot.
    run: may be called twice.
    """

    query: PlainQuery
    source: TableContext
    target: TableContext
    base: Snapshot | None
    run: Run

    def of(self, changed: RowsChanged) -> pa.RecordBatch:
        """Return the rows to write, with the target's columns and `_VALUE_KIND`. Raises NotMaintainable."""
        if not self.target.schema.has_primary_key:
            return self._converted(self.run(changed.inserted))
        if self.query.is_grouped:
            before, after = self._groups(changed)
        else:
            before, after = (self._converted(self.run(rows)) for rows in (changed.deleted, changed.inserted))
        codes = key_codes([batch.select(self.target.schema.primary_keys) for batch in (before, after)])
        count = int(max(part.max(initial=-1) for part in codes)) + 1
        sides = [_keyed(batch, part) for batch, part in zip((before, after), codes, strict=True)]
        compared = [name for name in self.target.schema.names if name not in self.target.schema.primary_keys]
        return row_changes(sides[0], sides[1], count, compared)

    def _converted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        schema = self.target.schema
        return RowConverter(schema, self.target.options, self.target.name).to_table_schema(rows)

    # ------------------------------------------------------------ groups

    def _groups(self, changed: RowsChanged) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the changed groups, with their current rows and their new rows."""
        if changed.deleted.num_rows:
            self._check_retractable()
        inserted, deleted = self.run(changed.inserted), self.run(changed.deleted)
        keys = [self._keys_of(rows) for rows in (inserted, deleted)]
        codes = key_codes(keys)
        both = pa.concat_batches(keys)
        _, first = np.unique(np.concatenate(codes), return_index=True)
        groups = both.take(pa.array(first))
        found, old = lookup_newest_rows(self.target, self.base, groups)
        parts = [_aligned(rows, part, len(first)) for rows, part in zip((inserted, deleted), codes, strict=True)]
        columns = {name: groups.column(name) for name in groups.schema.names}
        for output in self.query.outputs:
            if output.name not in columns:
                columns[output.name] = self._value(output, old, parts)
        after = self._converted(pa.RecordBatch.from_pydict(columns))
        if counter := self._counter():
            left = columns[counter.name]
            if pc.any(pc.less(left, 0)).as_py():
                raise NotMaintainable("the groups in the table differ from those in its source")
            after = after.filter(pc.greater(left, 0))
        before = old.filter(pa.array(found))
        return self._converted(before), after

    def _check_retractable(self) -> None:
        if found := self.query.of_role(Role.MIN, Role.MAX):
            raise NotMaintainable(f"rows were deleted, and {found[0].name} may be a value of a deleted row")
        if self._counter() is None:
            raise NotMaintainable(
                "rows were deleted, and without COUNT(*) it is unknown whether a group still has rows"
            )
        for output in self.query.of_role(Role.SUM):
            if self._counter(output.argument) is None:
                counted = f"COUNT({output.argument})"
                raise NotMaintainable(
                    f"rows were deleted, and without {counted} it is unknown when {output.name} is NULL"
                )

    def _counter(self, column: str | None = None) -> OutputColumn | None:
        """Return the result's column that counts a group's rows, or those in which a column is not null."""
        never_null = {field.name for field in self.source.schema.arrow if not field.nullable}
        for output in self.query.of_role(Role.COUNT):
            counts_all = output.argument is None or output.argument in never_null
            if output.argument == column or (counts_all and (column is None or column in never_null)):
                return output
        return None

    def _keys_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the table's key columns, in its types."""
        fields = [self.target.schema.arrow.field(name) for name in self.target.schema.primary_keys]
        columns = [rows.column(field.name).cast(field.type) for field in fields]
        if any(column.null_count for column in columns):
            raise NotMaintainable("a group's key is NULL")
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _value(self, output: OutputColumn, old: pa.RecordBatch, parts: Sequence[pa.RecordBatch]) -> pa.Array:
        before, inserted, deleted = (rows.column(output.name) for rows in (old, *parts))
        if output.role in (Role.MIN, Role.MAX):
            choose = pc.min_element_wise if output.role is Role.MIN else pc.max_element_wise
            return choose(before, inserted.cast(before.type), skip_nulls=True)
        if output.role is Role.COUNT:
            return _sum(_whole(before), _whole(inserted), _whole(deleted))
        wide = pa.decimal256(_DIGITS, max(_scale(column) for column in (before, inserted, deleted)))
        numbers = [column.cast(wide) for column in (before, inserted, deleted)]
        total = _sum(*(pc.fill_null(column, pa.scalar(Decimal(0), wide)) for column in numbers)).cast(wide)
        return pc.if_else(self._has_values(output, old, parts, numbers), total, pa.scalar(None, total.type))

    def _has_values(
        self, output: OutputColumn, old: pa.RecordBatch, parts: Sequence[pa.RecordBatch], sums: Sequence[pa.Array]
    ) -> pa.Array:
        """Return whether each group has any value to sum."""
        counter = self._counter(output.argument)
        if counter is None:  # no rows were deleted
            return pc.or_(pc.is_valid(sums[0]), pc.is_valid(sums[1]))
        counts = [_whole(rows.column(counter.name)) for rows in (old, *parts)]
        return pc.greater(_sum(*counts), 0)


def _whole(column: pa.Array) -> pa.Array:
    return pc.fill_null(column.cast(pa.int64()), 0)


def _scale(column: pa.Array) -> int:
    return int(column.type.scale) if pa.types.is_decimal(column.type) else 0


def _sum(before: pa.Array, inserted: pa.Array, deleted: pa.Array) -> pa.Array:
    return pc.subtract_checked(pc.add_checked(before, inserted), deleted)


def _aligned(rows: pa.RecordBatch, codes: NDArray[np.int64], count: int) -> pa.RecordBatch:
    """Return the row of each group, (g,), all null for a group without a row."""
    places = np.full(count, -1, np.int64)
    places[codes] = np.arange(len(codes))
    nullable = pa.schema([field.with_nullable(True) for field in rows.schema])
    return rows.cast(nullable).take(pa.array(places, mask=places < 0))


def _keyed(rows: pa.RecordBatch, codes: NDArray[np.int64]) -> KeyedRows:
    assert KIND_COLUMN in rows.schema.names
    order = np.argsort(codes, kind="stable")
    return KeyedRows(rows.take(pa.array(order)), codes[order])
