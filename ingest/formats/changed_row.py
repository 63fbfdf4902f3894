"""Reads one row of a change record from its row image, column by column."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tidelake.ingest.formats.base import Target
from tidelake.ingest.formats.record_schema import RecordColumn, RecordSchema
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.storage.model.format import RowKind
from tidelake.storage.model.types import ArrayType, AtomicType, DataType, MapType, Root, RowType, VectorType


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """One row of a change record.

    cells: its values, in the table's column order.
    flagged: columns that the record left out because their value did not change; their values in `cells` are None.
    old_key: for a moved row with flagged columns, the primary key under which the old values are stored.
    """

    kind: RowKind
    cells: Sequence[object]
    flagged: tuple[str, ...] = ()
    old_key: Sequence[object] | None = None


def changed_row(
    kind: RowKind, members: Mapping[str, bytes], record_schema: RecordSchema, left_out: Collection[str] = ()
) -> ChangedRow:
    """Return the row of a row image.

    members: column name to raw JSON; missing columns are null.
    left_out: columns that are missing because their value did not change.

    Raises UnknownColumns, NarrowColumns, or BadValue with the column's name.
    """
    ignored = record_schema.target.ignored_columns
    unknown = [name for name in members if name not in record_schema.by_name and name not in ignored]
    if unknown:
        raise record_schema.unknown([(name,) for name in unknown])
    cells: list[object] = []
    flagged: list[str] = []
    for column in record_schema.columns:
        raw = members.get(column.name, b"null")
        cell: object = None
        if column.name in left_out or record_schema.placeholders.is_placeholder(raw):
            flagged.append(column.name)
        elif raw != b"null":
            cell = record_schema.read_value(column, raw)
        if cell is None and not column.type.nullable and (column.in_primary_key or column.name not in flagged):
            cell = _default_for_null(column, kind, record_schema.target)
        cells.append(cell)
    return ChangedRow(kind, cells, tuple(flagged))


def _default_for_null(column: RecordColumn, kind: RowKind, target: Target) -> object:
    """Return the value of a NOT NULL column that has none in the record.

    A delete may lack all columns but its key. A NOT NULL column then gets an empty value, as Debezium itself sends it.

    Raises BadValue for a column of the primary key, and for all records other than deletes.
    """
    if kind is RowKind.DELETE and not column.in_primary_key:
        return _zero_value(column.type)
    role = "a column of the primary key" if column.in_primary_key else "NOT NULL"
    raise BadValue(f"column {column.name} has no value, but is {role} in {target.name}")


def _zero_value(type_: DataType) -> object:
    match type_:
        case AtomicType(root=Root.CHAR | Root.VARCHAR):
            return ""
        case AtomicType(root=Root.BINARY | Root.VARBINARY | Root.BLOB):
            return b""
        case AtomicType(root=Root.BOOLEAN):
            return False
        case AtomicType():
            return 0
        case VectorType():
            return [_zero_value(type_.element)] * type_.length
        case ArrayType() | MapType():
            return []
        case RowType():
            return {f.name: None if f.type.nullable else _zero_value(f.type) for f in type_.fields}
        case _:
            raise BadValue(f"{type_} has no empty value")
