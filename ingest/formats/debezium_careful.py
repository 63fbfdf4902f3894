"""One record at a time: every rule about Debezium records in the open, and a reason for each that can't be decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from ingest.formats.base import Failure, FailureKind, Skipped, Target
from ingest.formats.cells.json_text import BadValue, read_object
from ingest.formats.debezium_envelope import (
    ROW_OPS,
    TRUNCATE_OP,
    Envelope,
    kind_of_control,
    read_envelope,
    split_schema,
)
from ingest.formats.debezium_shape import Column, Shape, UnknownColumns
from ingest.formats.decoded_piece import Piece
from ingest.formats.record_key import key_members
from ingest.formats.replica_identity import says_more
from ingest.formats.source_table import SourceTable
from ingest.raw_batch import OLD_KEY_HEADER, Headers
from storage.format import RowKind
from storage.types import ArrayType, AtomicType, DataType, MapType, Root, RowType, VectorType

ShapeOf: TypeAlias = Callable[[SourceTable, str, bytes | None, bytes | None], Shape | None]
"""(source table, connector, schema JSON, key) to the shape; None where the table goes nowhere."""


@dataclass(slots=True)
class RowsOfTarget:
    """Rows as they are found, cells by column."""

    target: Target
    rows: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    cells: list[list[object]] = field(default_factory=list)
    flagged: list[tuple[str, ...]] = field(default_factory=list)
    old_keys: dict[int, list[object]] = field(default_factory=dict)

    def piece(self) -> Piece:
        flags: dict[str, Any] = {}
        for row, names in enumerate(self.flagged):
            for name in names:
                flags.setdefault(name, np.zeros(len(self.rows), np.bool_))[row] = True
        fields = self.target.schema.arrow
        columns = [
            pa.array(list(cells), f.type) for cells, f in zip(zip(*self.cells, strict=True), fields, strict=True)
        ]
        return Piece(
            self.target, np.array(self.rows, np.int64), np.array(self.kinds, np.int8), columns, flags, self.old_keys
        )


@dataclass(frozen=True, slots=True)
class _Image:
    """One row image: cells in the table's order, and the columns whose old value must stay."""

    cells: list[object]
    flagged: tuple[str, ...]


class CarefulReader:
    """Collects what a run of records of one topic gives. `shape_of` is asked for each row change."""

    def __init__(self, topic: str, shape_of: ShapeOf, fail_on_truncate: bool) -> None:
        self._topic = topic
        self._shape_of = shape_of
        self._fail_on_truncate = fail_on_truncate
        self.by_target: dict[str, RowsOfTarget] = {}
        self.failures: list[Failure] = []
        self.skipped: dict[Skipped, int] = {}
        self.unrouted: dict[SourceTable, int] = {}

    def read(self, row: int, offset: int, key: bytes | None, value: bytes, headers: Headers) -> None:
        """Adds the record's rows, or counts it, or adds a failure; never raises for what it holds."""
        source: SourceTable | None = None
        try:
            schema, payload = split_schema(value)
            envelope = read_envelope(payload)
            source = envelope.source.source_table(self._topic)
            skipped = self._rows_or_skip(envelope, payload, source, schema, key, headers, row)
        except UnknownColumns as e:
            self.failures.append(Failure(row, offset, FailureKind.UNKNOWN_COLUMN, str(e), source, e.columns))
        except _Truncated as e:
            self.failures.append(Failure(row, offset, FailureKind.TRUNCATE, str(e), source))
        except BadValue as e:
            self.failures.append(Failure(row, offset, FailureKind.BAD_RECORD, str(e), source))
        else:
            if skipped is not None:
                self.skipped[skipped] = self.skipped.get(skipped, 0) + 1
            if skipped is Skipped.UNROUTED:
                self.unrouted.setdefault(source, row)

    def _rows_or_skip(
        self,
        envelope: Envelope,
        payload: bytes | msgspec.Raw,
        source: SourceTable,
        schema: bytes | None,
        key: bytes | None,
        headers: Headers,
        row: int,
    ) -> Skipped | None:
        if envelope.op != TRUNCATE_OP and envelope.op not in ROW_OPS:
            return kind_of_control(envelope, payload)
        shape = self._shape_of(source, envelope.source.connector or "", schema, key)
        if shape is None:
            return Skipped.UNROUTED
        if envelope.op == TRUNCATE_OP:
            if self._fail_on_truncate:
                raise _Truncated(source, shape.target)
            return Skipped.TRUNCATE
        images = rows_of_change(envelope, shape, key)
        found = self.by_target.setdefault(shape.target.name, RowsOfTarget(shape.target))
        for kind, image in images:
            if image.flagged and (old_key := _old_key(shape, image, headers)) is not None:
                found.old_keys[len(found.rows)] = old_key
            found.rows.append(row)
            found.kinds.append(kind)
            found.cells.append(image.cells)
            found.flagged.append(image.flagged)
        return None


class _Truncated(BadValue):
    def __init__(self, source: SourceTable, target: Target) -> None:
        super().__init__(
            f"the source emptied {source}; {target.name} still has its rows. Delete them, or leave them and skip "
            "truncates (truncates: skip)"
        )


# ---------------------------------------------------------------- row changes


