"""Checks the statistics of a file in its manifest. Readers with a condition skip files because of them.

Reported are statistics that make such readers lose rows, and wrong null counts. Bounds may be wider than the values, as
for long texts, and any statistics may be unknown. Readers use no bounds that include NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CorruptFile
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.statistics import key_statistics, value_bounds
from tidelake.storage.files.stats_collection import ColumnBounds
from tidelake.storage.model.format import KEY_COLUMN_PREFIX
from tidelake.storage.model.paths import format_of
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import STRING, TIMESTAMP_ROOTS, DataField, Root, nullable

# In Java's ORC files, bounds of times are those before they were stored, and bounds of texts those before texts were
# cut or padded.
_CHANGED_BY_ORC: Final = TIMESTAMP_ROOTS | {Root.CHAR, Root.VARCHAR}


@dataclass(slots=True)
class _CheckedColumn:
    """The statistics of a column, and what its values show.

    minimum, maximum, nulls: None if unknown, or if they can't be compared.
    """

    name: str
    minimum: pa.Scalar | None
    maximum: pa.Scalar | None
    nulls: int | None
    found_nulls: int = 0
    is_below: bool = False
    is_above: bool = False

    def add(self, values: pa.Array) -> None:
        self.found_nulls += values.null_count
        if self.minimum is not None:
            self.is_below |= bool(pc.any(pc.less(values, self.minimum)).as_py())
        if self.maximum is not None:
            self.is_above |= bool(pc.any(pc.greater(values, self.maximum)).as_py())

    def findings(self) -> Iterator[str]:
        if self.is_below:
            yield f"column {self.name!r} has values below the smallest of its statistics"
        if self.is_above:
            yield f"column {self.name!r} has values above the largest of its statistics"
        if self.nulls is not None and self.nulls != self.found_nulls:
            yield f"column {self.name!r} has {self.found_nulls} nulls, and {self.nulls} by its statistics"


class StatsCheck:
    """Checks the statistics of one file: `add` each of its batches, then get the `findings`.

    context: its schema is that of the file.
    columns: the columns of the batches; `_KEY_x` is compared with key statistics.
    """

    def __init__(self, context: TableContext, file: DataFileMeta, columns: Sequence[DataField]) -> None:
        self._columns: list[_CheckedColumn] = []
        self._unreadable: list[str] = []
        values, keys = value_bounds(context, [file]), key_statistics(context, [file])
        is_orc = format_of(file.file_name) == "orc"
        try:
            for field in columns:
                name = field.name
                if name.startswith(KEY_COLUMN_PREFIX):
                    self._columns.append(
                        _checked_column(field, keys(name.removeprefix(KEY_COLUMN_PREFIX)), is_orc=is_orc)
                    )
                elif name in context.schema.by_name and name not in context.schema.partition_keys:
                    self._columns.append(_checked_column(field, values(name), is_orc=is_orc))
        except CorruptFile as error:
            self._unreadable.append(f"statistics that can't be read ({error})")

    def add(self, batch: pa.RecordBatch) -> None:
        for column in self._columns:
            column.add(batch.column(column.name))

    def findings(self) -> Iterator[str]:
        yield from self._unreadable
        for column in self._columns:
            yield from column.findings()


def _checked_column(field: DataField, bounds: ColumnBounds, *, is_orc: bool) -> _CheckedColumn:
    root = field.type.root
    is_changed = is_orc and root in _CHANGED_BY_ORC and nullable(field.type) != STRING
    is_unknown = is_changed or pa.types.is_nested(bounds.minimum.type)  # these have no order
    minimum, maximum = (None if is_unknown or not b[0].is_valid else b[0] for b in (bounds.minimum, bounds.maximum))
    # A decimal with too many digits (a sum that outgrew its column) is read as null.
    nulls = None if root is Root.DECIMAL else bounds.null_count[0].as_py()
    return _CheckedColumn(field.name, minimum, maximum, nulls)
