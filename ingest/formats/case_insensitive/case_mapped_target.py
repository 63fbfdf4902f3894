"""A table with its columns in the source's spelling, so that records can be decoded into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tidelake.ingest.formats.base import DecodeFailure, TableRows, Target
from tidelake.ingest.formats.ddl_statements import ColumnStatement
from tidelake.ingest.formats.renamed_columns import (
    failure_with_table_names,
    rows_with_table_names,
    with_record_names,
)


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
        return with_record_names(self.whole, self._source_spelling)

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
        return rows_with_table_names(found, self.whole, self.column)

    def failure(self, found: DecodeFailure) -> DecodeFailure | None:
        """Return a failure of `target` with the table's column names. None for DDL that changes only the case."""
        return failure_with_table_names(found, self.whole, self.column, self._statements)

    def _statements(self, statements: Sequence[ColumnStatement]) -> tuple[ColumnStatement, ...]:
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
