"""From which columns of the records each column of a table is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelake.ingest.derived.computed_columns import computed_columns
from tidelake.ingest.openlineage.run_snapshot import TableState
from tidelake.storage.read.condition_text import parse_condition


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """The origin of one column of a table.

    column: column of the table. source: column of the records.
    made_by: how the value is made: a call of a function, a mask, or both; "" if it is the same.
    is_masked: whether a mask is applied.
    """

    column: str
    source: str
    made_by: str
    is_masked: bool


def column_origins(table: TableState) -> Iterator[ColumnOrigin]:
    """Yield the origin of each column. Columns that are made from no column (`offset`, `now()`) have none."""
    shape, derived = table.shape, table.derived
    own = derived.without_derived_columns(table.context.schema)
    direct: dict[str, ColumnOrigin] = {}
    for column in own.names:
        mask = shape.masks.get(column)
        made_by = "" if mask is None else f"mask {mask}"
        direct[column] = ColumnOrigin(column, shape.source_name(column), made_by, mask is not None)
    yield from direct.values()
    types = {f.name: f.type for f in table.context.schema.fields if f.name not in derived.computed}
    for computed in computed_columns(derived.computed, types):
        origin = None if computed.depends_on is None else direct.get(computed.depends_on)
        if origin is not None:
            made_by = "; ".join(filter(None, (origin.made_by, derived.computed[computed.name])))
            found = ColumnOrigin(computed.name, origin.source, made_by, origin.is_masked)
            direct[computed.name] = found
            yield found


def filter_columns(table: TableState) -> list[str]:
    """Return the columns of the records that decide which rows the table has."""
    if table.shape.filter is None:
        return []
    return sorted(table.shape.source_name(name) for name in parse_condition(table.shape.filter).columns)
