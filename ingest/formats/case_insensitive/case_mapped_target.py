"""A table with its columns in the source's spelling, so that records can be decoded into it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from tidelake.ingest.formats.base import DecodeFailure, FailureKind, TableRows, Target
from tidelake.ingest.formats.ddl_statements import ColumnStatement
from tidelake.ingest.formats.record_schema import UnknownColumns
from tidelake.storage.model.schema.table_schema import TableSchema


@dataclass(frozen=True)
class CaseMappedTarget:
    """A table, and the source's spellings of its columns.

    whole: the table.
    spellings: column name in the table to the source's spelling, for columns with different spellings.
    """

    whole: Target
    spellings: Mapping[str, str]

    @cached_property
    def target(self) -> Target:
        """The target with the source's spellings, into which records are decoded."""
        if not self.spellings:
            return self.whole
        whole, spelled = self.whole, self._source_spelling
        return replace(
            whole,
            schema=_renamed(whole.schema, self.spellings),
            source_types={spelled(name): word for name, word in whole.source_types.items()},
            rounded_columns=frozenset(map(spelled, whole.rounded_columns)),
            ignored_columns=frozenset(map(spelled, whole.ignored_columns)),
            fixed_columns=frozenset(map(spelled, whole.fixed_columns)),
            key_columns=tuple(map(spelled, whole.key_columns)),
        )

    def _source_spelling(self, name: str) -> str:
        return self.spellings.get(name, name)

    @cached_property
    def _known(self) -> Mapping[str, str]:
        """Name in lower case to the column's name in the table, for ignored columns as well."""
        return {name.lower(): name for name in (*self.whole.ignored_columns, *self.whole.schema.names)}

    def column(self, spelled: str) -> str:
        """Return the table's name for a column of the source. If the table lacks it, this is the name in lower case."""
        return self._known.get(spelled.lower(), spelled.lower())

    def learned(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return new spellings: the table's column name to a name of the source that differs from the known spelling.

        names: column names of the source. Columns that the table lacks are ignored.
        """
        found = {self.column(name): name for name in names if name.lower() in self._known}
        return {column: name for column, name in found.items() if self._source_spelling(column) != name}

    def rows(self, found: TableRows) -> TableRows:
        """Return rows of `target` as rows of the table."""
        kinds = found.rows.schema.field(len(found.rows.schema) - 1)
        rows = pa.RecordBatch.from_arrays(found.rows.columns, schema=self.whole.schema.arrow.append(kinds))
        unavailable = found.unavailable
        if unavailable is not None:
            keys = pa.RecordBatch.from_arrays(
                unavailable.keys.columns, names=[self.column(name) for name in unavailable.keys.schema.names]
            )
            columns = {self.column(name): flags for name, flags in unavailable.columns.items()}
            unavailable = replace(unavailable, columns=columns, keys=keys)
        return replace(found, target=self.whole, rows=rows, unavailable=unavailable)

    def failure(self, found: DecodeFailure) -> DecodeFailure | None:
        """Return a failure of `target` with the table's column names. None for DDL that changes only the case."""
        needed = tuple(replace(one, path=(self.column(one.path[0]), *one.path[1:])) for one in found.needed)
        columns = tuple(".".join(one.path) for one in needed)
        statements = self._statements(found.statements)
        shadow = found.shadow
        if found.statements and not statements:
            return None
        if shadow is not None and shadow.statements:
            shadow = replace(shadow, statements=self._statements(shadow.statements))
            if not shadow.statements:
                return None
        reason = found.reason
        if found.kind is FailureKind.UNKNOWN_COLUMN:
            reason = str(UnknownColumns(self.whole, needed))
        else:
            for one in found.needed:  # the command in the reason must have the table's column name
                reason = re.sub(rf"(?<!\w){re.escape(one.path[0])}(?!\w)", self.column(one.path[0]), reason)
        return replace(
            found,
            reason=reason,
            columns=columns,
            needed=needed,
            target=self.whole,
            statements=statements,
            shadow=shadow,
        )

    def _statements(self, statements: tuple[ColumnStatement, ...]) -> tuple[ColumnStatement, ...]:
        """Return the statements with the table's column names, without those that change only the case."""
        renamed = (
            replace(
                one,
                old=None if one.old is None else self.column(one.old),
                new=None if one.new is None else self.column(one.new),
            )
            for one in statements
        )
        return tuple(one for one in renamed if one.old != one.new)


def _renamed(schema: TableSchema, names: Mapping[str, str]) -> TableSchema:
    return replace(
        schema,
        fields=tuple(replace(field, name=names.get(field.name, field.name)) for field in schema.fields),
        primary_keys=tuple(names.get(name, name) for name in schema.primary_keys),
        partition_keys=tuple(names.get(name, name) for name in schema.partition_keys),
    )
