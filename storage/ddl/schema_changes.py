"""Makes the next version of a table's schema from a list of changes. Nothing is read or written.

A nested column is named by its path: `("address", "city")` for a field of a ROW, `("items", "element", "price")` for a
field of the ROWs in an ARRAY, `("sizes", "value")` for the values of a MAP.

Source: Java `schema/SchemaManager.java` (generateTableSchema), `schema/SchemaChange.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TypeAlias

import pyarrow as pa

from tidelake.errors import BadInput, CommitConflict
from tidelake.storage.base.arguments import check_members, shown
from tidelake.storage.ddl.schema_creation import normalize_keys
from tidelake.storage.ddl.schema_validation import check_schema
from tidelake.storage.model.definition import FENCE, REWRITTEN
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.options.option_changes import (
    check_option_change,
    check_rewritten_option,
    check_spelling,
)
from tidelake.storage.model.options.renamed_columns import rename_in_options
from tidelake.storage.model.options.values import parse_names
from tidelake.storage.model.schema.field_ids import FieldIds
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.schema.type_changes import can_change, indexed_columns, is_wider_key
from tidelake.storage.model.types import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    nullable,
    parse_type,
    type_from_arrow,
)

Path: TypeAlias = tuple[str, ...]
ColumnPath: TypeAlias = str | Path
ColumnType: TypeAlias = pa.DataType | str | DataType  # str: as SQL spells it, "DECIMAL(10, 2)"


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Adds a nullable column, which is null in existing rows. Its position is last, first, or after a named sibling."""

    name: ColumnPath
    type: ColumnType
    description: str | None = None
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Drops a column. Its values are lost: a later column of the same name is a new one."""

    name: ColumnPath


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Renames a column, also in the primary key and in options that name it.

    new_name: without the path.
    """

    name: ColumnPath
    new_name: str


@dataclass(frozen=True, slots=True)
class UpdateColumnType:
    """Changes a column's type, but not its nullability. Existing rows are cast when they are read.

    rewrites_keys: the column may belong to the key, because all rows are rewritten (`compaction.table_rewrite`). Then
        the order of the keys must stay what it is.
    """

    name: ColumnPath
    type: ColumnType
    rewrites_keys: bool = False


@dataclass(frozen=True, slots=True)
class UpdateColumnNullability:
    name: ColumnPath
    nullable: bool


@dataclass(frozen=True, slots=True)
class UpdateColumnDescription:
    name: ColumnPath
    description: str | None


@dataclass(frozen=True, slots=True)
class UpdateColumnPosition:
    """Moves a column of the table to the front, or after or before another one."""

    name: str
    first: bool = False
    after: str | None = None
    before: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateColumnDefault:
    """Changes the value that writers use for a missing one, in SQL syntax. None is null. Existing rows don't change."""

    name: ColumnPath
    default: str | None


@dataclass(frozen=True, slots=True)
class SetOption:
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class RemoveOption:
    key: str


@dataclass(frozen=True, slots=True)
class UpdateComment:
    """Changes the comment of the table. None removes it."""

    comment: str | None


@dataclass(frozen=True, slots=True)
class UpdatePrimaryKey:
    """Changes the columns of the primary key. All rows are rewritten (`Catalog.rewrite_table`)."""

    columns: tuple[str, ...]


RewriteChange: TypeAlias = UpdatePrimaryKey | UpdateColumnType | SetOption | RemoveOption


@dataclass(frozen=True, slots=True)
class Redefinition:
    """The changes of a rewrite (`compaction.table_rewrite`), made at once. They may change what files depend on.

    base_id: the version of the schema that they are applied to; no other.
    """

    changes: tuple[RewriteChange, ...]
    base_id: int


SchemaChange: TypeAlias = (
    AddColumn
    | DropColumn
    | RenameColumn
    | UpdateColumnType
    | UpdateColumnNullability
    | UpdateColumnDescription
    | UpdateColumnPosition
    | UpdateColumnDefault
    | SetOption
    | RemoveOption
    | UpdateComment
    | UpdatePrimaryKey
)
CatalogChange: TypeAlias = SchemaChange | Redefinition
"""What a catalog takes. Users don't meet the changes of a rewrite."""


