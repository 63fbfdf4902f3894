"""Rows of a data file, as columns of the table's current schema, whatever schema the file was written under.

Source: Java `utils/FormatReaderMapping.java`, `schema/SchemaEvolutionUtil.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from storage.binary_row import decode_rows
from storage.errors import CorruptFile
from storage.fileio.base import FileIO
from storage.files.casting import cast
from storage.files.column_bounds import Bounds, ColumnBounds
from storage.files.data_file import DataFileMeta
from storage.files.formats import format_named
from storage.files.formats.arrow_conversion import in_column
from storage.files.formats.base import BATCH_BYTES_MAX, ChunkFilter, batch_of
from storage.format import KEY_COLUMN_PREFIX, SYSTEM_FIELD_ID_START
from storage.paths import format_of
from storage.schema.table_schema import (
    KIND_FIELD,
    LEVEL_FIELD,
    POSITION_FIELD,
    ROW_ID_FIELD,
    SEQUENCE_FIELD,
    TRACKING_FIELDS,
)
from storage.table import TableContext
from storage.types import DataField, arrow_schema, arrow_type, same_ignoring_nullability

T = TypeVar("T")

DEFAULT_BATCH_ROWS: Final = 65_536
_STORED_AS_THEY_ARE: Final = {f.id: f for f in (SEQUENCE_FIELD, KIND_FIELD)}
_TRACKED: Final = {f.id: f for f in TRACKING_FIELDS.values()}  # of tables without a primary key


class PruningPredicate(Protocol):
    """A condition that can exclude a part of a file by its bounds (`storage.read.predicate`)."""

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> NDArray[np.bool_] | None: ...


def read_data_file(
    context: TableContext,
    file: DataFileMeta,
    path: str,
    read_fields: Sequence[DataField],
    *,
    partition: bytes | None = None,
    batch_rows: int = DEFAULT_BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES_MAX,
    predicate: PruningPredicate | None = None,
    deleted: NDArray[np.int64] | None = None,
    selected: BitMap | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches of at most batch_rows rows and batch_bytes bytes (or one row), never empty, with the columns
    `read_fields`, in file order.

    read_fields: columns of context.schema, `_KEY_x` (read from column x), `_SEQUENCE_NUMBER`, `_VALUE_KIND`, `_LEVEL`
        (the file's), `_POSITION` (of a row in the file, from 0), `_ROW_ID` (of a table with row tracking). A column
        newer than the file is null; default values are not filled in (they were when rows were written).
    partition: serialized BinaryRow from the manifest, where the values of partition columns then come from.
    predicate: row groups without a row it may want are left out; others come whole.
    deleted: positions in the file of rows that are left out (its deletion vector).
    selected: positions of the rows that are wanted; None: all. Row groups without one are left out.

    Raises CorruptFile; UnsupportedFeature for formats and values that can't be read here.
    """
    plan = _ReadPlan.of(context, file, read_fields, partition)
    file_format = format_named(format_of(file.file_name))
    source = open_data_file(context.io, path)
    size = source.size()
    if size < file.file_size:
        source.close()
        raise CorruptFile(path, f"{file.file_size} bytes", f"only {size}", offset=size)
    schema = arrow_schema(read_fields)
    wants_positions = any(f.id in (POSITION_FIELD.id, ROW_ID_FIELD.id) for f in read_fields)
    rows = _Rows(file.row_count, path, deleted, selected, wants_positions=wants_positions)
    stored_batches = file_format.read(
        source,
        path,
        plan.stored,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
        chunk_filter=plan.chunk_filter(context, predicate, rows),
    )

    def as_read(live: tuple[pa.RecordBatch, pa.Array | None]) -> Iterator[pa.RecordBatch]:
        stored, positions = live
        plan.check_never_null(stored, path)
        columns = [plan.column(f, stored, positions, path) for f in read_fields]
        return _handed_over(_halved(batch_of(columns, stored.num_rows, schema), batch_bytes))

    yield from chain.from_iterable(map(as_read, rows.live(stored_batches)))


def chunk_bounds(
    context: TableContext, file: DataFileMeta, path: str, field: DataField, *, partition: bytes | None = None
) -> ColumnBounds | None:
    """A column of the table in the parts (row groups) of a data file, in file order; None: its format knows of none.

    Unknown where the file stores another type. Raises CorruptFile.
    """
    plan = _ReadPlan.of(context, file, [field], partition)
    found = format_named(format_of(file.file_name)).chunk_bounds(open_data_file(context.io, path), path, plan.stored)
    return None if found is None else plan.bounds(field, found)


@dataclass(frozen=True, slots=True)
class Chunks:
    """As a predicate: reads the parts (row groups) of a file with these numbers, and no others.

    column: any that is read.
    """

    numbers: range
    column: str

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> NDArray[np.bool_]:
        wanted = np.zeros(len(bounds(self.column).row_count), np.bool_)
        wanted[self.numbers] = True
        return wanted


