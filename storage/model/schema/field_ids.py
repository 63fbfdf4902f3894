"""Assigns an id to each field of a schema. A field keeps its id forever, even if it is renamed.

Source: Java `types/ReassignFieldId.java`, `schema/Schema.java` (Builder).
"""

from __future__ import annotations

from dataclasses import replace

from tidelake.storage.model.types import ArrayType, DataField, DataType, MapType, MultisetType, RowType, VectorType


class FieldIds:
    """Counts field ids upwards. Ids of dropped fields are never used again.

    highest: the largest id used so far, -1 for none.
    """

    def __init__(self, highest: int = -1) -> None:
        self.highest = highest

    def column(self, column: DataField) -> DataField:
        """Return the column with new ids: first its own, then those of its nested fields.

        Ids that it had are ignored.
        """
        column_id = self._next()
        return replace(column, id=column_id, type=self._nested(column.type))

    def _next(self) -> int:
        self.highest += 1
        return self.highest

    def _nested(self, data_type: DataType) -> DataType:
        match data_type:
            case RowType():
                return replace(data_type, fields=tuple(self._field(f) for f in data_type.fields))
            case ArrayType() | MultisetType() | VectorType():
                return replace(data_type, element=self._nested(data_type.element))
            case MapType():
                key = self._nested(data_type.key)
                return replace(data_type, key=key, value=self._nested(data_type.value))
            case _:
                return data_type

    def _field(self, field: DataField) -> DataField:
        """Return a field of a ROW with new ids. Unlike for a column, its nested fields come first, as in Java."""
        nested = self._nested(field.type)
        return replace(field, id=self._next(), type=nested)
