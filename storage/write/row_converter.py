"""Converts a caller's batch to the table's schema, or raises an error. Every written row passes through here.

Columns are matched by name. A column that the batch lacks is null, or has its default value. A column that the table
lacks is an error, because it would be lost silently. `tidelake.storage.write.value_conversion` converts the values.

Source: Java `table/sink/TableWriteImpl.java` (null checks, defaults), `table/sink/RowKindGenerator.java`,
`utils/RowKindFilter.java`; vectors `write_entry_filter.json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.base.arguments import FILE_NAME_BYTES_MAX, shown
from tidelake.storage.ddl.default_values import default_value
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.paths import partition_directory_name
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import STRING_ROOTS, DataField, arrow_type
from tidelake.storage.model.types.row_kinds import is_retract
from tidelake.storage.write.alter_hints import AlterHints
from tidelake.storage.write.value_conversion import convert_exactly
from tidelake.storage.write.value_location import ColumnLocation

_ESCAPED_BYTES_MAX: Final = 3  # the most bytes that one byte of a value takes in a directory name


class RowConverter:
    """Converts batches to the columns of one schema, in schema order, followed by `_VALUE_KIND`.

    passthrough: columns outside of the table's schema that are kept unchanged, after all others.
    location: the table's root, for commands in error messages; "" if it has none.
    """

    def __init__(
        self,
        schema: TableSchema,
        options: TableOptions,
        table_name: str,
        passthrough: Sequence[str] = (),
        location: str = "",
    ) -> None:
        self._schema = schema
        self._passthrough = tuple(passthrough)
        self._table_name = table_name
        self._alter_hints = AlterHints(schema, table_name, location)
        self._row_kind_field = options.row_kind_field
        self._dropped_kinds = _dropped_kinds(options)
        keys = () if options.has_nullable_keys else schema.primary_keys
        self._required = {*keys, *(f.name for f in schema.fields if not f.type.nullable)}
        self._defaults = {f.name: default_value(f) for f in schema.fields if f.default is not None}
        self._directory_columns = {f.name for f in schema.partition_fields if f.type.root in STRING_ROOTS}
        self._target = schema.arrow.append(pa.field(KIND_COLUMN, pa.int8(), nullable=False))

    def batches(self, rows: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
        """Return the batches of an Arrow table or batch. Raises BadInput for other types."""
        if isinstance(rows, pa.RecordBatch | pa.Table):
            return rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        raise BadInput(
            f"{self._table_name}: rows are written as a pyarrow RecordBatch or Table, not as {type(rows).__name__}. "
            "Convert them: pyarrow.Table.from_pylist, from_pydict, from_pandas"
        )

    def to_table_schema(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert the rows in their order, without those that `ignore-delete` and `ignore-update-before` drop.

        Raises BadInput with the name of the column for: unknown or repeated columns, a type that doesn't fit, nulls in
        a NOT NULL column, partition values that are too long for a directory name, unknown row kinds, and retracts for
        an append table.
        """
        self._check_names(batch)
        columns = [self._column(batch, f) for f in self._schema.fields]
        kinds = self._kinds(batch, columns)
        passthrough = batch.select(self._passthrough)
        converted = pa.RecordBatch.from_arrays(
            [*columns, pa.array(kinds), *passthrough.columns], schema=pa.schema([*self._target, *passthrough.schema])
        )
        if self._dropped_kinds:
            keep = ~np.isin(kinds, self._dropped_kinds)
            return converted if keep.all() else converted.filter(pa.array(keep))
        if not self._schema.has_primary_key and is_retract(kinds).any():
            kind = RowKind(int(kinds[is_retract(kinds)][0])).symbol
            raise BadInput(
                f"{self._table_name}: row kind {kind} is not possible in an append table, which only accepts inserts. "
                "Create the table with a primary_key of columns that identify a row. With the option 'ignore-delete' = "
                "'true' it keeps all versions of a row: deletes, and the old rows of updates, are dropped"
            )
        return converted

    def _check_names(self, batch: pa.RecordBatch) -> None:
        given = Counter(batch.schema.names)
        repeated = [name for name, count in given.items() if count > 1]
        if repeated:
            raise BadInput(f"{self._table_name}: column {repeated[0]!r} occurs {given[repeated[0]]} times in the batch")
        known = {*self._schema.names, *self._passthrough, KIND_COLUMN}
        unknown = [name for name in given if name not in known]
        if unknown:
            raise BadInput(
                f"{self._table_name}: the table has no column {unknown[0]!r} (it has {', '.join(self._schema.names)}). "
                "Drop the column from the batch, or add it to the table: "
                + self._alter_hints.add_column((unknown[0],), batch.schema.field(unknown[0]).type)
            )

    def _column(self, batch: pa.RecordBatch, field: DataField) -> pa.Array:
        position = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, arrow_type(field.type)) if position < 0 else batch.column(position)
        column = convert_exactly(column, field.type, ColumnLocation(self._alter_hints, field.name))
        if column.null_count and field.name in self._defaults:
            column = _filled(column, self._defaults[field.name])
        if column.null_count and field.name in self._required:
            first = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            why = "is part of the primary key" if field.name in self._schema.primary_keys else "is NOT NULL"
            what = "the batch lacks it" if position < 0 else f"row {first} of the batch is null"
            raise BadInput(f"{self._table_name}: column {field.name!r} {why}, but {what}")
        if field.name in self._directory_columns:
            self._check_directory_names(column, field.name)
        return column

    def _check_directory_names(self, column: pa.Array, name: str) -> None:
        """Raise BadInput for a value too long for a partition's directory name, which contains the value."""
        longest = pc.max(pc.binary_length(column)).as_py() or 0
        if len(partition_directory_name(name, "").encode()) + _ESCAPED_BYTES_MAX * longest <= FILE_NAME_BYTES_MAX:
            return
        for value in column.unique().drop_null():
            size = len(partition_directory_name(name, value.as_py()).encode())
            if size > FILE_NAME_BYTES_MAX:
                row = pc.index(column, value).as_py()
                raise BadInput(
                    f"{self._table_name}: column {name!r} is a partition column, and its value in row {row} of the "
                    f"batch, {shown(value.as_py())}, makes a directory name of {size} bytes; file systems take "
                    f"{FILE_NAME_BYTES_MAX}. Partition by a column with shorter values"
                )

    def _kinds(self, batch: pa.RecordBatch, columns: Sequence[pa.Array]) -> NDArray[np.int8]:
        if self._row_kind_field is not None:
            return self._kinds_from_text(columns[self._schema.names.index(self._row_kind_field)])
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

    def _kinds_from_text(self, texts: pa.Array) -> NDArray[np.int8]:
        """Read the row kinds from the column that option `rowkind.field` names."""
        symbols = pa.array([kind.symbol for kind in RowKind])
        kinds = pc.index_in(pc.utf8_upper(texts), symbols)
        if kinds.null_count:
            first = int(np.flatnonzero(kinds.is_null().to_numpy(zero_copy_only=False))[0])
            raise BadInput(
                f"{self._table_name}: rowkind.field {self._row_kind_field!r} must hold +I, -U, +U or -D; "
                f"row {first} of the batch holds {texts[first].as_py()!r}"
            )
        found: NDArray[np.int8] = kinds.cast(pa.int8()).to_numpy()
        return found


def _dropped_kinds(options: TableOptions) -> list[int]:
    if options.ignore_delete:
        return [RowKind.UPDATE_BEFORE, RowKind.DELETE]
    return [RowKind.UPDATE_BEFORE] if options.ignore_update_before else []


def _filled(column: pa.Array, default: pa.Scalar) -> pa.Array:
    """Return the column with the default in place of nulls. Arrow's `fill_null` takes no nested types."""
    if not pa.types.is_nested(column.type):
        return pc.fill_null(column, default)
    places = np.arange(len(column))
    places[column.is_null().to_numpy(zero_copy_only=False)] = len(column)
    return pa.concat_arrays([column, pa.repeat(default, 1)]).take(pa.array(places))
