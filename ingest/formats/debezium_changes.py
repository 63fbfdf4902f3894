"""What a row change of Debezium means for a table: every rule about keys and images, in the open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from ingest.formats.base import Target
from ingest.formats.cells.json_text import BadValue, read_object
from ingest.formats.debezium_envelope import Envelope
from ingest.formats.debezium_shape import Column, Shape
from ingest.formats.record_key import key_members
from ingest.formats.replica_identity import says_more
from ingest.raw_batch import OLD_KEY_HEADER, Headers
from storage.format import RowKind
from storage.types import ArrayType, AtomicType, DataType, MapType, Root, RowType, VectorType


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """cells: in the table's order. flagged: columns whose old value must stay; their cells are None.
    old_key: the primary key it lies under, where the row has flagged columns and came from another key.
    """

    kind: RowKind
    cells: Sequence[object]
    flagged: tuple[str, ...] = ()
    old_key: Sequence[object] | None = None


def rows_of_change(envelope: Envelope, shape: Shape, key: bytes | None, headers: Headers) -> list[ChangedRow]:
    """The rows of a c, r, u or d, in the order they are to be written. Raises BadValue when it can't be read.

    key, headers: those of the record.
    """
    match envelope.op:
        case "u":
            return _rows_of_update(envelope, shape, headers)
        case "d":
            return [_deleted_row(envelope, shape, key)]
        case _:
            return [_new_row(envelope, RowKind.INSERT, shape, headers)]


def _new_row(envelope: Envelope, kind: RowKind, shape: Shape, headers: Headers) -> ChangedRow:
    members = _members(envelope.after, "after")
    if members is None:
        raise BadValue(f"op {envelope.op} without an after image")
    row = _row(kind, members, shape)
    header = dict(headers).get(OLD_KEY_HEADER)
    if header is None or not row.flagged:
        return row
    return replace(row, old_key=_old_key(shape, header, row.cells))


def _rows_of_update(envelope: Envelope, shape: Shape, headers: Headers) -> list[ChangedRow]:
    """+U alone, after -U where the target wants it, or -D and +I when the row moves to another key.

    Without a before image the update is an upsert: PostgreSQL's default replica identity sends none.
    """
    after = _new_row(envelope, RowKind.UPDATE_AFTER, shape, headers)
    before = _members(envelope.before, "before")
    if before is None:
        if shape.needs_old_images:
            raise BadValue(_needs_old_image(shape, "the update has no before image"))
        return [after]
    old_key = _left_key(before, after, shape)
    if old_key is not None:
        moved = replace(after, kind=RowKind.INSERT, old_key=old_key if after.flagged else None)
        return [_row(RowKind.DELETE, before, shape), moved]
    if shape.target.emit_update_before:
        return [_row(RowKind.UPDATE_BEFORE, before, shape), after]
    return [after]


def _left_key(before: Mapping[str, bytes], after: ChangedRow, shape: Shape) -> Sequence[object] | None:
    """The row's primary key in the before image, where it differs from the one in the other.

    A before image that lacks a key column says nothing about it. Nor does PostgreSQL's when the record's key names the
    row: Debezium makes two records of a key change, and a replica identity of another index leaves the key made up.
    """
    if not shape.primary_key or (shape.connector == "postgresql" and shape.key_names_the_row):
        return None
    old = [before.get(column.name, b"null") for column in shape.primary_key]
    if b"null" in old:
        return None
    old_key = [shape.read_cell(column, raw) for column, raw in zip(shape.primary_key, old, strict=True)]
    return old_key if old_key != [after.cells[place] for place in shape.primary_key_places] else None


def _deleted_row(envelope: Envelope, shape: Shape, key: bytes | None) -> ChangedRow:
    """The before image as it came, made-up values included: only the key counts, and NOT NULL columns need a value.

    Where columns order rows, they count as well, so values that are made up are refused.
    """
    before = _members(envelope.before, "before")
    if before is None:
        if shape.target.takes_values_back or shape.target.is_ordered_by_columns:
            raise BadValue(_needs_old_image(shape, "the delete has no before image"))
        named = {} if key is None else key_members(key)
        if not shape.primary_key or not named.keys() >= {column.name for column in shape.primary_key}:
            raise BadValue("a delete without a before image, and its key doesn't name a row of the table")
        before = {column.name: named[column.name] for column in shape.primary_key}
    elif shape.needs_old_images_of_deletes and not says_more(
        raw for name, raw in before.items() if name not in shape.key_columns
    ):
        raise BadValue(_needs_old_image(shape, "the delete knows no column outside its key"))
    return _row(RowKind.DELETE, before, shape)


def _needs_old_image(shape: Shape, what: str) -> str:
    if shape.target.takes_values_back:
        return (
            f"{what}, and {shape.target.name} aggregates: the old values can't be taken out of it again. Set REPLICA "
            "IDENTITY FULL at the source, or, where values are only ever to be added, the table option ignore-delete"
        )
    if not shape.needs_old_images:
        return (
            f"{what}, and columns say which row of {shape.target.name} is the newest (sequence.field, or sequence "
            "groups): the delete would count as the oldest, and the row would stay. Set REPLICA IDENTITY FULL at the "
            "source, or have a table without such columns"
        )
    wanted = ", ".join(column.name for column in shape.primary_key)
    given = ", ".join(sorted(shape.key_columns))
    return (
        f"{what}, and its key ({given}) is not the whole primary key ({wanted}) of {shape.target.name}: "
        "the old row can't be found. Set REPLICA IDENTITY FULL at the source"
    )


def _members(image: msgspec.Raw, which: str) -> dict[str, bytes] | None:
    if bytes(image) == b"null":
        return None
    try:
        return read_object(image)
    except BadValue as e:
        raise BadValue(f"{which} image: {e}") from None


def _row(kind: RowKind, members: Mapping[str, bytes], shape: Shape) -> ChangedRow:
    unknown = [name for name in members if name not in shape.by_name]
    if unknown:
        raise shape.unknown([(name,) for name in unknown])
    cells: list[object] = []
    flagged: list[str] = []
    for column in shape.columns:
        raw = members.get(column.name, b"null")
        cell: object = None
        if shape.placeholders.stands_for(raw):
            flagged.append(column.name)
        elif raw != b"null":
            cell = shape.read_cell(column, raw)
        if cell is None and not column.type.nullable and (column.in_primary_key or column.name not in flagged):
            cell = _instead_of_null(column, kind, shape.target)
        cells.append(cell)
    return ChangedRow(kind, cells, tuple(flagged))


def _instead_of_null(column: Column, kind: RowKind, target: Target) -> object:
    """A deleted row may lack all but its key; where the table wants a value, it gets one as empty as Debezium's own."""
    if kind is RowKind.DELETE and not column.in_primary_key:
        return _zero_value(column.type)
    role = "a column of the primary key" if column.in_primary_key else "NOT NULL"
    raise BadValue(f"column {column.name} has no value, and is {role} in {target.name}")


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


def _old_key(shape: Shape, header: bytes | None, cells: Sequence[object]) -> Sequence[object]:
    """The primary key that a row had. Columns that the header leaves out are taken from the row.

    Raises BadValue when the header can't be read: what did not change would then be looked for in the wrong row.
    """
    try:
        members = key_members(header or b"")
    except BadValue as e:
        raise BadValue(f"header {OLD_KEY_HEADER}, needed to find values that did not change: {e}") from None
    return [
        shape.read_cell(column, members[column.name]) if column.name in members else cells[place]
        for column, place in zip(shape.primary_key, shape.primary_key_places, strict=True)
    ]
