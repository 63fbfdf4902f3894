"""A scan as an Arrow dataset. Engines that read datasets pass the columns and the condition of their query to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tidelake.errors import BadInput
from tidelake.frames.readable import Readable
from tidelake.storage.read.arrow_expressions import columns_read


class ScanDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset without files or fragments of its own: each scanner makes a new read.

    `pyarrow.dataset.Dataset` forbids to call its constructor, and must be the base class: engines check for it.
    """

    def __init__(
        self,
        schema: pa.Schema,
        opened: Callable[[], Readable],
        adapted: pa.Schema | None = None,
        observed: Callable[[Readable], Readable] | None = None,
    ) -> None:
        """Make a dataset.

        schema: the columns of the read
        opened: returns the read; called once for each scanner
        adapted: the columns that the engine gets, with the same names; None: those of the read
        observed: is given each read with the columns and the condition of its query, and returns the one to perform
        """
        self._read_schema = schema
        self._opened = opened
        self._schema = schema if adapted is None else adapted
        self._observed = observed or as_read

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def partition_expression(self) -> pc.Expression:
        return pc.scalar(True)

    def __reduce__(self) -> Any:
        return type(self), (self._read_schema, self._opened, self._schema, self._observed)

    def __repr__(self) -> str:
        return f"ScanDataset({', '.join(self._schema.names)})"

    def scanner(
        self,
        columns: list[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **_: Any,
    ) -> ds.Scanner:
        """Return a scanner that reads the columns and the rows asked for, and no others.

        Readahead and fragment options have no effect: they change no row.
        """
        found, left = self._opened(), filter
        if filter is not None:
            with suppress(BadInput):  # of a read with a limit: the condition applies to its rows
                found, left = found.where(filter), None
        needed = self._needed(columns, left)
        found = self._observed(found.select(needed))
        own = pa.schema([self._schema.field(name) for name in needed])
        batches = found.to_batches()
        reader = pa.RecordBatchReader.from_batches(own, batches if own == found.schema else _adapted(batches, own))
        projection = dict(columns) if isinstance(columns, Mapping) else columns
        sized = {} if batch_size is None else {"batch_size": batch_size}
        return ds.Scanner.from_batches(reader, columns=projection, filter=left, use_threads=False, **sized)

    def _needed(self, columns: Any, condition: pc.Expression | None) -> list[str]:
        """Return the columns to read: at least one, so that rows can be counted."""
        names = self._schema.names
        if columns is None:
            return list(names)
        if isinstance(columns, Mapping):
            read = [name for one in columns.values() for name in columns_of(one, self._schema)]
        else:
            read = list(columns)
        if condition is not None:
            read += columns_read(condition, self._schema)
        if missing := [name for name in read if name not in names]:
            raise BadInput(f"no column {missing[0]!r}; the table has {', '.join(names)}")
        return [name for name in names if name in set(read)] or self._read_schema.names[:1]

    def get_fragments(self, filter: pc.Expression | None = None) -> Any:
        raise NotImplementedError("a table of Tidelake has no fragments; use to_batches(), or splits() of its scan")

    def replace_schema(self, schema: pa.Schema) -> Any:
        raise NotImplementedError("the columns of a table of Tidelake can't be replaced; use select() of its scan")

    def filter(self, expression: pc.Expression) -> Any:
        return ScanDataset(self._read_schema, _Filtered(self._opened, expression), self._schema, self._observed)


class _Filtered:
    """A read with one more condition. An object, so that it can be pickled."""

    def __init__(self, opened: Callable[[], Readable], condition: pc.Expression) -> None:
        self._opened = opened
        self._condition = condition

    def __call__(self) -> Readable:
        return self._opened().where(self._condition)


def as_read(scan: Readable) -> Readable:
    """Return the same read."""
    return scan


class Opened:
    """Returns the same scan each time."""

    def __init__(self, scan: Readable) -> None:
        self._scan = scan

    def __call__(self) -> Readable:
        return self._scan


def columns_of(expression: pc.Expression, schema: pa.Schema) -> frozenset[str]:
    """Return the columns that an expression of any type reads, or more of them."""
    return columns_read(expression.is_valid(), schema)


def _adapted(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Cast the batches. Raises BadInput for a value that would change."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays(
            [_cast(column, field) for column, field in zip(batch.columns, schema, strict=True)], schema=schema
        )


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowException as error:
        raise BadInput(
            f"column {field.name!r} has a value that {field.type} can't hold exactly: {str(error).splitlines()[0]}. "
            "Leave the column out, or read it by to_arrow()"
        ) from None