def apply_changes(
    schema: TableSchema, changes: Sequence[CatalogChange], *, has_snapshots: bool, time_ms: int
) -> TableSchema:
    """Return the schema after all changes, applied in their order, under the next id.

    has_snapshots: whether rows may have been written under this schema. If so, some options can't be changed any more.
    time_ms: now, epoch milliseconds.

    Raises BadInput, naming the column or option, for an impossible change and for a result that breaks a rule.
    """
    evolved = schema
    for change in changes:  # each change sees the result of the changes before it
        if not isinstance(change, CatalogChange):
            raise BadInput(f"{shown(change)} is not a schema change; pass AddColumn, DropColumn, SetOption, …")
        check_members(change)
        evolved = _apply(evolved, change, has_snapshots)
    evolved = normalize_keys(replace(evolved, id=schema.id + 1, time_ms=time_ms))
    check_schema(evolved)
    return evolved


def _apply(schema: TableSchema, change: CatalogChange, has_snapshots: bool) -> TableSchema:
    match change:
        case AddColumn():
            return _add(schema, change)
        case DropColumn():
            return _drop(schema, _path(change.name))
        case RenameColumn():
            return _rename(schema, _path(change.name), change.new_name)
        case UpdateColumnType():
            return _retype(schema, _path(change.name), change.type, has_snapshots, change.rewrites_keys)
        case UpdateColumnNullability():
            return _change_nullability(schema, _path(change.name), change.nullable)
        case UpdateColumnDescription():
            return _edit_field(schema, _path(change.name), lambda f: replace(f, description=change.description))
        case UpdateColumnDefault():
            return _edit_field(schema, _path(change.name), lambda f: replace(f, default=change.default))
        case UpdateColumnPosition():
            return _move(schema, change)
        case SetOption():
            return _set_option(schema, change, has_snapshots)
        case RemoveOption():
            return _remove_option(schema, change.key, has_snapshots)
        case UpdateComment():
            return replace(schema, comment=change.comment)
        case UpdatePrimaryKey():
            raise BadInput(
                f"the primary key can't become ({', '.join(change.columns)}) without a rewrite of all rows; use "
                f"rewrite_table, or `tidelake table rewrite NAME --primary-key {','.join(change.columns)}`"
            )
        case Redefinition():
            return _redefine(schema, change)


# ---------------------------------------------------------------- rewrites


def _redefine(schema: TableSchema, redefinition: Redefinition) -> TableSchema:
    if schema.id != redefinition.base_id:
        raise CommitConflict(
            f"another process changed the schema to version {schema.id} while the table was rewritten; try again"
        )
    evolved = schema
    for change in redefinition.changes:
        match change:
            case UpdatePrimaryKey():
                evolved = _change_key(evolved, change.columns)
            case UpdateColumnType():
                evolved = _retype(evolved, _path(change.name), change.type, has_snapshots=True, rewrites_keys=True)
            case SetOption():
                check_spelling([change.key])
                check_rewritten_option(evolved.options, change.key, change.value)
                evolved = replace(evolved, options={**evolved.options, change.key: change.value})
            case RemoveOption():
                check_rewritten_option(evolved.options, change.key, None)
                evolved = replace(evolved, options={k: v for k, v in evolved.options.items() if k != change.key})
    options = {key: value for key, value in evolved.options.items() if key != FENCE}
    return replace(evolved, options={**options, REWRITTEN: str(schema.id)})


