"""A caller's batch in the table's own form, or a clear refusal. The only gate rows pass on their way in.

Columns go by name. A column that the batch lacks is null (or its default); one that the table lacks is refused: it
would be lost in silence.

Source: Java `table/sink/TableWriteImpl.java` (null checks, defaults), `table/sink/RowKindGenerator.java`,
`utils/RowKindFilter.java`; vectors `write_entry_filter.json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from storage.alter_command import add_column, alter_command, set_type
from storage.default_values import default_value
from storage.errors import BadInput
from storage.format import KIND_COLUMN, RowKind
from storage.options import TableOptions
from storage.row_kinds import is_retract
from storage.schema import TableSchema
from storage.type_changes import can_change
from storage.types import DataField, arrow_type, type_from_arrow


class Conformer:
    """Turns batches into the columns of one schema, in schema order, followed by `_VALUE_KIND`.

    carried: columns that are not the table's and go along as they are, behind those.
    location: the table's root, for the commands in messages; "" where there is none.
    """

    def __init__(
        self,
        schema: TableSchema,
        options: TableOptions,
        table_name: str,
        carried: Sequence[str] = (),
        location: str = "",
    ) -> None:
        self._schema = schema
        self._carried = tuple(carried)
        self._table_name = table_name
        self._location = location
        self._row_kind_field = options.row_kind_field
        self._dropped_kinds = _dropped_kinds(options)
        self._required = {*schema.primary_keys, *(f.name for f in schema.fields if not f.type.nullable)}
        self._defaults = {f.name: default_value(f) for f in schema.fields if f.default is not None}
        self._target = schema.arrow.append(pa.field(KIND_COLUMN, pa.int8(), nullable=False))

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in the order given, without those that `ignore-delete` and `ignore-update-before` drop.

        Raises BadInput, naming the column: unknown or repeated columns, a type that doesn't fit, nulls where none may
        be, unknown row kinds, retracts into an append table.
        """
        self._check_names(batch)
        columns = [self._column(batch, f) for f in self._schema.fields]
        kinds = self._kinds(batch)
        carried = batch.select(self._carried)
        conformed = pa.RecordBatch.from_arrays(
            [*columns, pa.array(kinds), *carried.columns], schema=pa.schema([*self._target, *carried.schema])
        )
        if self._dropped_kinds:
            keep = ~np.isin(kinds, self._dropped_kinds)
            return conformed if keep.all() else conformed.filter(pa.array(keep))
        if not self._schema.has_primary_key and is_retract(kinds).any():
            kind = RowKind(int(kinds[is_retract(kinds)][0])).symbol
            raise BadInput(
                f"{self._table_name}: row kind {kind} in an append table, which only takes rows. "
                "Create the table with a primary_key, or set the option 'ignore-delete' = 'true'"
            )
        return conformed

    def _check_names(self, batch: pa.RecordBatch) -> None:
        given = Counter(batch.schema.names)
        repeated = [name for name, count in given.items() if count > 1]
        if repeated:
            raise BadInput(f"{self._table_name}: column {repeated[0]!r} occurs {given[repeated[0]]} times in the batch")
        known = {*self._schema.names, *self._carried, KIND_COLUMN}
        unknown = [name for name in given if name not in known]
        if unknown:
            raise BadInput(
                f"{self._table_name}: the table has no column {unknown[0]!r} (it has {', '.join(self._schema.names)}). "
                f"Drop the column from the batch, or add it to the table: {self._added(batch.schema.field(unknown[0]))}"
            )

    def _added(self, field: pa.Field) -> str:
        """How a column gets into the table."""
        try:
            change = add_column(field.name, type_from_arrow(field.type, repeat(0).__next__, column=field.name))
        except BadInput:
            return "alter_table, with AddColumn and a type that Paimon has"
        return f"`{alter_command(self._table_name, self._location, change)}`, or alter_table in Python"

    def _widened(self, field: DataField, given: pa.DataType) -> str:
        """How a column comes to hold values of another type, where it can."""
        try:
            wanted = type_from_arrow(given, repeat(0).__next__, column=field.name)
        except BadInput:
            return ""
        if not can_change(field.type, wanted) or field.name in (
            *self._schema.primary_keys,
            *self._schema.partition_keys,
        ):
            return ""
        command = alter_command(self._table_name, self._location, set_type(field.name, wanted))
        return f", or alter the column's type: `{command}`"

    def _column(self, batch: pa.RecordBatch, field: DataField) -> pa.Array:
        position = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, arrow_type(field.type)) if position < 0 else batch.column(position)
        column = self._cast(column, field)
        if column.null_count and field.name in self._defaults:
            column = pc.fill_null(column, self._defaults[field.name])
        if column.null_count and field.name in self._required:
            first = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            why = "is part of the primary key" if field.name in self._schema.primary_keys else "is NOT NULL"
            what = "the batch lacks it" if position < 0 else f"row {first} of the batch is null"
            raise BadInput(f"{self._table_name}: column {field.name!r} {why}, but {what}")
        return column

    def _cast(self, column: pa.Array, field: DataField) -> pa.Array:
        target = arrow_type(field.type)
        if column.type == target:
            return column
        if isinstance(column.type, pa.DictionaryType):
            column = column.dictionary_decode()
        self._check_zones_agree(column.type, target, field)
        try:
            cast = column.cast(target, safe=True)
            _refuse_new_infinities(column, cast)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise BadInput(
                f"{self._table_name}: column {field.name!r} is {field.type}, and {column.type} does not fit without "
                f"loss: {str(e).splitlines()[0]}. Cast the batch to {target}{self._widened(field, column.type)}"
            ) from None
        return cast

    def _check_zones_agree(self, given: pa.DataType, target: pa.DataType, field: DataField) -> None:
        """Arrow would take a time without zone for UTC, and drop a zone in silence."""
        if pa.types.is_timestamp(given) and pa.types.is_timestamp(target) and (given.tz is None) != (target.tz is None):
            has, wants = ("has no", "an instant") if given.tz is None else ("has a", "a wall-clock time without zone")
            raise BadInput(
                f"{self._table_name}: column {field.name!r} is {field.type}, {wants}, and {given} {has} time zone. "
                "Convert it first, saying which zone is meant (pyarrow.compute.assume_timezone, local_timestamp)"
            )

    def _kinds(self, batch: pa.RecordBatch) -> NDArray[np.int8]:
        if self._row_kind_field is not None:
            return self._kinds_from_text(batch)
        position = batch.schema.get_field_index(KIND_COLUMN)
        if position < 0:
            return np.zeros(batch.num_rows, np.int8)
        column = batch.column(position)
        must = f"{self._table_name}: column {KIND_COLUMN} must hold 0 (+I), 1 (-U), 2 (+U) or 3 (-D) as int8"
        if not pa.types.is_integer(column.type):
            raise BadInput(f"{must}; it is {column.type}")
        known = pc.is_in(column, pa.array([int(kind) for kind in RowKind], column.type))
        if not pc.all(known, min_count=0).as_py():
            first = pc.index(known, False).as_py()
            raise BadInput(f"{must}; row {first} of the batch holds {column[first].as_py()}")
        kinds: NDArray[np.int8] = column.cast(pa.int8()).to_numpy()
        return kinds

    def _kinds_from_text(self, batch: pa.RecordBatch) -> NDArray[np.int8]:
        """Option `rowkind.field`: a column of the table says what each row is."""
        field = self._row_kind_field
        symbols = pa.array([kind.symbol for kind in RowKind])
        position = batch.schema.get_field_index(field)
        texts = pa.nulls(batch.num_rows, pa.string()) if position < 0 else batch.column(position).cast(pa.string())
        kinds = pc.index_in(pc.utf8_upper(texts), symbols)
        if kinds.null_count:
            first = int(np.flatnonzero(kinds.is_null().to_numpy(zero_copy_only=False))[0])
            raise BadInput(
                f"{self._table_name}: rowkind.field {field!r} must hold +I, -U, +U or -D; "
                f"row {first} of the batch holds {texts[first].as_py()!r}"
            )
        found: NDArray[np.int8] = kinds.cast(pa.int8()).to_numpy()
        return found


def _refuse_new_infinities(given: pa.Array, cast: pa.Array) -> None:
    """A double beyond the largest float: Arrow makes it infinite and calls that safe. Raises pa.ArrowInvalid."""
    if not (pa.types.is_floating(given.type) and pa.types.is_float32(cast.type)):
        return
    lost = pc.and_(pc.is_inf(cast), pc.is_finite(given))
    if pc.any(lost).as_py():
        raise pa.ArrowInvalid(f"{given[pc.index(lost, True).as_py()].as_py()!r} is beyond the largest {cast.type}")


def _dropped_kinds(options: TableOptions) -> list[int]:
    if options.ignore_delete:
        return [RowKind.UPDATE_BEFORE, RowKind.DELETE]
    return [RowKind.UPDATE_BEFORE] if options.ignore_update_before else []