class _Rows:
    """Which rows of a file count. Positions are those of the file, also where a format leaves parts of it out.

    expected: rows of the file, as its manifest says. Another number means another file in its place, which would give
        wrong rows unnoticed.
    deleted: positions of rows that don't count.
    """

    def __init__(
        self,
        expected: int,
        path: str,
        deleted: NDArray[np.int64] | None,
        selected: BitMap | None = None,
        *,
        wants_positions: bool = False,
    ) -> None:
        self._expected = expected
        self._path = path
        self._is_checked = False
        self._wants_positions = wants_positions
        # of the parts that the format hands out: where each ends among its rows, and how many rows before it are not
        self._ends, self._left_out = np.array([expected]), np.array([0])
        self._is_live: NDArray[np.bool_] | None = None  # of the rows that the format hands out
        if selected is not None:
            if len(selected) and selected.max() >= expected:
                raise CorruptFile(path, f"a file index of {expected} rows", f"one of row {selected.max()}")
            self._is_live = np.zeros(expected, np.bool_)
            self._is_live[np.array(selected.to_array(), np.int64)] = True
        if deleted is not None and len(deleted):
            if int(deleted.max()) >= expected:
                raise CorruptFile(path, f"deleted rows among {expected}", f"position {int(deleted.max())}")
            if self._is_live is None:
                self._is_live = np.ones(expected, np.bool_)
            self._is_live[deleted] = False

    def chunks(self, row_counts: NDArray[np.int64], maybe: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """Which parts of the file come; None: all. Raises CorruptFile.

        row_counts: of the parts.
        maybe: which of them may hold rows that are wanted, by what else is known.
        """
        self._check(int(np.sum(row_counts)))
        kept = maybe
        if self._is_live is not None and len(row_counts):
            ends = np.cumsum(row_counts)
            live = np.concatenate([[0], np.cumsum(self._is_live)])
            has_live = live[ends] > live[ends - row_counts]
            kept = has_live if kept is None else kept & has_live
        if kept is None:
            return None
        if self._is_live is not None:
            self._is_live = self._is_live[np.repeat(kept, row_counts)]
        self._ends = np.cumsum(row_counts[kept])
        self._left_out = np.cumsum(np.where(kept, 0, row_counts))[kept]
        return kept

    def live(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
        """The rows that count, with their positions if wanted. Raises CorruptFile at the end, unless the parts were
        checked, of which some are left out.
        """
        found = 0

        def live(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
            nonlocal found
            begin, found = found, found + batch.num_rows
            positions = self._positions(begin, found) if self._wants_positions else None
            if self._is_live is None or (is_live := self._is_live[begin:found]).all():
                return _handed_over([(batch, positions)])
            if not is_live.any():
                return iter(())
            kept = pa.array(is_live)
            return _handed_over([(batch.filter(kept), None if positions is None else positions.filter(kept))])

        yield from chain.from_iterable(map(live, batches))
        if not self._is_checked:
            self._check(found)

    def _positions(self, begin: int, end: int) -> pa.Array:
        numbers = np.arange(begin, end, dtype=np.int64)
        parts = np.searchsorted(self._ends, numbers, side="right")
        return pa.array(numbers + self._left_out[np.minimum(parts, len(self._ends) - 1)])

    def _check(self, found: int) -> None:
        self._is_checked = True
        if found != self._expected:
            raise CorruptFile(self._path, f"{self._expected} rows, as its manifest says", f"{found}")


def _halved(rows: pa.RecordBatch, most_bytes: int) -> list[pa.RecordBatch]:
    """In pieces that small, or of one row; rows may differ in size."""
    # the bytes of whole buffers are known at once; those of slices are counted column by column
    if rows.num_rows < 2 or rows.get_total_buffer_size() <= most_bytes or rows.nbytes <= most_bytes:
        return [rows]
    middle = rows.num_rows // 2
    return [*_halved(rows.slice(0, middle), most_bytes), *_halved(rows.slice(middle), most_bytes)]


def _handed_over(items: Sequence[T]) -> Iterator[T]:
    """Each batch is referenced only by its consumer, which can release it: rows may be large."""
    left = list(reversed(items))
    del items
    while left:
        yield left.pop()


def open_data_file(io: FileIO, path: str) -> pa.NativeFile:
    """Raises CorruptFile where there is none."""
    try:
        return io.open_input(path)
    except FileNotFoundError:
        raise CorruptFile(
            path, "a data file that a snapshot refers to", "no file (did the snapshot expire meanwhile?)"
        ) from None


def written_fields(context: TableContext, file: DataFileMeta) -> tuple[DataField, ...]:
    """The table's columns that a data file holds, as they were when it was written."""
    is_current = file.schema_id == context.schema.id
    schema = context.schema if is_current else context.schemas.get(file.schema_id)
    return tuple(f for f in schema.stored_in(file.write_columns) if f.name not in TRACKING_FIELDS)


@dataclass(frozen=True)
class _ReadPlan:
    """stored: the columns to read, as the file has them, each once.
    position: of a wanted column (by id) among them.

    constants: partition columns and `_LEVEL` (by id) with their one value.
    never_null: positions among `stored` of columns whose nulls mean that this is another table's file: a column that a
        file lacks reads as null.
    first_row_id, sequence_number: of rows whose file doesn't store theirs; the ids count on from the first.
    """

    stored: Sequence[DataField]
    position: Mapping[int, int]
    constants: Mapping[int, pa.Scalar]
    never_null: Sequence[int]
    first_row_id: int | None
    sequence_number: int

    @classmethod
    def of(
        cls, context: TableContext, file: DataFileMeta, wanted: Sequence[DataField], partition: bytes | None
    ) -> _ReadPlan:
        is_current = file.schema_id == context.schema.id
        file_schema = context.schema if is_current else context.schemas.get(file.schema_id)
        special = _STORED_AS_THEY_ARE if file_schema.has_primary_key else _TRACKED
        by_id = {f.id: f for f in file_schema.stored_in(file.write_columns)} | special
        constants = _partition_values(context, partition)
        constants[LEVEL_FIELD.id] = pa.scalar(file.level, arrow_type(LEVEL_FIELD.type))
        stored: dict[int, DataField] = {}
        position = {}
        for f in wanted:
            value_id = f.id - SYSTEM_FIELD_ID_START if f.name.startswith(KEY_COLUMN_PREFIX) else f.id
            if value_id in by_id and f.id not in constants:
                stored.setdefault(value_id, by_id[value_id])
                position[f.id] = list(stored).index(value_id)
        keys = {*file_schema.primary_keys, *(f.name for f in special.values() if not f.type.nullable)}
        never_null = [i for i, f in enumerate(stored.values()) if f.name in keys]
        first, sequence = file.first_row_id, file.max_sequence_number
        return cls(list(stored.values()), position, constants, never_null, first, sequence)

    def check_never_null(self, batch: pa.RecordBatch, path: str) -> None:
        for position in self.never_null:
            if nulls := batch.column(position).null_count:
                name = self.stored[position].name
                raise CorruptFile(path, f"column {name!r} without nulls", f"{nulls} in {batch.num_rows} rows")

    def column(
        self, wanted: DataField, batch: pa.RecordBatch, positions: pa.Array | None = None, path: str = ""
    ) -> pa.Array:
        """positions: of the rows in the file, where they are needed."""
        if wanted == POSITION_FIELD:
            return positions
        if wanted.id in self.constants:
            return pa.repeat(self.constants[wanted.id], batch.num_rows)
        if wanted.id not in self.position:
            return pa.nulls(batch.num_rows, arrow_type(wanted.type))
        position = self.position[wanted.id]
        found, stored = batch.column(position), self.stored[position]
        if stored.type != wanted.type:
            with in_column(wanted.name):
                found = cast(found, stored.type, wanted.type)
        if wanted.id in _TRACKED and found.null_count:
            return self._tracked(wanted, found, positions, path)
        return found

    def _tracked(self, wanted: DataField, stored: pa.Array, positions: pa.Array | None, path: str) -> pa.Array:
        """stored: null where rows are numbered by their file alone. Java: `io/DataFileRecordReader.java`."""
        if wanted.id == SEQUENCE_FIELD.id:
            return pc.fill_null(stored, self.sequence_number)
        if self.first_row_id is None or positions is None:
            raise CorruptFile(path, "row ids, in the file or its manifest entry", "none; the row ids are lost")
        return pc.coalesce(stored, pc.add(positions, self.first_row_id))

    def chunk_filter(
        self, context: TableContext, predicate: PruningPredicate | None, rows: _Rows
    ) -> ChunkFilter | None:
        if predicate is None:
            return None

        def keep(chunks: Bounds) -> NDArray[np.bool_] | None:
            kept = predicate.may_match(
                lambda name: self.bounds(context.schema.by_name[name], chunks), context.schema.arrow
            )
            return rows.chunks(chunks("").row_count.to_numpy(), kept)

        return keep

    def bounds(self, wanted: DataField, chunks: Bounds) -> ColumnBounds:
        """Of a column of the table, where the file stores it as it is."""
        position = self.position.get(wanted.id)
        if position is not None and same_ignoring_nullability(self.stored[position].type, wanted.type):
            return chunks(self.stored[position].name)
        return ColumnBounds.unknown(arrow_type(wanted.type), chunks("").row_count)


def _partition_values(context: TableContext, partition: bytes | None) -> dict[int, pa.Scalar]:
    fields = context.schema.partition_fields
    if partition is None or not fields:
        return {}
    values = decode_rows([partition], [f.type for f in fields])
    return {f.id: column[0] for f, column in zip(fields, values, strict=True)}
