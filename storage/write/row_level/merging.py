"""Merges rows into a table: rows with the same keys are replaced or deleted, the others are added, in one snapshot.

The rows are in memory. The table is read once, but for files whose statistics exclude all keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import CONSTRUCTED_ROOTS, Root
from tidelake.storage.read.predicate import And, Compare, IsIn, Or, Predicate
from tidelake.storage.write.alter_hints import AlterHints
from tidelake.storage.write.value_conversion import convert_exactly
from tidelake.storage.write.value_location import ColumnLocation

_KEYS_LISTED_MAX: Final = 1000  # with more keys, only their range selects files
_NOT_COMPARED: Final = CONSTRUCTED_ROOTS | {Root.VARIANT, Root.BLOB}
_ROW: Final = "_tidelake_row"
_MATCH: Final = "_tidelake_match"


class WhenMatched(StrEnum):
    """What happens to a row of the table that has the keys of a given row."""

    UPDATE = "update"
    DELETE = "delete"
    IGNORE = "ignore"


class WhenNotMatched(StrEnum):
    """What happens to a given row whose keys no row of the table has."""

    INSERT = "insert"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class MergeOperation:
    """Rows to merge.

    rows: with the columns' types, and the table's names; without other columns than the table's.
    on: the columns that a row of the table and a given row must have in common, by the rules of `==` in conditions: a
        null and NaN are equal to nothing, 0.0 is equal to -0.0.
    """

    rows: pa.Table
    on: tuple[str, ...]
    when_matched: WhenMatched
    when_not_matched: WhenNotMatched

    operation = "MERGE"

    @classmethod
    def of(
        cls,
        context: TableContext,
        rows: pa.Table,
        on: Sequence[str],
        when_matched: WhenMatched,
        when_not_matched: WhenNotMatched,
    ) -> MergeOperation:
        """Check and convert the rows. Raises BadInput."""
        schema = context.schema
        if not on:
            raise BadInput(f"{context.name}: merge() needs the columns that rows have in common; name them: on=[…]")
        for name in (*on, *rows.schema.names):
            if name not in schema.by_name:
                raise BadInput(
                    f"{context.name} has no column {name!r} to merge{did_you_mean(name, schema.names)}. Leave it out, "
                    "or add it to the table"
                )
        for name in on:
            if schema.by_name[name].type.root in _NOT_COMPARED:
                raise BadInput(
                    f"{context.name}: merge(on=…) names {name!r}, whose values ({schema.by_name[name].type}) can't be "
                    "compared; merge on columns of texts, numbers, times, bytes or truth values"
                )
        if missing := [name for name in on if name not in rows.schema.names]:
            raise BadInput(f"{context.name}: merge(on=…) names {missing[0]!r}, which the rows lack; add the column")
        if len(set(rows.schema.names)) < len(rows.schema.names):
            raise BadInput(f"{context.name}: the rows to merge have a column twice: {', '.join(rows.schema.names)}")
        hints = AlterHints(schema, context.name, context.location)
        columns = []
        for name in rows.schema.names:
            given = rows.column(name)
            filled = [chunk for chunk in given.chunks if len(chunk)]  # Arrow can't join empty ones of a C stream
            column = pa.chunked_array(filled, given.type).combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = pa.concat_arrays(column.chunks)
            columns.append(convert_exactly(column, schema.by_name[name].type, ColumnLocation(hints, name)))
        made = cls(pa.Table.from_arrays(columns, names=rows.schema.names), tuple(on), when_matched, when_not_matched)
        made._check_unique(context)
        return made

    def _check_unique(self, context: TableContext) -> None:
        """Raise BadInput for two rows with the same keys: which one wins would be left to chance."""
        counts = self._keyed().group_by(list(self.on)).aggregate([([], "count_all")])
        twice = counts.filter(pc.field("count_all") > 1)
        if twice.num_rows:
            keys = {name: twice.column(name)[0].as_py() for name in self.on}
            raise BadInput(
                f"{context.name}: two of the rows to merge have the same keys {keys}; leave one of them, or merge on "
                "more columns"
            )

    def _keyed(self) -> pa.Table:
        """Return the keys of the rows that have no null and no NaN in them, and the positions of the rows."""
        keys = _comparable(self.rows.select(list(self.on)))
        condition = pc.scalar(True)
        for name in self.on:
            condition = condition & pc.field(name).is_valid()
            if pa.types.is_floating(keys.schema.field(name).type):
                condition = condition & ~pc.is_nan(pc.field(name))
        return keys.append_column(_ROW, pa.array(np.arange(self.rows.num_rows))).filter(condition)

    @property
    def assigned(self) -> tuple[str, ...]:
        """The columns that an update writes."""
        return tuple(name for name in self.rows.schema.names if name not in self.on)

    @property
    def where(self) -> Predicate | None:
        """A condition that each row fulfils which has the keys of a given one; None if no row can."""
        keys = self._keyed()
        if not keys.num_rows:
            return None
        return And(tuple(_among(name, keys.column(name)) for name in self.on))


def _comparable(keys: pa.Table) -> pa.Table:
    """Return the keys with 0.0 in place of -0.0. Arrow joins them by their bits, and conditions take them for equal."""
    columns = [
        pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column
        for column in keys.columns
    ]
    return pa.Table.from_arrays(columns, names=keys.schema.names)


def _among(name: str, values: pa.ChunkedArray) -> Predicate:
    distinct = pc.unique(values)
    if pa.types.is_boolean(distinct.type) or len(distinct) <= _KEYS_LISTED_MAX:
        return (
            Or(tuple(Compare(name, "==", value) for value in distinct)) if len(distinct) < 3 else IsIn(name, distinct)
        )
    ends = pc.min_max(distinct)
    return And((Compare(name, ">=", ends["min"]), Compare(name, "<=", ends["max"])))


class RunningMerge:
    """One attempt of a merge. When it has seen all rows of the table, it knows which of the given rows are new."""

    def __init__(self, context: TableContext, merge: MergeOperation) -> None:
        self._context = context
        self._merge = merge
        self._keys = merge._keyed()
        self._has_matched: NDArray[np.bool_] = np.zeros(merge.rows.num_rows, np.bool_)

    def matches(self, rows: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions (m,) of the rows that have keys of given rows, and those of the given rows (m,)."""
        on = list(self._merge.on)
        own = _comparable(pa.Table.from_batches([rows.select(on)])).append_column(
            _MATCH, pa.array(np.arange(rows.num_rows))
        )
        found = own.join(self._keys, on, join_type="inner", use_threads=False).sort_by(_MATCH)
        given: NDArray[np.int64] = found.column(_ROW).to_numpy()
        self._has_matched[given] = True
        return found.column(_MATCH).to_numpy(), given

    def updated(self, rows: pa.RecordBatch, given: NDArray[np.int64]) -> pa.RecordBatch:
        """Return these rows of the table with the columns of the given rows."""
        new = self._merge.rows.select(list(self._merge.assigned)).take(pa.array(given)).combine_chunks()
        columns = [
            _single(new.column(name)) if name in self._merge.assigned else rows.column(name)
            for name in self._context.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(self._context.schema.names))

    def new_rows(self) -> pa.Table:
        """Return the given rows that no row of the table matched, or none if they are ignored."""
        if self._merge.when_not_matched is WhenNotMatched.IGNORE:
            return self._merge.rows.slice(0, 0)
        return self._merge.rows.filter(pa.array(~self._has_matched))


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
