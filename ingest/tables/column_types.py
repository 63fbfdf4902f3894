"""The types of new columns: as declared, or else mapped from the source's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from tidelake.ingest.derived.derived_columns import DerivedColumns
from tidelake.ingest.formats.base import InferredTable
from tidelake.ingest.formats.connect_schema import SourceType, spelled_source_type
from tidelake.ingest.formats.types.inferred_types import inferred_type
from tidelake.ingest.formats.types.type_mapping import TypeMapping
from tidelake.ingest.settings import TableSettings
from tidelake.ingest.shaping.shaped_columns import ShapedColumns
from tidelake.storage.model.types import STRING, DataField, DataType, not_null, parse_type


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """The column types of one table.

    declared: the configured type of each column (`columns`).
    spelled: the configured type at the source of each column (`source_types`), for records that don't contain it.
    mapping: the mapping of source types.
    derived: the derived columns.
    shape: what the table takes of the records.
    """

    declared: Mapping[str, DataType] = field(default_factory=dict)
    spelled: Mapping[str, SourceType] = field(default_factory=dict)
    mapping: TypeMapping = field(default_factory=TypeMapping)
    derived: DerivedColumns = field(default_factory=DerivedColumns)
    shape: ShapedColumns = field(default_factory=ShapedColumns)

    @classmethod
    def of(cls, table: TableSettings, format_name: str, shape: ShapedColumns) -> Self:
        """Return the types in the settings of a table.

        Raises BadInput for an unknown type, source type or metadata column.
        """
        declared = {name: parse_type(text) for name, text in table.columns.items()}
        spelled = {name: spelled_source_type(name, word) for name, word in table.source_types.items()}
        derived = DerivedColumns.of(table, format_name)
        return cls(declared, spelled, TypeMapping.parse(table.type_mapping), derived, shape)

    def type_of(self, name: str, source: SourceType | None, inferred: DataType) -> DataType:
        """Return the type of a new column. It is nullable unless it is declared otherwise."""
        if (declared := self.declared.get(name)) is not None:
            return declared
        if (spelled := self.spelled.get(name)) is not None and (known := inferred_type(spelled)) != STRING:
            return self.mapping.column_type(spelled, known)
        return self.mapping.column_type(source, inferred)

    def apply(self, inferred: InferredTable, primary_key: Sequence[str]) -> InferredTable:
        """Return the columns of a new table: those of the record, missing declared ones, and derived ones.

        Raises BadInput for derived columns that can't be computed from the others.
        """
        fields = {f.name: f for f in inferred.fields}
        for name in self.declared:
            fields.setdefault(name, DataField(len(fields), name, self.declared[name]))
        mapped = []
        for f in fields.values():
            column_type = self.type_of(f.name, inferred.sources.get(f.name), f.type)
            is_key = f.name in primary_key
            mapped.append(replace(f, type=not_null(column_type) if is_key else column_type))
        for name, column_type in self.derived.types({f.name: f.type for f in mapped}).items():
            kind = not_null(column_type) if name in primary_key else column_type
            mapped.append(DataField(len(mapped), name, kind))
        return replace(inferred, fields=tuple(mapped))
