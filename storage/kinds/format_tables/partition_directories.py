"""Finds the partition directories of a format table, and the data files below a directory.

Names that begin with `_` or `.` are not data: writers use them for uncommitted files.

Source: Java `table/format/FormatTableScan.java`, `utils/PartitionPathUtils.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.files.stats_collection import Bounds, ColumnBounds
from tidelake.storage.files.string_casts import from_text
from tidelake.storage.model.paths import (
    escape_partition_text,
    parse_partition_path,
    partition_directory_name,
    unescape_partition_text,
)
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import STRING_ROOTS, AtomicType, DataField, arrow_type
from tidelake.storage.model.types.partition_text import partition_texts
from tidelake.storage.read.predicate import Predicate


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a format table.

    location: its directory. For a table without partitions this is the directory of the table.
    values: the values of the partition columns, in their order.
    """

    location: str
    values: tuple[pa.Scalar, ...] = field(default=())


def partition_location(context: TableContext, values: Sequence[pa.Scalar]) -> str:
    """Return the directory of a partition. Raises BadInput for a text that would be read as NULL.

    values: the values of the partition columns.
    """
    fields, options = context.schema.partition_fields, context.options
    texts = partition_texts(values, [f.type for f in fields], options.partition_legacy_name)
    parts = []
    for column, text in zip(fields, texts, strict=True):
        shown = options.partition_default_name if text is None else text
        if text is not None and (not text.strip() or text == options.partition_default_name):
            raise BadInput(
                f"{context.name}: the value {text!r} of partition column {column.name!r} means NULL in a directory's "
                "name, and would be read as NULL; write NULL, or another value"
            )
        if is_values_only(context):
            parts.append(escape_partition_text(shown))
        else:
            parts.append(partition_directory_name(column.name, shown))
    return "/".join((context.location, *parts))


def is_values_only(context: TableContext) -> bool:
    """Return whether the name of a directory is only the value: `2025` instead of `year=2025`."""
    return context.options.is_on("format-table.partition-path-only-value")


def list_partitions(context: TableContext, predicate: Predicate | None = None) -> list[Partition]:
    """Return the partitions whose rows may match the predicate, sorted by directory.

    Directories with other forms of names are ignored. Raises CorruptFile for a name that is not a value of its column.
    """
    found = [Partition(context.location)]
    for depth, column in enumerate(context.schema.partition_fields):
        found = [deeper for partition in found for deeper in _below(context, partition, column)]
        found = _matching_partitions(context, found, depth + 1, predicate)
    return sorted(found, key=lambda partition: partition.location)


def list_files(context: TableContext, location: str) -> list[str]:
    """Return the data files below a directory, sorted."""
    found = []
    for entry in context.io.list_directory(location):
        if is_hidden(entry.name):
            continue
        path = f"{location}/{entry.name}"
        if entry.is_directory:
            found += list_files(context, path)
        else:
            found.append(path)
    return sorted(found)


def is_hidden(name: str) -> bool:
    """Return whether the name is not that of data."""
    return name.startswith(("_", "."))


def _below(context: TableContext, partition: Partition, column: DataField) -> Iterator[Partition]:
    default = context.options.partition_default_name
    for entry in context.io.list_directory(partition.location):
        if not entry.is_directory:
            continue
        location = f"{partition.location}/{entry.name}"
        if is_values_only(context):
            if is_hidden(entry.name) and entry.name != default:
                continue
            text = unescape_partition_text(entry.name)
        else:
            try:
                named = parse_partition_path(entry.name)
            except BadInput:
                continue
            if column.name not in named:
                continue
            text = named[column.name]
        yield Partition(location, (*partition.values, _value(text, column, location, default)))


def _value(text: str, column: DataField, location: str, default: str) -> pa.Scalar:
    kind = arrow_type(column.type)
    if text == default:
        return pa.scalar(None, kind)
    if column.type.root in STRING_ROOTS:
        return pa.scalar(text, kind)
    assert isinstance(column.type, AtomicType)
    try:
        value = from_text(pa.array([text], pa.string()), column.type)[0]
    except BadInput:
        value = pa.scalar(None, kind)
    if not value.is_valid:
        raise CorruptFile(location, f"a value of partition column {column.name!r}, {column.type}", repr(text))
    return value


def _matching_partitions(
    context: TableContext, found: Sequence[Partition], depth: int, predicate: Predicate | None
) -> list[Partition]:
    """Return the partitions that may match, by the first `depth` partition columns. The others are not known yet."""
    columns = context.schema.partition_fields[:depth]
    within = None if predicate is None else predicate.within(frozenset(column.name for column in columns))
    if within is None or not found:
        return list(found)
    kept = within.may_match(_bounds(columns, found), pa.schema([(c.name, arrow_type(c.type)) for c in columns]))
    return list(found) if kept is None else [p for p, keep in zip(found, kept, strict=True) if keep]


def _bounds(columns: Sequence[DataField], found: Sequence[Partition]) -> Bounds:
    one = pa.array([1] * len(found), pa.int64())

    def of(name: str) -> ColumnBounds:
        place = [column.name for column in columns].index(name)
        kind = arrow_type(columns[place].type)
        values = pa.concat_arrays([pa.repeat(p.values[place], 1) for p in found]).cast(kind)
        return ColumnBounds(
            values, values, pa.array([int(not p.values[place].is_valid) for p in found], pa.int64()), one
        )

    return of
