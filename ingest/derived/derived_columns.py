"""The derived columns of one table, and how their values are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from tidelake.errors import BadInput
from tidelake.ingest.derived.computed_columns import ComputedColumn, computed_columns
from tidelake.ingest.derived.metadata_columns import METADATA_TYPES, check_metadata, history_metadata
from tidelake.ingest.settings import TableSettings
from tidelake.storage.model.messages import add_column, alter_command
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import BOOLEAN, DataType, nullable, timestamp_ltz


@dataclass(frozen=True, slots=True)
class DerivedColumns:
    """The derived columns of one table.

    computed: column to expression.
    metadata: column to the name of its metadata.
    deleted_at: the column with the time of a row's delete; "" if deleted rows don't stay.
    versions: (valid from, valid to, current), the columns of a table that keeps versions; () in others.
    """

    computed: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    deleted_at: str = ""
    versions: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: TableSettings, format_name: str) -> Self:
        """Return the derived columns that the settings of a table configure.

        Raises BadInput for unknown metadata, and for two columns of one name.
        """
        metadata = {table.metadata_column_prefix + name: name for name in table.metadata_columns}
        check_metadata(metadata, format_name)
        if table.mode == "append":
            metadata |= {table.metadata_column_prefix + name: name for name in history_metadata(format_name)}
        if duplicates := sorted(metadata.keys() & table.computed_columns.keys()):
            raise BadInput(f"column {duplicates[0]} is both a computed and a metadata column: rename one of them")
        deleted_at = table.deleted_at_column if table.deletes == "soft" else ""
        if deleted_at in {*metadata, *table.computed_columns}:
            raise BadInput(f"column {deleted_at} is another derived column: choose another `deleted_at_column`")
        versions: tuple[str, ...] = ()
        if table.mode == "scd2":
            versions = (table.valid_from_column, table.valid_to_column, table.current_column)
        for at, name in enumerate(versions):
            if name in {*metadata, *table.computed_columns, *versions[:at]}:
                setting = ("valid_from_column", "valid_to_column", "current_column")[at]
                raise BadInput(f"column {name} is another derived column: choose another `{setting}`")
        return cls(table.computed_columns, metadata, deleted_at, versions)

    def __bool__(self) -> bool:
        return bool(self.computed or self.metadata or self.deleted_at or self.versions)

    @property
    def names(self) -> frozenset[str]:
        """The names of the derived columns."""
        return frozenset((*self.computed, *self.metadata, *filter(None, (self.deleted_at,)), *self.versions))

    @property
    def _metadata_types(self) -> dict[str, DataType]:
        """The types of the columns that are read from the record around a row."""
        types = {column: METADATA_TYPES[name] for column, name in self.metadata.items()}
        types |= dict(zip(self.versions, (timestamp_ltz(3), timestamp_ltz(3), BOOLEAN), strict=False))
        return {**types, self.deleted_at: timestamp_ltz(3)} if self.deleted_at else types

    def without_derived_columns(self, schema: TableSchema) -> TableSchema:
        """Return the schema without the derived columns: the columns that come from records."""
        names = self.names
        return replace(
            schema,
            fields=tuple(f for f in schema.fields if f.name not in names),
            primary_keys=tuple(name for name in schema.primary_keys if name not in names),
            partition_keys=tuple(name for name in schema.partition_keys if name not in names),
        )

    def types(self, others: Mapping[str, DataType]) -> dict[str, DataType]:
        """Return the types of the derived columns, in the order of a new table.

        others: the types of the other columns.
        """
        metadata = self._metadata_types
        by_name = {column.name: column.type for column in computed_columns(self.computed, {**others, **metadata})}
        if taken := sorted(self.names & others.keys()):
            raise BadInput(f"column {taken[0]} is a derived column, but the records also have a column of this name")
        return {**{name: by_name[name] for name in self.computed}, **metadata}

    def bind(self, schema: TableSchema, table: str, location: str) -> list[ComputedColumn]:
        """Return the computed columns. Each comes after the columns that it is computed from.

        Raises BadInput, with the command that helps, for a table that lacks a column, or has it with another type.
        """
        plain = {f.name: f.type for f in self.without_derived_columns(schema).fields}
        wanted = self.types(plain)
        lacking = {name: kind for name, kind in wanted.items() if name not in schema.by_name}
        if lacking:
            added = [add_column(name, kind) for name, kind in lacking.items()]
            raise BadInput(
                f"{table} lacks the derived column {', '.join(lacking)}: add it with "
                f"`{alter_command(table, location, *added)}`, or take it out of the configuration"
            )
        for name, kind in wanted.items():
            if nullable(schema.by_name[name].type) != nullable(kind):
                raise BadInput(
                    f"{table}: the derived column {name} is {kind}, but the table's column is "
                    f"{schema.by_name[name].type}"
                )
        metadata = self._metadata_types
        columns = computed_columns(self.computed, {**plain, **metadata})
        for column in columns:
            if not column.is_constant_in_time and column.name in (*schema.primary_keys, *schema.partition_keys):
                raise BadInput(
                    f"{table}: column {column.name} is part of a key, so it can't be computed with now(), whose value "
                    "changes"
                )
        return columns