def rows_of_change(envelope: Envelope, shape: Shape, key: bytes | None) -> list[tuple[RowKind, _Image]]:
    """The rows of a c, r, u or d, in the order they are to be written. Raises BadValue when it can't be read."""
    match envelope.op:
        case "u":
            return _rows_of_update(envelope, shape, key)
        case "d":
            return [(RowKind.DELETE, _deleted_row(envelope, shape, key))]
        case _:
            return [(RowKind.INSERT, _new_row(envelope, shape))]


def _new_row(envelope: Envelope, shape: Shape) -> _Image:
    members = _members(envelope.after, "after")
    if members is None:
        raise BadValue(f"op {envelope.op} without an after image")
    return _image(members, shape)


def _rows_of_update(envelope: Envelope, shape: Shape, key: bytes | None) -> list[tuple[RowKind, _Image]]:
    """+U alone, after -U where the target wants it, or -D and +I when the row moves to another key.

    Without a before image the update is an upsert: PostgreSQL's default replica identity sends none.
    """
    after = _new_row(envelope, shape)
    before = _members(envelope.before, "before")
    if before is None:
        if shape.needs_old_images:
            raise BadValue(_cant_find_old_row(shape, "the update has no before image"))
        return [(RowKind.UPDATE_AFTER, after)]
    if _moves(before, after, shape):
        return [(RowKind.DELETE, _image(before, shape, deleted=True)), (RowKind.INSERT, after)]
    if shape.target.emit_update_before:
        return [(RowKind.UPDATE_BEFORE, _image(before, shape)), (RowKind.UPDATE_AFTER, after)]
    return [(RowKind.UPDATE_AFTER, after)]


def _moves(before: Mapping[str, bytes], after: _Image, shape: Shape) -> bool:
    """Whether the row's primary key differs between the images.

    A before image that lacks a key column says nothing about it. Nor does PostgreSQL's when the record's key names the
    row: Debezium makes two records of a key change, and a replica identity of another index leaves the key made up.
    """
    if not shape.primary_key or (shape.connector == "postgresql" and shape.key_names_the_row):
        return False
    old = [before.get(column.name, b"null") for column in shape.primary_key]
    if b"null" in old:
        return False
    places = [shape.target.schema.names.index(column.name) for column in shape.primary_key]
    return [shape.read_cell(c, raw) for c, raw in zip(shape.primary_key, old, strict=True)] != [
        after.cells[place] for place in places
    ]


def _deleted_row(envelope: Envelope, shape: Shape, key: bytes | None) -> _Image:
    """The before image as it came, made-up values included: only the key counts, and NOT NULL columns need a value."""
    before = _members(envelope.before, "before")
    if before is None:
        named = {} if key is None else key_members(key)
        if not shape.primary_key or not named.keys() >= {column.name for column in shape.primary_key}:
            raise BadValue("a delete without a before image, and its key doesn't name a row of the table")
        return _image({c.name: named[c.name] for c in shape.primary_key}, shape, deleted=True)
    if shape.needs_old_images and not says_more(raw for name, raw in before.items() if name not in shape.key_columns):
        raise BadValue(_cant_find_old_row(shape, "the delete knows no column outside its key"))
    return _image(before, shape, deleted=True)


def _cant_find_old_row(shape: Shape, what: str) -> str:
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


def _image(members: Mapping[str, bytes], shape: Shape, deleted: bool = False) -> _Image:
    unknown = [name for name in members if name not in shape.by_name]
    if unknown:
        raise UnknownColumns(unknown, shape.target.name)
    cells: list[object] = []
    flagged: list[str] = []
    for column in shape.columns:
        raw = members.get(column.name, b"null")
        cell: object = None
        if raw != b"null":
            if shape.placeholders.stands_for(raw):
                flagged.append(column.name)
            else:
                cell = shape.read_cell(column, raw)
        if cell is None and not column.type.nullable and (column.in_primary_key or column.name not in flagged):
            cell = _instead_of_null(column, deleted, shape.target)
        cells.append(cell)
    return _Image(cells, tuple(flagged))


def _instead_of_null(column: Column, deleted: bool, target: Target) -> object:
    """A deleted row may lack all but its key; where the table wants a value, it gets one as empty as Debezium's own."""
    if deleted and not column.in_primary_key:
        return zero_value(column.type)
    role = "a column of the primary key" if column.in_primary_key else "NOT NULL"
    raise BadValue(f"column {column.name} has no value, and is {role} in {target.name}")


def zero_value(type_: DataType) -> object:
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
            return [zero_value(type_.element)] * type_.length
        case ArrayType() | MapType():
            return []
        case RowType():
            return {f.name: None if f.type.nullable else zero_value(f.type) for f in type_.fields}
        case _:
            raise BadValue(f"{type_} has no empty value")


def _old_key(shape: Shape, image: _Image, headers: Headers) -> list[object] | None:
    """The primary key that a row had, when the record says that it came from another one.

    Columns that the header leaves out are taken from the row. Raises BadValue when the header can't be read: the values
    that did not change would then be looked for in the wrong row.
    """
    header = dict(headers).get(OLD_KEY_HEADER)
    if header is None:
        return None
    try:
        members = key_members(header)
    except BadValue as e:
        raise BadValue(f"header {OLD_KEY_HEADER}, needed to find values that did not change: {e}") from None
    places = [shape.target.schema.names.index(column.name) for column in shape.primary_key]
    return [
        shape.read_cell(column, members[column.name]) if column.name in members else image.cells[place]
        for column, place in zip(shape.primary_key, places, strict=True)
    ]
