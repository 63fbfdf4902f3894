"""Reads the rows of a data file as columns of the table's current schema, even if the file has an older schema.

Source: Java `utils/FormatReaderMapping.java`, `schema/SchemaEvolutionUtil.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from tidelake.errors import BadInput, CorruptFile, UnsupportedFeature
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.files.casting import cast
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.formats import format_named
from tidelake.storage.files.formats.arrow_conversion import in_column
from tidelake.storage.files.formats.file_format import BATCH_BYTES_MAX, ChunkFilter, batch_of
from tidelake.storage.files.stats_collection import Bounds, ColumnBounds
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.format import KEY_COLUMN_PREFIX, SYSTEM_FIELD_ID_START
from tidelake.storage.model.paths import format_of
from tidelake.storage.model.schema.table_schema import (
    KIND_FIELD,
    LEVEL_FIELD,
    POSITION_FIELD,
    ROW_ID_FIELD,
    SEQUENCE_FIELD,
    TRACKING_FIELDS,
)
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import AtomicType, DataField, arrow_schema, arrow_type, same_ignoring_nullability

T = TypeVar("T")

DEFAULT_BATCH_ROWS: Final = 65_536
_SYSTEM_FIELDS: Final = {f.id: f for f in (SEQUENCE_FIELD, KIND_FIELD)}
_TRACKED: Final = {f.id: f for f in TRACKING_FIELDS.values()}  # in tables without a primary key


class PruningPredicate(Protocol):
    """A condition that can exclude parts of a file by their bounds (`tidelake.storage.read.predicate`)."""

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> NDArray[np.bool_] | None: ...


def read_data_file(  # noqa: PLR0913 - one parameter per part of a read
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
    use_threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file in file order, in batches with the columns `read_fields`.

    Batches are never empty.

    read_fields: columns of context.schema, `_KEY_x` (read from column x), `_SEQUENCE_NUMBER`, `_VALUE_KIND`, `_LEVEL`
        (the level of the file), `_POSITION` (the position of a row in the file, from 0), and `_ROW_ID` (in tables with
        row tracking). A column that is newer than the file is null. Default values are not filled in here, but when
        rows are written.
    partition: the serialized BinaryRow from the manifest. If given, it provides the values of partition columns.
    batch_rows: the maximum number of rows of a batch.
    batch_bytes: the maximum size of a batch, unless a single row is larger.
    predicate: excludes row groups without matching rows. Other row groups are returned completely.
    deleted: the positions of rows in the file to leave out (its deletion vector).
    selected: the positions of rows to return; None means all. Row groups without such rows are not read, nor pages of
        local Parquet files.
    use_threads: decode columns side by side. For a reader that waits for these rows alone; a merge reads several files.

    Raises CorruptFile. Raises UnsupportedFeature for formats and values that can't be read.
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
        wanted_rows=rows,
        use_threads=use_threads,
    )

    def as_read(live: tuple[pa.RecordBatch, pa.Array | None]) -> Iterator[pa.RecordBatch]:
        stored, positions = live
        plan.check_never_null(stored, path)
        columns = [plan.column(f, stored, positions, path) for f in read_fields]
        return _yield_and_release(_halved(batch_of(columns, stored.num_rows, schema), batch_bytes))

    yield from chain.from_iterable(map(as_read, rows.live(stored_batches)))


def chunk_bounds(
    context: TableContext, file: DataFileMeta, path: str, field: DataField, *, partition: bytes | None = None
) -> ColumnBounds | None:
    """Return the bounds of a column in the parts (row groups) of a data file, in file order.

    None if the file format has no bounds. The bounds are unknown if the file stores the column with another type.

    Raises CorruptFile.
    """
    plan = _ReadPlan.of(context, file, [field], partition)
    found = format_named(format_of(file.file_name)).chunk_bounds(open_data_file(context.io, path), path, plan.stored)
    return None if found is None else plan.bounds(field, found)


@dataclass(frozen=True, slots=True)
class Chunks:
    """A predicate that selects the parts (row groups) of a file with the given numbers.

    numbers: the numbers of the parts.
    column: any column that is read.
    """

    numbers: range
    column: str

    def may_match(self, bounds: Bounds, schema: pa.Schema) -> NDArray[np.bool_]:
        wanted = np.zeros(len(bounds(self.column).row_count), np.bool_)
        wanted[self.numbers] = True
        return wanted


class _Rows:
    """The rows of a file that are read. Positions are those in the file, even if a format skips parts of it.

    expected: the number of rows in the manifest. A different number means that the file was replaced by another one,
        whose rows would be wrong.
    deleted: the positions of rows to leave out.
    selected: the positions of rows to return; None means all.
    wants_positions: whether `live` returns the positions of rows.
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
        # For each part that the format reads: its end among the rows of these parts, and the number of skipped rows
        # before it.
        self._ends, self._left_out = np.array([expected]), np.array([0])
        self._returned: NDArray[np.int64] | None = None  # the positions of the returned rows; None: all of these parts
        self._is_live: NDArray[np.bool_] | None = None  # for each row that the format returns
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
        """Return which parts of the file to read; None means all. Raises CorruptFile.

        row_counts: the number of rows of each part.
        maybe: which parts may contain matching rows by their bounds; None means all.
        """
        self._check(int(np.sum(row_counts)))
        kept = maybe
        if self._is_live is not None and len(row_counts):
            parts = np.split(self._is_live, np.cumsum(row_counts)[:-1])
            has_live = np.array([part.any() for part in parts])
            kept = has_live if kept is None else kept & has_live
            self._is_live = np.concatenate([self._is_live[:0], *compress(parts, kept)])
        if kept is None:
            return None
        self._ends = np.cumsum(row_counts[kept])
        self._left_out = np.cumsum(np.where(kept, 0, row_counts))[kept]
        return kept

    def of_parts(self) -> NDArray[np.bool_] | None:
        """See `WantedRows`."""
        return self._is_live

    def returned(self, rows: NDArray[np.bool_]) -> None:
        """See `WantedRows`."""
        numbers = np.flatnonzero(rows).astype(np.int64)
        if self._wants_positions:
            self._returned = self._in_file(numbers)
        if self._is_live is not None:
            self._is_live = self._is_live[numbers]

    def live(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
        """Yield the rows to return, with their positions if wanted.

        Raises CorruptFile at the end if the number of rows is wrong, unless `chunks` has checked the number already.
        """
        found = 0

        def live(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
            nonlocal found
            begin, found = found, found + batch.num_rows
            positions = self._positions(begin, found) if self._wants_positions else None
            if self._is_live is None or (is_live := self._is_live[begin:found]).all():
                return _yield_and_release([(batch, positions)])
            if not is_live.any():
                return iter(())
            kept = pa.array(is_live)
            return _yield_and_release([(batch.filter(kept), None if positions is None else positions.filter(kept))])

        yield from chain.from_iterable(map(live, batches))
        if not self._is_checked:
            self._check(found)

    def _positions(self, begin: int, end: int) -> pa.Array:
        if self._returned is not None:
            return pa.array(self._returned[begin:end])
        first, last = np.searchsorted(self._ends, [begin, end - 1], side="right")
        if first == last:
            skipped = self._left_out[min(first, len(self._ends) - 1)]
            return pa.array(np.arange(begin + skipped, end + skipped, dtype=np.int64))
        return pa.array(self._in_file(np.arange(begin, end, dtype=np.int64)))

    def _in_file(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the file of rows that are counted within the parts that are read."""
        parts = np.searchsorted(self._ends, numbers, side="right")
        found: NDArray[np.int64] = numbers + self._left_out[np.minimum(parts, len(self._ends) - 1)]
        return found

    def _check(self, found: int) -> None:
        self._is_checked = True
        if found != self._expected:
            raise CorruptFile(self._path, f"{self._expected} rows, as its manifest says", f"{found}")


def _halved(rows: pa.RecordBatch, most_bytes: int) -> list[pa.RecordBatch]:
    """Halve the batch until each piece has at most most_bytes, or one row. Rows may differ in size."""
    # The size of whole buffers is known immediately; that of slices must be computed column by column.
    if rows.num_rows < 2 or rows.get_total_buffer_size() <= most_bytes or rows.nbytes <= most_bytes:
        return [rows]
    middle = rows.num_rows // 2
    return [*_halved(rows.slice(0, middle), most_bytes), *_halved(rows.slice(middle), most_bytes)]


def _yield_and_release(items: Sequence[T]) -> Iterator[T]:
    """Yield the items without keeping references: rows may be large, and only the consumer should hold them."""
    left = list(reversed(items))
    del items
    while left:
        yield left.pop()


def open_data_file(io: FileIO, path: str) -> pa.NativeFile:
    """Open a data file. Raises CorruptFile if it does not exist."""
    try:
        return io.open_input(path)
    except FileNotFoundError:
        raise CorruptFile(
            path, "a data file that a snapshot references", "no file (has the snapshot expired?)"
        ) from None


def written_fields(context: TableContext, file: DataFileMeta) -> tuple[DataField, ...]:
    """Return the table's columns in a data file, as they were when the file was written."""
    is_current = file.schema_id == context.schema.id
    schema = context.schema if is_current else context.schemas.get(file.schema_id)
    return tuple(f for f in schema.stored_in(file.write_columns) if f.name not in TRACKING_FIELDS)


@dataclass(frozen=True)
class _ReadPlan:
    """How the columns of a file become the wanted columns.

    stored: the columns to read, as they are in the file, each once.
    position: field id of a wanted column -> its position in `stored`.
    constants: field id of a partition column or `_LEVEL` -> its value.
    never_null: positions in `stored` of columns that can't contain nulls. Nulls mean that the file belongs to another
        table, because a column that is missing in a file is read as null.
    first_row_id: the row id of the first row, if the file does not store row ids. The other rows have the next ids.
    sequence_number: the sequence number of all rows, if the file does not store sequence numbers.
    is_newer: the file has a newer schema than the table had when it was opened.
    """

    stored: Sequence[DataField]
    position: Mapping[int, int]
    constants: Mapping[int, pa.Scalar]
    never_null: Sequence[int]
    first_row_id: int | None
    sequence_number: int
    is_newer: bool = False

    @classmethod
    def of(
        cls, context: TableContext, file: DataFileMeta, wanted: Sequence[DataField], partition: bytes | None
    ) -> _ReadPlan:
        is_current = file.schema_id == context.schema.id
        file_schema = context.schema if is_current else context.schemas.get(file.schema_id)
        special = _SYSTEM_FIELDS if file_schema.has_primary_key else _TRACKED
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
        primary_keys = () if context.options.has_nullable_keys else file_schema.primary_keys
        keys = {*primary_keys, *(f.name for f in special.values() if not f.type.nullable)}
        never_null = [i for i, f in enumerate(stored.values()) if f.name in keys]
        first, sequence = file.first_row_id, file.max_sequence_number
        is_newer = file.schema_id > context.schema.id
        return cls(list(stored.values()), position, constants, never_null, first, sequence, is_newer)

    def check_never_null(self, batch: pa.RecordBatch, path: str) -> None:
        for position in self.never_null:
            if nulls := batch.column(position).null_count:
                name = self.stored[position].name
                raise CorruptFile(path, f"column {name!r} without nulls", f"{nulls} in {batch.num_rows} rows")

    def column(
        self, wanted: DataField, batch: pa.RecordBatch, positions: pa.Array | None = None, path: str = ""
    ) -> pa.Array:
        """Return a wanted column.

        positions: the positions of the rows in the file, if they are needed.
        """
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
                whole, found = found, cast(found, stored.type, wanted.type)
                if self.is_newer:
                    _check_whole(whole, found, stored, wanted)
        if wanted.id in _TRACKED and found.null_count:
            return self._tracked(wanted, found, positions, path)
        return found

    def _tracked(self, wanted: DataField, stored: pa.Array, positions: pa.Array | None, path: str) -> pa.Array:
        """Fill in row ids or sequence numbers that the file does not store. Java: `io/DataFileRecordReader.java`.

        stored: the stored values, null for rows that get theirs from the file's metadata.
        """
        if wanted.id == SEQUENCE_FIELD.id:
            return pc.fill_null(stored, self.sequence_number)
        if self.first_row_id is None or positions is None:
            raise CorruptFile(path, "row ids, in the file or its manifest entry", "none; the row ids are lost")
        return pc.coalesce(stored, pc.add(positions, self.first_row_id))

    def chunk_filter(
        self, context: TableContext, predicate: PruningPredicate | None, rows: _Rows
    ) -> ChunkFilter | None:
        if predicate is None and rows.of_parts() is None:
            return None

        def keep(chunks: Bounds) -> NDArray[np.bool_] | None:
            kept = None
            if predicate is not None:
                kept = predicate.may_match(
                    lambda name: self.bounds(context.schema.by_name[name], chunks), context.schema.arrow
                )
            return rows.chunks(chunks("").row_count.to_numpy(), kept)

        return keep

    def bounds(self, wanted: DataField, chunks: Bounds) -> ColumnBounds:
        """Return the bounds of a column. They are unknown if the file stores the column with another type."""
        position = self.position.get(wanted.id)
        if position is not None and same_ignoring_nullability(self.stored[position].type, wanted.type):
            return chunks(self.stored[position].name)
        return ColumnBounds.unknown(arrow_type(wanted.type), chunks("").row_count)


def _check_whole(whole: pa.Array, narrowed: pa.Array, stored: DataField, wanted: DataField) -> None:
    """Raise BadInput if values of a column that was widened meanwhile don't fit: Java would wrap them."""
    if not (isinstance(stored.type, AtomicType) and isinstance(wanted.type, AtomicType)):
        return
    try:
        back = cast(narrowed, wanted.type, stored.type)
    except (BadInput, UnsupportedFeature):
        return
    is_lost = pc.not_equal(pc.is_null(back), pc.is_null(whole))
    if pa.types.is_floating(whole.type):  # NaN is not equal to itself
        whole, back = (pc.if_else(pc.is_nan(values), None, values) for values in (whole, back))
    if pc.any(pc.or_(is_lost, pc.fill_null(pc.not_equal(back, whole), False))).as_py():
        raise BadInput(
            f"column {wanted.name!r} was {wanted.type} when the table was opened, and is {stored.type} now, with "
            "values that don't fit the old type. Open the table again"
        )


def _partition_values(context: TableContext, partition: bytes | None) -> dict[int, pa.Scalar]:
    fields = context.schema.partition_fields
    if partition is None or not fields:
        return {}
    values = decode_rows([partition], [f.type for f in fields])
    return {f.id: column[0] for f, column in zip(fields, values, strict=True)}
