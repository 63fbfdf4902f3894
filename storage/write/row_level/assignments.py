"""The new values of columns, by name: a value for all rows, or an expression over the columns of each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField
from tidelake.storage.write.alter_hints import AlterHints
from tidelake.storage.write.value_conversion import convert_exactly
from tidelake.storage.write.value_location import ColumnLocation


@dataclass(frozen=True, slots=True)
class Assignments:
    """The new values of columns.

    values: a Python value, a pyarrow scalar, or an expression made with `pyarrow.compute`, by column.

    All expressions see the old row. They may return any type that a writer accepts.
    """

    values: Mapping[str, Any]

    def for_table(self, context: TableContext) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """Return a function from batches of the table's columns to batches with the new values.

        Raises BadInput for columns and values that don't fit the table.
        """
        schema = context.schema
        if not self.values:
            raise BadInput(f"{context.name}: an update needs the columns to change, and their new values")
        for name in self.values:
            if name not in schema.by_name:
                raise BadInput(f"{context.name} has no column {name!r} to update{did_you_mean(name, schema.names)}")
        constants = {
            name: _constant(context, schema.by_name[name], value)
            for name, value in self.values.items()
            if not isinstance(value, pc.Expression)
        }
        expressions = {name: value for name, value in self.values.items() if isinstance(value, pc.Expression)}

        def assign(rows: pa.RecordBatch) -> pa.RecordBatch:
            computed = _computed(context, rows, expressions)
            columns = [
                pa.repeat(constants[name], rows.num_rows)
                if name in constants
                else computed.get(name, rows.column(name))
                for name in schema.names
            ]
            return pa.RecordBatch.from_arrays(columns, names=list(schema.names))

        return assign


def _constant(context: TableContext, field: DataField, value: object) -> pa.Scalar:
    try:
        given = pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else pa.array([value])
    except (pa.ArrowException, OverflowError) as error:
        raise BadInput(
            f"{context.name}: {value!r} is not a valid value of column {field.name} ({field.type}): {error}"
        ) from None
    if given.null_count and not field.type.nullable:
        raise BadInput(f"{context.name}: column {field.name} is NOT NULL")
    place = ColumnLocation(AlterHints(context.schema, context.name, context.location), field.name)
    return convert_exactly(given, field.type, place)[0]


def _computed(
    context: TableContext, rows: pa.RecordBatch, expressions: Mapping[str, pc.Expression]
) -> dict[str, pa.Array]:
    if not expressions:
        return {}
    from pyarrow import acero  # noqa: PLC0415 - few programs update with expressions; it takes 3 MiB

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([rows])))
    project = acero.ProjectNodeOptions(list(expressions.values()), list(expressions))
    try:
        table = acero.Declaration("project", project, [source]).to_table(use_threads=False)
    except (pa.ArrowException, KeyError) as error:
        names = ", ".join(expressions)
        raise BadInput(f"{context.name}: the new values of {names} can't be computed: {error}") from None
    return {name: table.column(name).combine_chunks() for name in expressions}
