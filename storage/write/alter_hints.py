"""Commands for error messages: how to alter a table so that it accepts what a batch has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.model.messages import add_column, alter_command, set_type
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.schema.type_changes import can_change, type_of_both
from tidelake.storage.model.types import DataType, type_from_arrow


@dataclass(frozen=True, slots=True)
class AlterHints:
    """The commands that would change a table so that given rows fit.

    location: the table's root directory; "" if it has none.

    A path leads from a column into its type, as in `tidelake.storage.ddl.schema_changes`.
    """

    schema: TableSchema
    table_name: str
    location: str = ""

    def add_column(self, path: Sequence[str], given: pa.DataType) -> str:
        """Return the command that adds a column or nested field of the batch to the table."""
        try:
            wanted = type_from_arrow(given, repeat(0).__next__, column=".".join(path))
        except BadInput:
            return "alter_table, with AddColumn and a type of Paimon"
        return f"`{self._command(add_column(path, wanted))}`, or alter_table in Python"

    def set_type(self, path: Sequence[str], data_type: DataType, given: pa.DataType) -> str:
        """Return the command for a type that holds the given values, as an alternative to a cast.

        Returns "" if the column can't have such a type, or if older rows would lose digits by it.
        """
        try:
            wanted = type_from_arrow(given, repeat(0).__next__, column=".".join(path))
        except BadInput:
            return ""
        keys = (*self.schema.primary_keys, *self.schema.partition_keys)
        wider = type_of_both(data_type, wanted)
        if wider is None or not can_change(data_type, wider) or (len(path) == 1 and path[0] in keys):
            return ""
        return f", or alter the column's type: `{self._command(set_type(path, wider))}`"

    def _command(self, change: str) -> str:
        return alter_command(self.table_name, self.location, change)
