"""The types of columns that are to be made: as declared, else as the source's types are mapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from ingest.derived.derived_columns import DerivedColumns
from ingest.formats.base import InferredTable
from ingest.formats.connect_schema import SourceType, spelled_source_type
from ingest.formats.types.inferred_types import inferred_type
from ingest.formats.types.type_mapping import TypeMapping
from ingest.settings import TableSettings
from storage.types import STRING, DataField, DataType, not_null, parse_type


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """Of one table.

    declared: by column.
    spelled: by column, its type at the source as the configuration gives it (`source_types`), where records don't.
    derived: columns that no record holds.
    """

    declared: Mapping[str, DataType] = field(default_factory=dict)
    spelled: Mapping[str, SourceType] = field(default_factory=dict)
    mapping: TypeMapping = field(default_factory=TypeMapping)
    derived: DerivedColumns = field(default_factory=DerivedColumns)

    @classmethod
    def of(cls, table: TableSettings, format_name: str) -> Self:
        """Raises BadInput for an unknown type, source type or metadata column."""
        declared = {name: parse_type(text) for name, text in table.columns.items()}
        spelled = {name: spelled_source_type(name, word) for name, word in table.source_types.items()}
        return cls(declared, spelled, TypeMapping.parse(table.type_mapping), DerivedColumns.of(table, format_name))

    def type_of(self, name: str, source: SourceType | None, inferred: DataType) -> DataType:
        """Nullable unless it is declared otherwise."""
        if (declared := self.declared.get(name)) is not None:
            return declared
        if (spelled := self.spelled.get(name)) is not None and (known := inferred_type(spelled)) != STRING:
            return self.mapping.column_type(spelled, known)
        return self.mapping.column_type(source, inferred)

    def apply(self, inferred: InferredTable, primary_key: Sequence[str]) -> InferredTable:
        """The columns of a table that is to be made: those of the record, declared ones that it lacks, derived ones.

        Raises BadInput for derived columns that can't be made of the others.
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
