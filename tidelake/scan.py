"""Reads rows of a snapshot, or only the rows added between snapshots."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, overload

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base.arguments import check_whole_number, checked, checked_except
from tidelake.storage.maintenance.analysis.analyze import read_statistics
from tidelake.storage.maintenance.analysis.row_estimate import estimated_rows
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds
from tidelake.storage.read.arrow_expressions import matching_rows
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.column_values import ColumnValues, field_path
from tidelake.storage.read.condition_text import condition_text
from tidelake.storage.read.conditions import as_predicate
from tidelake.storage.read.evolution.tracked_columns import tracked_schema
from tidelake.storage.read.explain import ExplainedFile, explain_scan
from tidelake.storage.read.fallback_branch import BranchRead, FallbackBranch, branch_reads
from tidelake.storage.read.incremental_read import Increment, read_increment
from tidelake.storage.read.predicate import And, Predicate
from tidelake.storage.read.scan import TableScan, created_since
from tidelake.storage.read.shares import (
    SplitGroup,
    among,
    balanced,
    check_unmerged,
    flattened,
    rows_between,
    shard_of,
)
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.read.split import Split

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import ray.data
    from torch.utils.data import IterableDataset


Fields: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""The name of each column of a result, and the column and the fields in it that lead to its values."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a read. It is chosen from the files that the read has when it is called, whatever comes later.

    text: as `repr` shows it
    cut: returns the part of the splits
    predicate: the condition by which these splits were planned
    """

    text: str
    cut: Callable[[Sequence[Split]], list[Split]]
    predicate: Predicate | None


