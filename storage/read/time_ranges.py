"""Finds times in existing rows that a finer timestamp type of their column can't hold.

A TIMESTAMP(7) to TIMESTAMP(9) is held in 64 bits of nanoseconds here, which reach from 1677 to 2262. A column of
another precision may have other times. With a finer type its rows could not be read, merged or compacted any more. Java
holds milliseconds and nanoseconds apart, and has no such limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.files.bucket_directory import all_paths, bucket_directory
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.files.statistics import value_bounds
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import (
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    RowType,
    timestamp_unit,
)

_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_YEARS: Final = {"ms": "the years of 64 bits of milliseconds", "us": "-290308 to 294247", "ns": "1677 to 2262"}


def has_finer_times(current: TableSchema, evolved: TableSchema) -> bool:
    """Return whether a timestamp of the schema, or inside its columns, gets a finer unit."""
    return any(_finer_columns(current, evolved))


def check_times_fit(context: TableContext, evolved: TableSchema) -> None:
    """Raise BadInput if the newest snapshot has a time that a finer type of the evolved schema can't hold.

    context: the table with its current schema.

    The bounds in manifests are used. A file without bounds of the column is read.
    """
    snapshot = context.snapshots.latest() if has_finer_times(context.schema, evolved) else None
    if snapshot is None:
        return
    for column, new, value in _misfits(context, live_entries(context, snapshot), evolved):
        raise BadInput(
            f"column {column.name!r}: {_reason(column, new, value)}. Keep the type and round finer values, or correct "
            "these rows, compact the table in full (`table.compact(full=True)`), and change the type then"
        )


def unreadable_times(context: TableContext, snapshot: Snapshot) -> Iterator[str]:
    """Yield why columns of the snapshot can't be read: files of older schemas have times that the new type can't hold.

    context: the table with the schema to read with.
    """
    of_schema: dict[int, list[ManifestEntry]] = {}
    for entry in live_entries(context, snapshot):
        of_schema.setdefault(entry.file.schema_id, []).append(entry)
    for schema_id, entries in of_schema.items():
        written = context.with_schema(context.schemas.get(schema_id))
        for column, new, value in _misfits(written, entries, context.schema):
            yield f"column {column.name!r}: {_reason(column, new, value)}"


def _misfits(
    context: TableContext, entries: Sequence[ManifestEntry], evolved: TableSchema
) -> Iterator[tuple[DataField, DataType, pa.Scalar]]:
    """Yield each column with a time that its type in `evolved` can't hold, that type, and one such time.

    context: its schema is the one to read the files with.
    """
    for column, new in _finer_columns(context.schema, evolved):
        values = (value for pair in _ranges(context, entries, column) for value in pair)
        misfit = next((v for v in values if v is not None and not _fits(v, column.type, new)), None)
        if misfit is not None:
            yield column, new, misfit


def _finer_columns(current: TableSchema, evolved: TableSchema) -> Iterator[tuple[DataField, DataType]]:
    """Yield columns with a timestamp that gets a finer unit, and their new types."""
    for column in current.fields:
        new = evolved.by_id.get(column.id)
        if new is not None and any(_factor(*pair) > 1 for pair in _time_pairs(column.type, new.type)):
            yield column, new.type


def _time_pairs(old: DataType, new: DataType) -> Iterator[tuple[AtomicType, AtomicType]]:
    """Yield the timestamps inside a type, before and after."""
    match old, new:
        case AtomicType(), AtomicType() if old.root in TIMESTAMP_ROOTS and new.root in TIMESTAMP_ROOTS:
            yield old, new
        case ArrayType(), ArrayType():
            yield from _time_pairs(old.element, new.element)
        case MapType(), MapType():
            yield from _time_pairs(old.key, new.key)
            yield from _time_pairs(old.value, new.value)
        case RowType(), RowType():
            of_id = {field.id: field for field in new.fields}
            for field in old.fields:
                if field.id in of_id:
                    yield from _time_pairs(field.type, of_id[field.id].type)


def _factor(old: AtomicType, new: AtomicType) -> int:
    return _PER_SECOND[timestamp_unit(new.precision)] // _PER_SECOND[timestamp_unit(old.precision)]


def _ranges(
    context: TableContext, entries: Sequence[ManifestEntry], column: DataField
) -> Iterator[tuple[pa.Scalar | None, pa.Scalar | None]]:
    """Yield ranges that contain all values of the column, of several files each."""
    unknown = list(entries)
    if isinstance(column.type, AtomicType) and entries:
        bounds = value_bounds(context, [entry.file for entry in entries])(column.name)
        all_null = pc.fill_null(pc.equal(bounds.null_count, bounds.row_count), False).to_pylist()
        known = pc.and_(bounds.minimum.is_valid(), bounds.maximum.is_valid()).to_pylist()
        unknown = [entry for entry, a, b in zip(entries, known, all_null, strict=True) if not a and not b]
        yield pc.min(bounds.minimum), pc.max(bounds.maximum)
    for entry in unknown:
        path = all_paths(bucket_directory(context, *entry.bucket_id), entry.file)[0]
        for batch in read_data_file(context, entry.file, path, [column], partition=entry.partition):
            for leaf in _leaves(batch.column(0)):
                found = pc.min_max(leaf)
                yield found["min"], found["max"]


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    """Yield the timestamps in a column or inside its values."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        yield column
    elif pa.types.is_map(kind):
        yield from _leaves(column.keys)
        yield from _leaves(column.items)
    elif pa.types.is_struct(kind):
        for child in column.flatten():
            yield from _leaves(child)
    elif pa.types.is_nested(kind):
        yield from _leaves(column.flatten())


def _fits(value: pa.Scalar, old: DataType, new: DataType) -> bool:
    if not value.is_valid:
        return True
    per_second = {_PER_SECOND[timestamp_unit(o.precision)]: _factor(o, n) for o, n in _time_pairs(old, new)}
    factor = max(1, per_second.get(_PER_SECOND[value.type.unit], 1))
    return bool(-(1 << 63) <= value.value * factor < 1 << 63)


def _reason(column: DataField, new: DataType, value: pa.Scalar) -> str:
    unit = max((timestamp_unit(n.precision) for _, n in _time_pairs(column.type, new)), key=_PER_SECOND.__getitem__)
    return f"rows have times such as {_shown(value)}, and {new} holds only {_YEARS[unit]}"


def _shown(value: pa.Scalar) -> str:
    seconds, rest = divmod(value.value, _PER_SECOND[value.type.unit])
    try:
        return str(pa.scalar(seconds, pa.timestamp("s")).cast(pa.string()).as_py()) + ("" if not rest else " and more")
    except (pa.ArrowInvalid, OverflowError):
        return f"{seconds} seconds since 1970"
