"""The values that a condition tests: those of a column, or of one key of a MAP column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.base.errors import BadInput
from tidelake.storage.read.literals import in_type_of_column, known_column


def column_text(column: str, key: str | None) -> str:
    """Returns the column's name as it is written in conditions."""
    if key is None:
        return column
    quoted = key.replace("'", "''")
    return f"{column}['{quoted}']"


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The values that a condition compares.

    name: the column's name as it is written in conditions
    type: the type of the values
    expression: computes the values; null where a map lacks the key
    """

    name: str
    type: pa.DataType
    expression: pc.Expression

    @classmethod
    def of(cls, column: str, key: str | None, schema: pa.Schema) -> ColumnValues:
        """Raises BadInput if the schema has no such column, or if a key is given and it is no MAP with text keys."""
        kind = schema.field(known_column(column, schema)).type
        field = pc.field(column)
        if key is None:
            return cls(column, kind, field)
        name = column_text(column, key)
        if not pa.types.is_map(kind) or not pa.types.is_string(kind.key_type):
            raise BadInput(f"the filter names {name}, but column {column!r} is {kind}, not a MAP with text keys")
        return cls(name, kind.item_type, pc.map_lookup(field, pa.scalar(key, kind.key_type), "first"))

    def comparable(self, operator: str, value: Any) -> tuple[str, pa.Scalar]:
        """Returns (operator, value in the values' type) with the same meaning. Raises BadInput."""
        return in_type_of_column(operator, value, self.name, self.type)
