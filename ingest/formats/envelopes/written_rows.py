"""The rules for changes of rows: which rows a change writes to a table, by its key and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidelake.ingest.formats.changed_row import ChangedRow, changed_row
from tidelake.ingest.formats.envelopes.envelope import ChangeEvent, Op
from tidelake.ingest.formats.envelopes.omitted_columns import Omitted, OmittedColumns
from tidelake.ingest.formats.record_schema import RecordSchema
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.storage.model.format import RowKind


def rows_of_change(change: ChangeEvent, record_schema: RecordSchema, omitted: OmittedColumns) -> Sequence[ChangedRow]:
    """Return the rows of a change, in the order in which they must be written.

    omitted: the rule for columns that an update leaves out.

    Raises BadValue for a change that can't be decoded, or lacks values that the table needs.
    """
    before, after = _known(change.before, record_schema), _known(change.after, record_schema)
    match change.op:
        case Op.UPDATE if after is not None:
            return _rows_of_update(replace(change, before=before), after, record_schema, omitted)
        case Op.UPDATE_AFTER if after is not None:
            return [_new_row(replace(change, before=before), after, record_schema, omitted)]
        case Op.INSERT if after is not None:
            return [changed_row(RowKind.INSERT, after, record_schema)]
        case Op.DELETE | Op.UPDATE_BEFORE if before is not None:
            _check_old_row(change, before, record_schema)
            kind = RowKind.DELETE if change.op is Op.DELETE else RowKind.UPDATE_BEFORE
            return [changed_row(kind, before, record_schema)]
        case _:
            raise BadValue(f"a row of {change.op.name} has no image")


def _known(members: Mapping[str, bytes] | None, record_schema: RecordSchema) -> Mapping[str, bytes] | None:
    """Return the members without unknown ones, if the record declares the columns of its table."""
    if members is None or not record_schema.declared:
        return members
    names = record_schema.declared.keys() | record_schema.by_name.keys()
    return {name: raw for name, raw in members.items() if name in names}


def _rows_of_update(
    change: ChangeEvent, after: Mapping[str, bytes], record_schema: RecordSchema, omitted: OmittedColumns
) -> Sequence[ChangedRow]:
    """Return the rows of an update.

    They are one +U row, with a -U row before it if the target needs it. If the primary key changes, they are a -D row
    and a +I row. An update without an old image is an upsert.
    """
    target, before = record_schema.target, change.before
    new = _new_row(change, after, record_schema, omitted)
    whole = {**(before or {}), **after}
    if target.needs_retractions:
        _check_old_row(change, before or {}, record_schema)
    if before is None:
        return [new]
    old_key = _old_key_if_changed(before, new, record_schema)
    if old_key is not None:
        moved = replace(new, kind=RowKind.INSERT, old_key=old_key if new.flagged else None)
        return [changed_row(RowKind.DELETE, {**_key_of(whole, record_schema), **before}, record_schema), moved]
    if target.emit_update_before:
        return [changed_row(RowKind.UPDATE_BEFORE, {**_key_of(whole, record_schema), **before}, record_schema), new]
    return [new]


def _new_row(
    change: ChangeEvent, after: Mapping[str, bytes], record_schema: RecordSchema, omitted: OmittedColumns
) -> ChangedRow:
    before = change.before or {}
    whole = {**_key_of(before, record_schema), **after}  # a column of the key is never NULL
    left_out = []
    for column in record_schema.columns:
        name = column.name
        if name in whole:
            continue
        rule = omitted.if_old_names_it if name in before else omitted.otherwise
        if rule is not Omitted.UNCHANGED and name not in change.unchanged:
            continue
        if name in before:
            whole[name] = before[name]
        elif record_schema.target.schema.primary_keys and record_schema.target.holds_source_rows:
            left_out.append(name)
    return changed_row(RowKind.UPDATE_AFTER, whole, record_schema, left_out)


def _key_of(members: Mapping[str, bytes], record_schema: RecordSchema) -> Mapping[str, bytes]:
    """Return the members that are columns of the primary key. They complete an old image that lacks some of them."""
    return {column.name: members[column.name] for column in record_schema.primary_key if column.name in members}


def _old_key_if_changed(
    before: Mapping[str, bytes], new: ChangedRow, record_schema: RecordSchema
) -> Sequence[object] | None:
    """Return the row's old primary key if it differs from the new one, else None."""
    new_key = [new.cells[place] for place in record_schema.primary_key_places]
    old_key = [
        record_schema.read_value(column, before[column.name]) if before.get(column.name, b"null") != b"null" else cell
        for column, cell in zip(record_schema.primary_key, new_key, strict=True)
    ]
    return None if old_key == new_key else old_key


def _check_old_row(change: ChangeEvent, before: Mapping[str, bytes], record_schema: RecordSchema) -> None:
    """Raise BadValue if old values are missing that the table needs.

    A retraction needs all old values. A delete needs them if columns decide which row is the newest.
    """
    target = record_schema.target
    lacking = [column.name for column in record_schema.columns if column.name not in before]
    if not lacking and change.knows_old_row:
        return
    what = "has no old values" if not before else f"has no old value of {', '.join(lacking or ['every column'])}"
    if target.needs_retractions:
        raise BadValue(
            f"the {_operation_name(change.op)} {what}, but {target.name} aggregates, so its old values must be "
            "retracted. Let the source send whole old rows. If values are only added and never retracted, set the "
            "table option ignore-delete"
        )
    if target.is_ordered_by_columns and lacking:
        raise BadValue(
            f"the {_operation_name(change.op)} {what}, but columns decide which row of {target.name} is the newest "
            "(sequence.field, or sequence groups): it would count as the oldest row, and would not delete anything. "
            "Let the source send whole old rows, or use a table without such columns"
        )


def _operation_name(op: Op) -> str:
    return "delete" if op is Op.DELETE else "update"
