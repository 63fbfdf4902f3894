"""The rules for Debezium's row changes: which rows a record writes to a table, by its key and images.

A before image may know no more than the key. Without REPLICA IDENTITY FULL, PostgreSQL logs only the key of an old row.
Debezium then fills the other columns with nulls, and NOT NULL columns with made-up values: "", 0, false,
1970-01-01T00:00:00Z.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from tidelake.ingest.formats.changed_row import ChangedRow, changed_row
from tidelake.ingest.formats.debezium.cells import has_cells, image_without_cells, raw_object, without_cells
from tidelake.ingest.formats.debezium.debezium_envelope import OLD_KEY_HEADER, DebeziumEnvelope
from tidelake.ingest.formats.debezium.record_key import key_members
from tidelake.ingest.formats.record_schema import RecordSchema
from tidelake.ingest.formats.values.json_text import BadValue, read_object
from tidelake.ingest.raw_batch import Headers
from tidelake.storage.model.format import RowKind

_PLACEHOLDER_VALUE: Final = re.compile(
    rb'null|false|\[\]|\{\}|"?-?0*(?:\.0*)?(?:E[+-]?\d+)?"?'  # empty values, or zero as a number or a text
    rb'|"A+={0,2}"'  # base64 of zero bytes
    rb'|"1970-01-01(?:[T ]00:00:00(?:\.0+)?)?Z?"|"00:00:00(?:\.0+)?Z?"'
    rb'|"00000000-0000-0000-0000-000000000000"'
)


def has_values_outside_key(values_outside_key: Iterable[bytes]) -> bool:
    """Return whether any raw JSON value is certainly not made up. A row with zeros only counts as made up."""
    return any(_PLACEHOLDER_VALUE.fullmatch(raw) is None for raw in values_outside_key)


def decode_change(
    envelope: DebeziumEnvelope, record_schema: RecordSchema, key: bytes | None, headers: Headers
) -> list[ChangedRow]:
    """Return the rows of a record with op c, r, u or d, in the order in which they must be written.

    key: the record's key.
    headers: the record's headers.

    Raises BadValue for a record that can't be decoded.
    """
    unset: frozenset[str] = frozenset()
    if has_cells(record_schema.connector):
        before, _ = image_without_cells(envelope.before, "before")
        after, unset = image_without_cells(envelope.after, "after")
        envelope = msgspec.structs.replace(envelope, before=before, after=after)
        key = None if key is None else bytes(raw_object(without_cells(key_members(key), "key")[0]))
    if record_schema.target.key_columns:
        envelope = _with_key_columns(envelope, record_schema.target.key_columns, key)
    match envelope.op:
        case "u":
            return _rows_of_update(envelope, record_schema, headers, unset)
        case "d":
            return [_deleted_row(envelope, record_schema, key)]
        case _:
            return [_new_row(envelope, RowKind.INSERT, record_schema, headers)]


def _with_key_columns(envelope: DebeziumEnvelope, names: Sequence[str], key: bytes | None) -> DebeziumEnvelope:
    """Return the record with these columns of its key in both images."""
    members = {} if key is None else key_members(key)
    missing = [name for name in names if name not in members]
    if missing:
        raise BadValue(f"the record's key has no column {', '.join(missing)}, which `key_columns` names")

    def completed(image: msgspec.Raw, which: str) -> msgspec.Raw:
        found = _members(image, which)
        return image if found is None else raw_object({**found, **{name: members[name] for name in names}})

    return msgspec.structs.replace(
        envelope, before=completed(envelope.before, "before"), after=completed(envelope.after, "after")
    )


def _new_row(
    envelope: DebeziumEnvelope,
    kind: RowKind,
    record_schema: RecordSchema,
    headers: Headers,
    unset: frozenset[str] = frozenset(),
) -> ChangedRow:
    members = _members(envelope.after, "after")
    if members is None:
        raise BadValue(f"op {envelope.op} has no after image")
    row = changed_row(kind, members, record_schema, unset)
    header = dict(headers).get(OLD_KEY_HEADER)
    if header is None or not row.flagged:
        return row
    return replace(row, old_key=_old_key(record_schema, header, row.cells))


def _rows_of_update(
    envelope: DebeziumEnvelope, record_schema: RecordSchema, headers: Headers, unset: frozenset[str]
) -> list[ChangedRow]:
    """Return the rows of an update.

    They are one +U row, with a -U row before it if the target needs it. If the primary key changes, they are a -D row
    and a +I row. An update without a before image is an upsert: PostgreSQL's default replica identity sends none.
    """
    after = _new_row(envelope, RowKind.UPDATE_AFTER, record_schema, headers, unset)
    before = _members(envelope.before, "before")
    if before is None:
        if record_schema.needs_old_images:
            raise BadValue(_needs_old_image(record_schema, "the update has no before image"))
        return [after]
    old_key = _old_key_if_changed(before, after, record_schema)
    if old_key is not None:
        moved = replace(after, kind=RowKind.INSERT, old_key=old_key if after.flagged else None)
        return [changed_row(RowKind.DELETE, before, record_schema), moved]
    if record_schema.target.emit_update_before:
        return [changed_row(RowKind.UPDATE_BEFORE, before, record_schema), after]
    return [after]


def _old_key_if_changed(
    before: Mapping[str, bytes], after: ChangedRow, record_schema: RecordSchema
) -> Sequence[object] | None:
    """Return the primary key in the before image if it differs from the key in the after image, else None.

    The result is None in two more cases:

    - The before image lacks a column of the primary key.
    - The connector is PostgreSQL's, and the record's key has the whole primary key. Then Debezium sends a key change as
      two records. If the replica identity is another index, the key in the before image is made up.
    """
    if not record_schema.primary_key or (record_schema.connector == "postgresql" and record_schema.key_has_primary_key):
        return None
    old = [before.get(column.name, b"null") for column in record_schema.primary_key]
    if b"null" in old:
        return None
    old_key = [
        record_schema.read_value(column, raw) for column, raw in zip(record_schema.primary_key, old, strict=True)
    ]
    return old_key if old_key != [after.cells[place] for place in record_schema.primary_key_places] else None


def _deleted_row(envelope: DebeziumEnvelope, record_schema: RecordSchema, key: bytes | None) -> ChangedRow:
    """Return the row of a delete from the before image, else from the record's key.

    The before image may contain made-up values. Normally only its key matters, and NOT NULL columns need some value. If
    the target needs more old values than the key, a before image whose values may all be made up is refused.
    """
    before = _members(envelope.before, "before")
    if before is None:
        if record_schema.target.needs_retractions or record_schema.target.is_ordered_by_columns:
            raise BadValue(_needs_old_image(record_schema, "the delete has no before image"))
        named = {} if key is None else key_members(key)
        if not record_schema.primary_key or not named.keys() >= {column.name for column in record_schema.primary_key}:
            raise BadValue("the delete has no before image, and its key does not identify a row of the table")
        before = {column.name: named[column.name] for column in record_schema.primary_key}
    elif record_schema.needs_old_images_of_deletes and not has_values_outside_key(
        raw for name, raw in before.items() if name not in record_schema.key_columns
    ):
        raise BadValue(_needs_old_image(record_schema, "the before image of the delete has only columns of the key"))
    return changed_row(RowKind.DELETE, before, record_schema)


def _needs_old_image(record_schema: RecordSchema, what: str) -> str:
    if record_schema.target.needs_retractions:
        return (
            f"{what}, but {record_schema.target.name} aggregates, so its old values must be retracted. Set REPLICA "
            "IDENTITY FULL at the source. If values are only added and never retracted, set the table option "
            "ignore-delete"
        )
    if not record_schema.needs_old_images:
        return (
            f"{what}, but columns decide which row of {record_schema.target.name} is the newest (sequence.field, or "
            "sequence groups): the delete would count as the oldest row, and would not delete anything. Set REPLICA "
            "IDENTITY FULL at the source, or use a table without such columns"
        )
    wanted = ", ".join(column.name for column in record_schema.primary_key)
    given = ", ".join(sorted(record_schema.key_columns))
    return (
        f"{what}, and its key ({given}) does not have the whole primary key ({wanted}) of "
        f"{record_schema.target.name}: the old row can't be found. Set REPLICA IDENTITY FULL at the source"
    )


def _members(image: msgspec.Raw, which: str) -> dict[str, bytes] | None:
    if bytes(image) == b"null":
        return None
    try:
        return read_object(image)
    except BadValue as e:
        raise BadValue(f"{which} image: {e}") from None


def _old_key(record_schema: RecordSchema, header: bytes | None, values: Sequence[object]) -> Sequence[object]:
    """Return the primary key that a moved row had. Columns that are missing in the header are taken from the row.

    Raises BadValue for an unreadable header: unavailable values would then be looked up in the wrong row.
    """
    try:
        members = key_members(header or b"")
    except BadValue as e:
        raise BadValue(f"header {OLD_KEY_HEADER}, which is needed to find values that did not change: {e}") from None
    return [
        record_schema.read_value(column, members[column.name]) if column.name in members else values[place]
        for column, place in zip(record_schema.primary_key, record_schema.primary_key_places, strict=True)
    ]