def _change_key(schema: TableSchema, columns: tuple[str, ...]) -> TableSchema:
    shown_key = f"({', '.join(columns)})"
    if not schema.has_primary_key:
        raise BadInput(
            f"primary key {shown_key}: the table has none, and may have a row several times; create another table with "
            "this key, and write the rows into it"
        )
    if not columns:
        raise BadInput("a table can't lose its primary key; create another table without one, and write the rows to it")
    if repeated := [name for name in columns if columns.count(name) > 1]:
        raise BadInput(f"primary key {shown_key} names column {repeated[0]!r} twice; name each column once")
    schema.select(columns)
    if missing := [name for name in schema.partition_keys if name not in columns]:
        raise BadInput(
            f"primary key {shown_key} lacks {missing[0]!r}, by which the table is partitioned: a key would have a row "
            f"in each partition. Add it: ({', '.join([*columns, *missing])})"
        )
    indexed = indexed_columns(schema)
    if indexed:
        raise BadInput(f"primary key {shown_key}: the table has indexes of {', '.join(indexed)}; create another table")
    left = [name for name in schema.primary_keys if name not in columns]
    bucket_key = parse_names(schema.options.get("bucket-key", ""))
    if outside := [name for name in bucket_key if name not in columns]:
        raise BadInput(
            f"primary key {shown_key} lacks {outside[0]!r} of `bucket-key`; set another one in the same call "
            f"(--set bucket-key={columns[-1]}), before the key"
        )
    fields = tuple(replace(f, type=nullable(f.type)) if f.name in left else f for f in schema.fields)
    return replace(schema, primary_keys=columns, fields=fields)


# ---------------------------------------------------------------- columns


def _add(schema: TableSchema, change: AddColumn) -> TableSchema:
    path = _path(change.name)
    data_type = _new_type(change.type, path)
    if not data_type.nullable:
        raise BadInput(
            f"column {_text(path)}: a new column can't be NOT NULL, as older rows have no value; add it as nullable"
        )
    if change.first and change.after is not None:
        raise BadInput(
            f"column {_text(path)}: it can't be both first and after {change.after!r}; pass only one of them"
        )
    ids = FieldIds(schema.highest_field_id)
    column = ids.column(DataField(0, path[-1], data_type, change.description))

    def insert(siblings: list[DataField]) -> None:
        _check_name_is_free(siblings, path)
        if change.first:
            position = 0
        elif change.after is not None:
            position = _position(siblings, (*path[:-1], change.after)) + 1
        else:
            position = _end(schema, siblings) if len(path) == 1 else len(siblings)
        siblings.insert(position, column)

    return replace(_edit_siblings(schema, path, insert), highest_field_id=ids.highest)


def _end(schema: TableSchema, columns: Sequence[DataField]) -> int:
    """Return the position of a new column that names no position."""
    if TableOptions(schema.options).is_on("add-column-before-partition"):
        return next((i for i, f in enumerate(columns) if f.name in schema.partition_keys), len(columns))
    return len(columns)


def _drop(schema: TableSchema, path: Path) -> TableSchema:
    _refuse_keys(path, (*schema.primary_keys, *schema.partition_keys, *indexed_columns(schema)), "dropped")

    def remove(siblings: list[DataField]) -> None:
        del siblings[_position(siblings, path)]
        if not siblings:
            raise BadInput(f"column {_text(path)} is the only column; add another column first")

    return _edit_siblings(schema, path, remove)


def _rename(schema: TableSchema, path: Path, new_name: str) -> TableSchema:
    # Names of directories contain the names of partition columns.
    _refuse_keys(path, (*schema.partition_keys, *indexed_columns(schema)), "renamed")

    def rename(siblings: list[DataField]) -> None:
        position = _position(siblings, path)
        _check_name_is_free(siblings, (*path[:-1], new_name))
        siblings[position] = replace(siblings[position], name=new_name)

    renamed = _edit_siblings(schema, path, rename)
    if len(path) > 1:
        return renamed
    return replace(
        renamed,
        primary_keys=tuple(new_name if name == path[0] else name for name in schema.primary_keys),
        options=rename_in_options(schema.options, path[0], new_name),
    )


