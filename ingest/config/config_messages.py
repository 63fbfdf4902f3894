"""Messages that explain the errors of a configuration to its author."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, Final

from msgspec import inspect

from tidelake.errors import ConfigError
from tidelake.ingest.config.config_layers import ConfigLayers
from tidelake.ingest.config.yaml_settings import Path
from tidelake.ingest.settings import TABLE_NAME_PATTERN, Config

_MESSAGE: Final = re.compile(r"(?P<reason>.*?)(?: - at (?:`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_WRONG_CHOICE: Final = re.compile(r"Invalid (?:enum )?value '?([^']*)'?")

# YAML reads `no`, `1.0` and `~` as values other than text.
_SCALAR: Final = re.compile(r"got `(?:bool|int|float|null)`")


def config_error(message: str, given: ConfigLayers) -> ConfigError:
    """Return the error for msgspec's message, with the place in the file and the remedy."""
    found = _MESSAGE.fullmatch(message)
    assert found is not None
    reason, path = found["reason"], _path(found["path"] or "")
    setting = _dotted(path)
    types = _types_at(path, given.values)
    if unknown := _UNKNOWN.fullmatch(reason):
        names = [f.encode_name for struct in types if isinstance(struct, inspect.StructType) for f in struct.fields]
        where = f" in `{setting}`" if setting else ""
        return given.place((*path, unknown[1])).error(f"no setting `{unknown[1]}`{where}", _remedy(unknown[1], names))
    if missing := _MISSING.fullmatch(reason):
        return given.place(path).error(f"`{_dotted((*path, missing[1]))}` is missing", f"Add `{missing[1]}: …`.")
    if wrong := _WRONG_CHOICE.fullmatch(reason):
        choices = [str(v) for literal in types if isinstance(literal, inspect.LiteralType) for v in literal.values]
        return given.place(path).error(f"`{setting}` can't be `{wrong[1]}`", _remedy(wrong[1], choices))
    if repr(TABLE_NAME_PATTERN) in reason:
        return given.place(path).error(f"`{setting}` is not the name of a table", "Write `database.table`.")
    quotes = any(isinstance(type_, inspect.StrType) for type_ in types) and _SCALAR.search(reason)
    remedy = "Put it in quotes." if quotes else "Correct the value."
    return given.place(path).error(f"`{setting}`: {reason[:1].lower()}{reason[1:]}", remedy)


def setting_paths() -> list[Path]:
    """Return the paths of the settings of the first level, and of those below them."""
    found: list[Path] = []
    (config,) = _types_at((), {})
    assert isinstance(config, inspect.StructType)
    for section in config.fields:
        found.append((section.encode_name,))
        for type_ in _options(section.type):
            if isinstance(type_, inspect.StructType):
                found += [(section.encode_name, inner.encode_name) for inner in type_.fields]
                found += [(section.encode_name, type_.tag_field)] if type_.tag_field is not None else []
    return list(dict.fromkeys(found))


def _path(text: str) -> Path:
    """Return a text like `.tables[0].name` as a path. The path ends where msgspec omits a member's name (`[...]`)."""
    path: list[str | int] = []
    while step := _STEP.match(text):
        path.append(step[1] or int(step[2]))
        text = text[step.end() :]
    return tuple(path)


def _dotted(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _remedy(given: str, choices: list[str]) -> str:
    similar = difflib.get_close_matches(given, choices, n=1)
    return f"Did you mean `{similar[0]}`?" if similar else f"Possible: {', '.join(dict.fromkeys(choices))}."


def _types_at(path: Path, values: Any) -> list[inspect.Type]:
    """Return the types that the settings allow at a path; for a union its members.

    Given values (`type: kafka`) narrow the types.
    """
    types = [inspect.type_info(Config)]
    for step in path:
        candidates = [type_ for type_ in types if not _is_other_variant(type_, values)] or types
        types = [inner for type_ in candidates for option in _member_types(type_, step) for inner in _options(option)]
        values = (
            values.get(step) if isinstance(values, dict) else values[int(step)] if isinstance(values, list) else None
        )
    return [type_ for type_ in types if not _is_other_variant(type_, values)]


def _member_types(type_: inspect.Type, step: str | int) -> Iterable[inspect.Type]:
    match type_:
        case inspect.StructType(fields=fields, tag_field=tag_field, tag=tag):
            return [f.type for f in fields if f.encode_name == step] or [inspect.LiteralType((tag,))] * (
                step == tag_field
            )
        case inspect.ListType(item_type=inner) | inspect.DictType(value_type=inner):
            return [inner]
    return []


def _options(type_: inspect.Type) -> Iterable[inspect.Type]:
    return type_.types if isinstance(type_, inspect.UnionType) else [type_]


def _is_other_variant(type_: inspect.Type, values: Any) -> bool:
    if not isinstance(type_, inspect.StructType) or type_.tag_field is None or not isinstance(values, dict):
        return False
    return values.get(type_.tag_field) != type_.tag
