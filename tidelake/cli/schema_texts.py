"""Parses columns, and changes of a schema, that users type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from tidelake.cli.exits import UsageError
from tidelake.errors import BadInput
from tidelake.storage.base.arguments import shown
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
)
from tidelake.storage.model.types import DataField, parse_type

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


def column_from_text(text: str) -> DataField:
    """Parse `amount:DECIMAL(10,2)`, the value of `--column`."""
    name, colon, type_text = text.partition(":")
    if not colon or not name.strip():
        raise UsageError(f"--column {shown(text)}: write NAME:TYPE, as in 'amount:DECIMAL(10,2) NOT NULL'")
    try:
        return DataField(0, name.strip(), parse_type(type_text.strip()))
    except BadInput as error:
        raise UsageError(f"--column {shown(text)}: {error}") from None


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