def _retype(
    schema: TableSchema, path: Path, given: ColumnType, has_snapshots: bool, rewrites_keys: bool
) -> TableSchema:
    if rewrites_keys:
        _refuse_keys(path, (*schema.partition_keys, *indexed_columns(schema)), "given another type")
        _check_keeps_order(schema, path, _new_type(given, path))
    else:
        keys = (*schema.primary_keys, *schema.partition_keys, *indexed_columns(schema))
        _refuse_keys(path, keys, "given another type")
    if has_snapshots and not rewrites_keys:  # Java allows it, and then looks for old rows in the wrong bucket
        _refuse_keys(path, parse_names(schema.options.get("bucket-key", "")), "given another type")
    new = _new_type(given, path)
    if not new.nullable:
        raise BadInput(
            f"column {_text(path)} to {new}: NOT NULL can't be changed together with the type; use "
            "UpdateColumnNullability"
        )
    explicit = not TableOptions(schema.options).is_on("disable-explicit-type-casting")

    def retype(old: DataType) -> DataType:
        if not can_change(old, new, explicit=explicit):
            why = " (see option disable-explicit-type-casting)" if can_change(old, new) else ""
            raise BadInput(
                f"column {_text(path)}: rows written as {old} can't be read as {new}{why}; add a column of the new type"
            )
        return old if nullable(old) == new else replace(new, nullable=old.nullable)

    return _edit_type(schema, path, retype)


def _check_keeps_order(schema: TableSchema, path: Path, new: DataType) -> None:
    """Raise BadInput if keys of the new type could have another order, or lose digits."""
    if len(path) > 1 or path[0] not in schema.primary_keys:
        raise BadInput(
            f"column {_text(path)} is not part of the primary key, so no rows are rewritten for it. Change its "
            "type with `tidelake table alter`"
        )
    old = schema.by_name[path[0]].type
    if is_wider_key(old, new):
        return
    raise BadInput(
        f"column {_text(path)} of the key can't become {nullable(new)}: keys of {nullable(old)} can only become wider "
        "integers, longer texts, or decimals with more digits before the point, but not from up to 18 digits to more. "
        "Create another table"
    )


def _change_nullability(schema: TableSchema, path: Path, takes_nulls: bool) -> TableSchema:
    if takes_nulls:
        _refuse_keys(path, schema.primary_keys, "made nullable")
    forbidden = TableOptions(schema.options).is_on("alter-column-null-to-not-null.disabled")

    def change(old: DataType) -> DataType:
        if old.nullable and not takes_nulls and forbidden:
            raise BadInput(
                f"column {_text(path)} may hold nulls; if it holds none, set the option "
                "'alter-column-null-to-not-null.disabled' = 'false' first (in `tidelake table alter`: "
                "--set alter-column-null-to-not-null.disabled=false)"
            )
        return replace(old, nullable=takes_nulls)

    return _edit_type(schema, path, change)


def _move(schema: TableSchema, change: UpdateColumnPosition) -> TableSchema:
    targets = [change.first, change.after is not None, change.before is not None]
    if sum(targets) != 1 or change.name in (change.after, change.before):
        raise BadInput(
            f"column {change.name!r} can be moved first, after another column or before another column; pass only one "
            "of the three"
        )

    def move(columns: list[DataField]) -> None:
        moved = columns.pop(_position(columns, (change.name,)))
        if change.after is not None:
            position = _position(columns, (change.after,)) + 1
        elif change.before is not None:
            position = _position(columns, (change.before,))
        else:
            position = 0
        columns.insert(position, moved)

    return _edit_siblings(schema, (change.name,), move)


def _refuse_keys(path: Path, columns: Sequence[str], what: str) -> None:
    if len(path) == 1 and path[0] in columns:
        raise BadInput(
            f"column {path[0]!r} can't be {what}: keys, buckets or indexes use {', '.join(columns)}; create another "
            "table"
        )


# ---------------------------------------------------------------- options


def _set_option(schema: TableSchema, change: SetOption, has_snapshots: bool) -> TableSchema:
    if _has_value(schema, change.key, change.value):
        return schema
    check_spelling([change.key])
    check_option_change(schema.options, change.key, change.value, has_snapshots=has_snapshots)
    return replace(schema, options={**schema.options, change.key: change.value})


