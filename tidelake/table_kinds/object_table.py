"""The public class of an object table: a read-only list of the files below a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidelake.storage.kinds.format_tables.definition import no_ordinary_table
from tidelake.storage.kinds.format_tables.objects import OBJECT_TABLE, objects_location, scan_objects
from tidelake.storage.read.predicate import Predicate
from tidelake.table_kinds.format_table import FormatTable
from tidelake.writer import Writer


class ObjectTable(FormatTable):
    """A table with one row per file. The folder is listed at each read."""

    kind = OBJECT_TABLE

    @property
    def location(self) -> str:
        """The folder of the files."""
        return objects_location(self._context)

    def partitions(self) -> list[dict[str, Any]]:
        """Return [{}]: an object table has no partition columns."""
        return [{}]

    def writer(self, **_: Any) -> Writer:
        """Raise, as an object table is read-only."""
        raise no_ordinary_table(f"{self.name}.writer(): {self.name}", self.kind)

    def _read(self, columns: Sequence[str], predicate: Predicate | None) -> Iterator[pa.RecordBatch]:
        return scan_objects(self._context, columns, predicate)