class Scan:
    """A read of a table at one snapshot. It is planned once, when rows or splits are first requested. Picklable.

    It is an Arrow stream for every library that reads such streams: `pyarrow.table(scan)`, `polars.DataFrame(scan)`,
    `duckdb.sql("select … from scan")`. Each such read starts anew, and is in bounded memory.
    """

    has_splits: ClassVar[bool] = True  # whether it can be read split by split, or only as a whole

    def __init__(
        self,
        context: TableContext,
        snapshot: Snapshot | None,
        columns: tuple[str, ...],
        predicate: Predicate | None,
        files_since_ms: int | None = None,
        other: FallbackBranch | None = None,
    ) -> None:
        self._context = context
        self._snapshot = snapshot
        self._columns = columns
        self._predicate = predicate
        self._files_since_ms = files_since_ms
        self._other = other
        self._limit: int | None = None
        self._shares: tuple[Share, ...] = ()  # each is a part of the one before
        self._fields: Fields | None = None  # of the result, if it has fields of ROWs; otherwise it has the columns
        self._splits: list[Split] | None = None

    def __repr__(self) -> str:
        shares = [share.text for share in self._shares]
        return described(self, self._context.name, self._predicate, shares, self._limit)

    def _repr_html_(self) -> str:
        from tidelake.frames.html import html_of

        return html_of(repr(self), self)

    @property
    def context(self) -> TableContext:
        """The table with the schema for this read. Not part of the public API: it may change at any time."""
        return self._context

    @property
    def snapshot_id(self) -> int | None:
        """Id of the snapshot; None for a table without snapshots."""
        return self._snapshot.id if self._snapshot is not None else None

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot. Not part of the public API: it may change at any time."""
        return self._snapshot

    @property
    def is_of_snapshot_alone(self) -> bool:
        """Whether it returns all rows of the snapshot: without condition, and without rows of another branch.

        Not part of the public API.
        """
        is_whole = self._predicate is None and self._limit is None and self._fields is None and not self._shares
        return is_whole and self._files_since_ms is None and self._other is None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        read = self._reader.schema
        if self._fields is None:
            return read
        return pa.schema(
            [pa.field(name, ColumnValues.of(path[0], None, read, path[1:]).type) for name, path in self._fields]
        )

    @checked
    def select(self, columns: Sequence[str]) -> Self:
        """Return the same read of the same snapshot, with only these columns."""
        names, _ = projection(self.schema, columns, None)
        return self._changed(_columns=names) if self._fields is None else self._of_fields(names, dict(self._fields))

    def _of_fields(self, names: Sequence[str], paths: Mapping[str, tuple[str, ...]]) -> Self:
        """Return the same read with these names; each is a column, or has a path to a field in one."""
        fields = tuple((name, paths[name]) for name in names)
        return self._changed(_fields=fields, _columns=tuple(dict.fromkeys(path[0] for _, path in fields)))

    @checked
    def where(self, condition: Predicate | Any) -> Self:
        """Return the same read of the same snapshot, with one more condition on its columns.

        Raises BadInput for a read with a limit: the condition would apply to the limited rows only.
        """
        if self._limit is not None:
            raise BadInput(f"where() after limit({self._limit}): put the condition before the limit")
        if self._fields is not None:
            raise BadInput("where() of a read of fields of a ROW: put the condition into scan(filter=…)")
        _, predicate = projection(self.schema, None, condition)
        both = predicate if self._predicate is None or predicate is None else And((self._predicate, predicate))
        return self._changed(_predicate=both)

    @checked
    def limit(self, rows: int) -> Self:
        """Return the same read, of at most this many rows. Which ones is not defined. Reads no more files than needed.

        A read of single splits returns at most this many rows per call.
        """
        check_whole_number("limit(rows=…)", rows)
        return self._changed(_limit=rows if self._limit is None else min(rows, self._limit))

    def _changed(self, **attributes: Any) -> Self:
        changed = copy(self)
        vars(changed).update(attributes, _splits=None)
        return changed

    @overload
    def splits(self) -> list[Split]: ...
    @overload
    def splits(self, count: int) -> list[SplitGroup]: ...
    def splits(self, count: int | None = None) -> list[Split] | list[SplitGroup]:
        """Return units of the read, which can be read in any order and on any machine: `to_batches(splits=[…])`.

        count: return at most this many units, of about equal bytes. A file, or files that must be merged with each
            other, are never divided. None: units of `source.split.target-size`, each of one bucket
        """
        if self._splits is None:
            self._splits = self._found_splits()
        if count is None:
            return self._splits
        return balanced(self._splits, check_whole_number("splits(count=…)", count, at_least=1))

    def _found_splits(self) -> list[Split]:
        found = self._planned_splits(self._shares[0].predicate if self._shares else self._predicate)
        conditions = [*(share.predicate for share in self._shares[1:]), self._predicate]
        for share, condition in zip(self._shares, conditions, strict=False):
            found = share.cut(found)
            if condition is not None and condition is not share.predicate:
                found = among(found, self._planned_splits(condition))
        return found if self._limit is None else self._needed(found, self._limit)

    def _planned_splits(self, predicate: Predicate | None) -> list[Split]:
        """Return the splits that may hold rows with a condition."""
        return [split for part in self._parts(predicate) for split in part.splits()]

    @checked
    def shard(self, index: int, count: int) -> Self:
        """Return the part of this read that one of `count` workers reads: together they read each row once.

        Each worker makes the same call with another index, for the same snapshot. All parts have equally many rows of
        files, give or take one, counted before conditions and deletes. Files that must be merged with each other are in
        one part.

        index: 0 to count - 1

        Raises BadInput for another index, and for a read with a limit.
        """
        check_whole_number("shard(count=…)", count, at_least=1)
        check_whole_number("shard(index=…)", index)
        if index >= count:
            raise BadInput(f"shard(index={index}, count={count}): the index is 0 to {count - 1}")
        cut = partial(shard_of, index=index, count=count, divides_files=self._divides_files)
        return self._shared(Share(f"shard={index} of {count}", cut, self._predicate))

    @checked
    def row_range(self, start: int, end: int) -> Self:
        """Return the part of this read with the rows from `start` to before `end`.

        The rows are numbered from 0 in the order of the files, before conditions, with deleted rows. The numbers are
        the same for each read of the same snapshot.

        Raises BadInput for an end before the start, and for a read with a limit. Raises UnsupportedFeature for a table
        whose files must be merged: only then it is known which rows there are.
        """
        check_whole_number("row_range(start=…)", start)
        if check_whole_number("row_range(end=…)", end) < start:
            raise BadInput(f"row_range({start}, {end}): the end is before the start")
        if not self._divides_files:
            raise UnsupportedFeature(
                f"a range of rows of {self._context.name}",
                "with data-evolution.enabled the columns of a row are in several files",
                f'Use their ids: scan(filter="_ROW_ID between {start} and {max(end - 1, start)}")',
            )
        check_unmerged(self._changed(_predicate=None).splits(), self._context.name)
        return self._shared(Share(f"rows={start} to {end}", partial(rows_between, start=start, end=end), None))

    @property
    def _divides_files(self) -> bool:
        return not self._context.options.data_evolution_enabled

    def _shared(self, share: Share) -> Self:
        if not self.has_splits:
            self.splits()  # raises
        if self._limit is not None:
            raise BadInput(f"a part of a read with limit({self._limit}): put the limit after it")
        return self._changed(_shares=(*self._shares, share))

    def _needed(self, splits: list[Split], limit: int) -> list[Split]:
        """Return as many files as certainly have `limit` rows; all, if metadata doesn't say how many they have."""
        if limit == 0:
            return []
        if self._predicate is not None or self._other is not None:
            return splits
        known = 0
        for number, split in enumerate(splits, 1):
            for count, section in enumerate(split.sections, 1):
                known += self._reader.known_rows_of(section, split) or 0
                if known >= limit:
                    return [*splits[: number - 1], replace(split, sections=split.sections[:count])]
        return splits

    def _parts(self, predicate: Predicate | None) -> list[BranchRead]:
        return branch_reads(partial(self._planned, predicate), self._context, self._snapshot, self._other)

    def _planned(self, predicate: Predicate | None, context: TableContext) -> TableScan:
        is_new = None if self._files_since_ms is None else created_since(self._files_since_ms)
        keep = Subtask.of(self._context.options).keep_entry(context, is_new)
        return TableScan(context, predicate, keep)

    @checked
    def explain(self) -> list[ExplainedFile]:
        """Return why each file of the snapshot is read or skipped. Opens no data file.

        For partitions that are read from another branch, only the files of that branch are returned. Files that another
        shard or range of rows reads are returned, too.
        """
        if not self.has_splits:
            self.splits()  # raises
        return [file for part in self._parts(self._predicate) for file in explain_scan(part.scan, part.snapshot)]

    @checked
    def estimated_rows(self) -> int | None:
        """Return the estimated number of rows, from the last `Table.analyze`; None without sufficient statistics.

        Opens no data file.
        """
        if self._snapshot is None or self._other is not None or self._shares or not self.has_splits:
            return None
        found = read_statistics(self._context, self._snapshot)
        return None if found is None else estimated_rows(found, self._predicate, self._context.schema.arrow)

    @checked
    def count(self) -> int:
        """Return the number of rows. Files that need no merge and no condition are counted by their metadata."""
        if self._limit == 0:
            return 0
        counted = self._counted_rows() if self.has_splits and self._other is None else None
        if counted is None:
            counted = sum(batch.num_rows for batch in self._narrow().to_batches())
        return counted if self._limit is None else min(counted, self._limit)

    def _counted_rows(self) -> int | None:
        """Return the number of rows, if metadata knows a part of it."""
        if self._predicate is not None:
            if not self._predicate.columns <= set(self._context.schema.partition_keys):
                return None
            # Planning applied the condition exactly: all rows of the remaining partitions fulfil it.
            whole = self._changed(_predicate=None)
            whole._splits = self.splits()
            return whole._counted_rows()
        known = 0
        unknown: list[Split] = []
        for split in self.splits():
            rows, rest = self._reader.known_rows(split)
            known += rows
            unknown += [] if rest is None else [rest]
        if self._limit is not None and known >= self._limit:
            return known
        reader = self._narrow()._reader
        for batch in reader.read(unknown):
            known += batch.num_rows
        return known

    def _narrow(self) -> Self:
        """Return the same read with one column, which is fast to read."""
        schema = self.schema if self._fields is None else self._reader.schema
        narrow = self._changed(_columns=(_fastest_column(schema),), _fields=None) if self._columns else self._changed()
        narrow._splits = self._splits
        return narrow

    @checked
    def head(self, n: int = 5) -> pa.Table:
        """Return the first rows that are found. Reads no more files than it needs."""
        return self.limit(n).to_arrow()

    @checked
    def to_batches(self, splits: Sequence[Split | SplitGroup] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows as batches, in bounded memory.

        splits: read only these, of `splits()` of the same read
        """
        batches = self._batches(None if splits is None else flattened(splits))
        if self._fields is not None:
            batches = _fields_of(batches, self._fields, self.schema)
        return batches if self._limit is None else _first_rows(batches, self._limit)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of `to_batches`."""
        return self.to_batches()

    def _batches(self, splits: Sequence[Split] | None) -> Iterator[pa.RecordBatch]:
        found = self.splits() if splits is None else splits
        if self._other is None:
            return self._reader.read(found)
        return self._read_with_fallback(self._other, found)

    def _read_with_fallback(self, other: FallbackBranch, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        theirs = SnapshotReader(other.context, self._columns, self._predicate)
        for split in splits:
            for rows in (theirs if split.of_fallback_branch else self._reader).read([split]):
                yield rows.cast(self.schema)  # a column may be nullable in one branch only

    @checked
    def to_arrow(self, splits: Sequence[Split | SplitGroup] | None = None) -> pa.Table:
        """Return all rows as one Arrow table."""
        return pa.Table.from_batches(self.to_batches(splits), self.schema)

    # ------------------------------------------------------------ other libraries

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Return an Arrow reader of all rows, in bounded memory."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return an Arrow stream of all rows for other libraries (Arrow's PyCapsule interface)."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the columns of the stream."""
        return self.schema.__arrow_c_schema__()

    @checked_except("types_mapper")
    def to_pandas(self, *, types_mapper: Callable[[pa.DataType], Any] | None = None) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame, with no value changed (`tidelake[pandas]`).

        A nullable column of integers or booleans has pandas' nullable type (`Int64`); one of floats, and nested values,
        are `pandas.ArrowDtype`; other columns have the types of `pyarrow.Table.to_pandas`. docs/pandas.md lists them.

        types_mapper: returns the pandas type of an Arrow type, or None for the default of pyarrow. With
            `pandas.ArrowDtype` no column is converted
        """
        from tidelake.frames.pandas import to_pandas

        return to_pandas(self.to_arrow(), types_mapper)

    def to_polars(self) -> pl.LazyFrame:
        """Return a Polars LazyFrame of this snapshot (`tidelake[polars]`).

        Rows are read when it is collected, each time anew. Columns, conditions and limits of its query are applied
        while reading.
        """
        from tidelake.frames.polars import to_polars

        return to_polars(self)

    @checked_except("connection")
    def to_duckdb(self, name: str, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyConnection:
        """Make this snapshot a view of DuckDB, and return the connection (`tidelake[duckdb]`).

        Each query reads only the columns and files that it needs, in bounded memory.

        name: of the view, without a schema
        connection: gets the view; None is a new one, in memory
        """
        from tidelake.frames.duckdb import to_duckdb

        return to_duckdb(self, name, connection)

    @checked
    def to_ray_dataset(self, parallelism: int | None = None) -> ray.data.Dataset:
        """Return a Ray dataset of this snapshot (`tidelake[ray]`). Its tasks read groups of files side by side.

        parallelism: how many tasks read, if there are as many files; None: Ray decides
        """
        from tidelake.frames.ray import to_ray

        return to_ray(self, parallelism)

    to_ray = to_ray_dataset  # the name in pypaimon

    @checked
    def to_torch(
        self,
        *,
        batch_rows: int | None = None,
        shuffle_rows: int = 0,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> IterableDataset[dict[str, Any]]:
        """Return an iterable dataset of PyTorch, for a `DataLoader` (`tidelake[torch]`).

        Each worker of the loader, on each node, reads its own `shard` of the snapshot. `set_epoch(number)` of the
        dataset changes the order of the next pass.

        batch_rows: the dataset yields dicts of tensors with this many rows; use `DataLoader(…, batch_size=None)`.
            Numbers and booleans are tensors, other values are lists. None: it yields rows as dicts
        shuffle_rows: rows are mixed within a buffer of this many in each worker. 0: they come in the order of the files
        seed: of the order
        rank: the number of this process among those that train, 0 to world_size - 1; None: that of torch.distributed
        world_size: how many processes train; None: that of torch.distributed, or 1
        """
        from tidelake.frames.torch import to_torch

        return to_torch(
            self, batch_rows=batch_rows, shuffle_rows=shuffle_rows, seed=seed, rank=rank, world_size=world_size
        )

    @property
    def _reader(self) -> SnapshotReader:
        return SnapshotReader(self._context, self._columns, self._predicate)


class IncrementalScan(Scan):
    """A read of the rows added between two snapshots. It has no splits."""

    has_splits = False

    def __init__(
        self, context: TableContext, increment: Increment, columns: tuple[str, ...], predicate: Predicate | None
    ) -> None:
        super().__init__(context, None, columns, predicate)
        self._increment = increment

    def _planned_splits(self, predicate: Predicate | None) -> list[Split]:
        raise UnsupportedFeature(
            f"splits of changes of {self._context.name}",
            "the changes between two snapshots can only be read as a whole",
            "Call to_batches() or to_arrow() without splits",
        )

    def _batches(self, splits: Sequence[Split] | None) -> Iterator[pa.RecordBatch]:
        """Yield rows. Those of one key are in the order of their commits."""
        if splits is not None:
            self.splits()  # raises
        return self._rows()

    def _rows(self) -> Iterator[pa.RecordBatch]:
        condition = None if self._predicate is None else self._predicate.expression(self._context.schema.arrow)
        for change in read_increment(self._context, self._increment):
            rows = change.rows.filter(pa.array(~is_retract(row_kinds(change.rows))))
            if condition is not None:
                rows = matching_rows(rows, condition)
            if rows.num_rows:
                yield rows.select(self._columns)


def described(
    scan: Scan, name: str, predicate: Predicate | None, shares: Sequence[str] = (), limit: int | None = None
) -> str:
    """Return what a scan reads, and how much: `Scan(db.t, snapshot=5, columns=[id], reads 2 files, 579 bytes)`."""
    parts = [name]
    if scan.snapshot_id is not None:
        parts.append(f"snapshot={scan.snapshot_id}")
    if predicate is not None:
        parts.append(f'filter="{condition_text(predicate)}"')
    parts.append(f"columns=[{', '.join(scan.schema.names)}]")
    parts += shares
    if limit is not None:
        parts.append(f"limit={limit}")
    if scan.has_splits:
        files = [file for split in scan.splits() for file in split.files]
        plural = "" if len(files) == 1 else "s"
        parts.append(f"reads {len(files)} file{plural}, {sum(file.file_size for file in files):,} bytes")
    return f"Scan({', '.join(parts)})"


def _fields_of(batches: Iterator[pa.RecordBatch], fields: Fields, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [
            pc.struct_field(batch.column(path[0]), list(path[1:])) if len(path) > 1 else batch.column(path[0])
            for _, path in fields
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _first_rows(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of all batches. Later batches are not read, and the iterator is closed."""
    left = limit
    try:
        while left > 0 and (batch := next(batches, None)) is not None:
            yield batch.slice(0, left)
            left -= batch.num_rows
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def _fastest_column(schema: pa.Schema) -> str:
    """Return the column with the fewest bytes per value, the first of equal ones."""

    def width(field: pa.Field) -> int:
        try:
            return int(field.type.bit_width)
        except ValueError:  # texts, nested values
            return sys.maxsize

    return str(min(schema, key=width).name)


def with_fields(columns: Sequence[str] | None, schema: pa.Schema, made: Callable[[Sequence[str] | None], Scan]) -> Scan:
    """Return a scan of columns, some of which may be fields of a ROW: `address.city`.

    made: returns a scan of columns of the schema
    """
    paths = {name: field_path(name, schema) or (name,) for name in columns or ()}
    if columns is None or all(len(path) == 1 for path in paths.values()):
        return made(columns)
    if len(paths) < len(columns):
        raise BadInput(f"scan(columns=…) names a column twice: {', '.join(columns)}")
    return made(tuple(dict.fromkeys(path[0] for path in paths.values())))._of_fields(columns, paths)


def snapshot_projection(
    context: TableContext, columns: Sequence[str] | None, condition: Any
) -> tuple[tuple[str, ...], Predicate | None]:
    """Return the `projection` of the rows at a snapshot, which also have row ids. None: the table's own columns."""
    return projection(tracked_schema(context), context.schema.names if columns is None else columns, condition)


def projection(
    schema: pa.Schema, columns: Sequence[str] | None, condition: Any
) -> tuple[tuple[str, ...], Predicate | None]:
    """Return names and predicate in the form that a scan takes. Raises BadInput."""
    names = tuple(columns) if columns is not None else tuple(schema.names)
    known = set(schema.names)  # Arrow makes a list of them each time
    if missing := [name for name in names if name not in known]:
        raise BadInput(f"no column {missing[0]!r}; the table has {', '.join(schema.names)}")
    if len(set(names)) != len(names):
        raise BadInput(f"scan(columns=…) names a column twice: {', '.join(names)}")
    predicate = as_predicate(condition, schema) if condition is not None else None
    if predicate is not None:
        predicate.expression(schema)
    return names, predicate