def _has_value(schema: TableSchema, key: str, value: str) -> bool:
    match key:
        case "type":
            return schema.options.get(key, "table").lower() == value.lower()
        case "primary-key":
            return parse_names(value) == schema.primary_keys
        case "partition":
            return parse_names(value) == schema.partition_keys
    return schema.options.get(key) == value


def _remove_option(schema: TableSchema, key: str, has_snapshots: bool) -> TableSchema:
    if key in ("primary-key", "partition"):
        raise BadInput(f"option {key}: the keys of a table can't be changed; create another table")
    if key not in schema.options:
        return schema
    check_option_change(schema.options, key, None, has_snapshots=has_snapshots)
    return replace(schema, options={k: v for k, v in schema.options.items() if k != key})


# ---------------------------------------------------------------- paths of columns


def _path(name: ColumnPath) -> Path:
    path = (name,) if isinstance(name, str) else tuple(name)
    if not path:
        raise BadInput("a change names no column: its path is empty")
    return path


def _text(path: Path) -> str:
    return repr(".".join(path))


def _new_type(given: ColumnType, path: Path) -> DataType:
    """Return the type. Its nested fields have no ids yet."""
    if isinstance(given, str):
        return parse_type(given)
    if isinstance(given, pa.DataType):
        return type_from_arrow(given, repeat(0).__next__, column=".".join(path))
    return given


def _position(siblings: Sequence[DataField], path: Path) -> int:
    names = [f.name for f in siblings]
    if path[-1] not in names:
        where = f" in {_text(path[:-1])}" if len(path) > 1 else ""
        raise BadInput(f"no column {path[-1]!r}{where}; there are {', '.join(names)}{did_you_mean(path[-1], names)}")
    return names.index(path[-1])


def _check_name_is_free(siblings: Sequence[DataField], path: Path) -> None:
    if path[-1] in [f.name for f in siblings]:
        raise BadInput(f"column {_text(path)} already exists; choose another name")


def _edit_type(schema: TableSchema, path: Path, edit: Callable[[DataType], DataType]) -> TableSchema:
    """Return the schema with the type at `path` changed by `edit`. The empty path is the table itself, as a ROW."""

    def descend(data_type: DataType, depth: int) -> DataType:
        if depth == len(path):
            return edit(data_type)
        match data_type, path[depth]:
            case RowType(), _:
                position = _position(data_type.fields, path[: depth + 1])
                field = data_type.fields[position]
                edited = replace(field, type=descend(field.type, depth + 1))
                return replace(data_type, fields=_replace_field(data_type.fields, position, edited))
            case ArrayType(), "element":
                return replace(data_type, element=descend(data_type.element, depth + 1))
            case MapType(), "value":
                return replace(data_type, value=descend(data_type.value, depth + 1))
        raise BadInput(
            f"no column {_text(path)}: {_text(path[:depth])} is {data_type}; write the name of a field for a ROW, "
            "'element' for an ARRAY and 'value' for a MAP"
        )

    edited = descend(RowType(schema.fields), 0)
    assert isinstance(edited, RowType)
    return replace(schema, fields=edited.fields)


def _edit_siblings(schema: TableSchema, path: Path, edit: Callable[[list[DataField]], None]) -> TableSchema:
    """Return the schema with the column at `path` and its siblings changed by `edit`."""

    def edit_row(parent: DataType) -> DataType:
        if not isinstance(parent, RowType):
            raise BadInput(f"no column {_text(path)}: {_text(path[:-1])} is {parent}, not a ROW")
        siblings = list(parent.fields)
        edit(siblings)
        return replace(parent, fields=tuple(siblings))

    return _edit_type(schema, path[:-1], edit_row)


def _edit_field(schema: TableSchema, path: Path, edit: Callable[[DataField], DataField]) -> TableSchema:
    def edit_one(siblings: list[DataField]) -> None:
        position = _position(siblings, path)
        siblings[position] = edit(siblings[position])

    return _edit_siblings(schema, path, edit_one)


def _replace_field(fields: tuple[DataField, ...], position: int, field: DataField) -> tuple[DataField, ...]:
    return (*fields[:position], field, *fields[position + 1 :])
