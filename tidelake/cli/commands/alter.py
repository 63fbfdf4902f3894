"""`tidelake table alter`: changes columns, options and the comment of a table together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.exits import UsageError
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.errors import BadInput
from tidelake.storage.ddl.schema_changes import (
    AddColumn,
    DropColumn,
    Path,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetOption,
    UpdateColumnDefault,
    UpdateColumnDescription,
    UpdateColumnNullability,
    UpdateColumnPosition,
    UpdateColumnType,
    UpdateComment,
    apply_changes,
)
from tidelake.storage.model.messages import path_text
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import DataField, parse_type
from tidelake.table import Table

_NAME: Final = r"(?:\w+|`(?:[^`]|``)+`)"
_PATH: Final = rf"{_NAME}(?:\.{_NAME})*"
_COLUMN_AND_TYPE: Final = re.compile(
    rf"\s*(?P<path>{_PATH})\s*[\s:=]\s*(?P<type>.+?)"
    rf"(?:\s+COMMENT\s+'(?P<comment>(?:[^']|'')*)')?"
    rf"(?:\s+(?P<first>FIRST)|\s+AFTER\s+(?P<after>{_NAME}))?\s*",
    re.IGNORECASE | re.DOTALL,
)
_MOVE: Final = re.compile(
    rf"\s*(?P<name>{_NAME})\s+(?:(?P<first>FIRST)|AFTER\s+(?P<after>{_NAME})|BEFORE\s+(?P<before>{_NAME}))\s*",
    re.IGNORECASE,
)
_EQUATION: Final = re.compile(rf"\s*(?P<path>{_PATH})\s*=(?P<text>.*)", re.DOTALL)


def alter(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, changes: Sequence[tuple[str, str]], dry_run: bool
) -> None:
    """Alter a table.

    changes: pairs of option and value, in the order of the command line.
    """
    if not changes:
        raise UsageError("no change given: pass --add-column, --drop, --rename, --set-type, --set, …; see --help")
    parsed = [parse_change(option, text) for option, text in changes]
    opened = catalog.open()
    table = opened.table(name)
    before = table.context.schema
    after = _planned(table, parsed) if dry_run else opened.alter_table(name, parsed).context.schema
    if out.is_json:
        out.document(_members(table.name, before, after, dry_run=dry_run))
        return
    differences = list(_differences(before, after))
    for line in differences:
        out.console.print(printable(line), soft_wrap=True)
    if not differences:
        out.note(f"{table.name} already has these values; nothing was changed")
    elif dry_run:
        out.note(f"nothing was changed; without --dry-run this would become schema {after.id} of {table.name}")
    else:
        out.note(f"schema {after.id} of {table.name}; running writers use it after a restart")


def _planned(table: Table, changes: Sequence[SchemaChange]) -> TableSchema:
    has_snapshots = table.context.snapshots.latest_id() is not None
    return apply_changes(table.context.schema, changes, has_snapshots=has_snapshots, time_ms=epoch_ms())


# ---------------------------------------------------------------- parsing


def parse_change(option: str, text: str) -> SchemaChange:
    """Parse one option of the command line and its value. Raises UsageError with the option, and its syntax."""
    how, parse = OPTIONS[option]
    try:
        change = parse(text)
    except BadInput as error:
        raise UsageError(f"{option} {text!r}: {error}") from None
    if change is None:
        raise UsageError(f"{option} {text!r}: write {option} {how}")
    return change


def _add(text: str) -> SchemaChange | None:
    found = _COLUMN_AND_TYPE.fullmatch(text)
    if found is None:
        return None
    comment, after = found["comment"], found["after"]
    return AddColumn(
        _path(found["path"]),
        parse_type(found["type"]),
        None if comment is None else comment.replace("''", "'"),
        first=found["first"] is not None,
        after=None if after is None else _name(after),
    )


def _retype(text: str) -> SchemaChange | None:
    found = _COLUMN_AND_TYPE.fullmatch(text)
    if found is None or any(found[part] is not None for part in ("comment", "first", "after")):
        return None
    return UpdateColumnType(_path(found["path"]), parse_type(found["type"]))


def _rename(text: str) -> SchemaChange | None:
    found = _EQUATION.fullmatch(text)
    if found is None or re.fullmatch(_NAME, found["text"].strip()) is None:
        return None
    return RenameColumn(_path(found["path"]), _name(found["text"].strip()))


def _move(text: str) -> SchemaChange | None:
    found = _MOVE.fullmatch(text)
    if found is None:
        return None
    after, before = (None if found[side] is None else _name(found[side]) for side in ("after", "before"))
    return UpdateColumnPosition(_name(found["name"]), first=found["first"] is not None, after=after, before=before)


def _of_column(make: Callable[[Path], SchemaChange]) -> Callable[[str], SchemaChange | None]:
    """Return a parser for options whose value is a column."""

    def parse(text: str) -> SchemaChange | None:
        return make(_path(text.strip())) if re.fullmatch(_PATH, text.strip()) else None

    return parse


def _of_equation(make: Callable[[Path, str], SchemaChange]) -> Callable[[str], SchemaChange | None]:
    """Return a parser for options whose value is a column and a text."""

    def parse(text: str) -> SchemaChange | None:
        found = _EQUATION.fullmatch(text)
        return None if found is None else make(_path(found["path"]), found["text"])

    return parse


def _set_option(text: str) -> SchemaChange | None:
    key, equals, value = text.partition("=")
    return SetOption(key.strip(), value) if equals and key.strip() else None


def _path(text: str) -> Path:
    return tuple(_name(part) for part in re.findall(_NAME, text))


def _name(text: str) -> str:
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], SchemaChange | None]]]] = {
    "--add-column": ("'NAME TYPE [COMMENT 'TEXT'] [FIRST | AFTER COLUMN]'", _add),
    "--drop": ("COLUMN", _of_column(DropColumn)),
    "--rename": ("COLUMN=NAME", _rename),
    "--set-type": ("'COLUMN TYPE'", _retype),
    "--set-nullable": ("COLUMN", _of_column(lambda path: UpdateColumnNullability(path, True))),
    "--set-not-null": ("COLUMN", _of_column(lambda path: UpdateColumnNullability(path, False))),
    "--set-default": ("COLUMN=VALUE", _of_equation(UpdateColumnDefault)),
    "--drop-default": ("COLUMN", _of_column(lambda path: UpdateColumnDefault(path, None))),
    "--comment-column": ("COLUMN=TEXT", _of_equation(lambda path, text: UpdateColumnDescription(path, text or None))),
    "--move": ("'COLUMN FIRST', 'COLUMN AFTER COLUMN' or 'COLUMN BEFORE COLUMN'", _move),
    "--set": ("KEY=VALUE", _set_option),
    "--unset": ("KEY", lambda text: RemoveOption(text.strip()) if text.strip() else None),
    "--comment": ("TEXT", lambda text: UpdateComment(text or None)),
}


# ---------------------------------------------------------------- result


def _members(name: str, before: TableSchema, after: TableSchema, *, dry_run: bool) -> dict[str, Any]:
    differences = list(_differences(before, after))
    return {
        "name": name,
        "altered": bool(differences) and not dry_run,
        "schema_id": before.id if dry_run or not differences else after.id,
        "differences": differences,
        "columns": [
            {"id": f.id, "name": f.name, "type": str(f.type), "description": f.description, "default": f.default}
            for f in after.fields
        ],
        "primary_key": list(after.primary_keys),
        "options": dict(sorted(after.options.items())),
        "comment": after.comment,
    }


def _differences(before: TableSchema, after: TableSchema) -> Iterator[str]:
    """Yield a line for each changed column, option and comment. Columns are compared by their ids."""
    old, new = {f.id: f for f in before.fields}, {f.id: f for f in after.fields}
    for field in before.fields:
        if field.id not in new:
            yield f"- column {_column(field)}"
    for field in after.fields:
        if field.id not in old:
            yield f"+ column {_column(field)}"
        elif field != old[field.id]:
            yield f"~ column {_column(old[field.id])} → {_column(field)}"
    if [id_ for id_ in old if id_ in new] != [id_ for id_ in new if id_ in old]:
        yield f"~ order of columns: {', '.join(path_text(f.name) for f in after.fields)}"
    for key in sorted({*before.options, *after.options}):
        old_value, new_value = before.options.get(key), after.options.get(key)
        if old_value is None:
            yield f"+ option {key} = {new_value}"
        elif new_value is None:
            yield f"- option {key} = {old_value}"
        elif old_value != new_value:
            yield f"~ option {key} = {old_value} → {new_value}"
    if before.comment != after.comment:
        yield f"~ comment {before.comment!r} → {after.comment!r}"


def _column(field: DataField) -> str:
    comment = f" COMMENT '{field.description}'" if field.description else ""
    default = "" if field.default is None else f" DEFAULT {field.default}"
    return f"{path_text(field.name)} {field.type}{default}{comment}"
