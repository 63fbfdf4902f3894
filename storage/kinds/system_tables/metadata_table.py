"""The base class of system tables of metadata: a list of items, and a function for each column of the items.

A condition is evaluated first, on the columns that it reads. The other columns are made of the remaining items only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import pyarrow as pa

from tidelake.storage.kinds.system_tables.system_table import SystemTable, SystemTableRead
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.incremental_read import NoIncrement
from tidelake.storage.read.predicate import Predicate

Item = TypeVar("Item")
Columns: TypeAlias = Mapping[str, Callable[[], pa.Array | list[Any]]]

TIME: Final = pa.timestamp("ms")  # wall clock of this process, without a time zone

_BATCH_ROWS: Final = 65_536


class MetadataTable(SystemTable, Generic[Item]):
    """A system table with one row per item.

    fields: the columns, in their order.
    """

    fields: ClassVar[Sequence[pa.Field]]

    def schema(self, context: TableContext) -> pa.Schema:
        return pa.schema(self.fields)

    @abstractmethod
    def items(self, at: SystemTableRead) -> Sequence[Item]:
        """Return the items of the rows: at least all that `at.predicate` asks for."""

    @abstractmethod
    def columns(self, items: Sequence[Item], context: TableContext) -> Columns:
        """Return for each column, by name, a function that makes its values: one value per item."""

    def read(self, at: SystemTableRead) -> Iterator[pa.RecordBatch]:
        if not isinstance(at.increment, NoIncrement):
            raise self.no_changes()
        items = self.items(at)
        if at.predicate is not None:
            items = self._matching(items, at.context, at.predicate)
        names = [field.name for field in self.fields if at.columns is None or field.name in at.columns]
        if len(items) and not names:  # only the number of rows is asked for
            names = [self.fields[0].name]
        for start in range(0, len(items), _BATCH_ROWS):
            yield self._batch(items[start : start + _BATCH_ROWS], at.context, names)

    def _matching(self, items: Sequence[Item], context: TableContext, predicate: Predicate) -> Sequence[Item]:
        names = [field.name for field in self.fields if field.name in predicate.columns]
        if not len(items) or not names:
            return items
        batch = self._batch(items, context, names)
        condition = predicate.expression(self.schema(context))
        numbers = pa.table([*batch.columns, pa.array(range(len(items)))], names=[*names, ""])
        return self.selected(items, numbers.filter(condition).column("").to_pylist())

    def selected(self, items: Sequence[Item], numbers: Sequence[int]) -> Sequence[Item]:
        return [items[i] for i in numbers]

    def _batch(self, items: Sequence[Item], context: TableContext, names: Sequence[str]) -> pa.RecordBatch:
        makers = self.columns(items, context)
        schema = pa.schema([field for field in self.fields if field.name in names])
        columns = [_of_type(makers[field.name](), field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def matching_keys(predicate: Predicate | None, field: pa.Field, keys: Sequence[Any]) -> list[Any]:
    """Return the keys that can satisfy the predicate, by that part of it which reads this column alone."""
    condition = None if predicate is None else predicate.within(frozenset([field.name]))
    if condition is None:
        return list(keys)
    table = pa.table([pa.array(keys, field.type)], names=[field.name])
    kept: list[Any] = table.filter(condition.expression(table.schema)).column(0).to_pylist()
    return kept


def text(name: str, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, pa.string(), nullable)


def bigint(name: str, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, pa.int64(), nullable)


def local_time(epoch_ms: int | None) -> datetime | None:
    """Return the wall-clock time in the zone of this process."""
    if epoch_ms is None:
        return None
    return datetime.fromtimestamp(epoch_ms // 1000).replace(microsecond=epoch_ms % 1000 * 1000)


def _of_type(values: pa.Array | Iterable[Any], kind: pa.DataType) -> pa.Array:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
