"""The JSON schema of a configuration file, for editors."""

from __future__ import annotations

import pathlib
import re
from inspect import cleandoc
from typing import Any, Final

import msgspec
from msgspec import inspect

from tidelake.ingest.config.connect_names import accepted_names
from tidelake.ingest.formats.registry import FORMATS
from tidelake.ingest.secrets import RedactedOptions, Secret
from tidelake.ingest.settings import Config

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]*\)")  # its target is a page of the documentation


def config_schema() -> dict[str, Any]:
    """Return the schema, in the dialect 2020-12, made from the settings and their docstrings.

    It knows names, types and ranges. What settings must not be together, and options of tables and formats, is
    checked by `tidelake ingest plan` alone. Numbers that are written as text, which a variable or a flag may
    contain, are refused.
    """
    (schema,), definitions = msgspec.json.schema_components(
        [Config], schema_hook=_schema_of, ref_template="#/$defs/{name}"
    )
    kinds = {kind.__name__: kind for kind in _structs_in(Config)}
    for name, definition in definitions.items():
        intro, meanings = explained(kinds[name])
        definition["description"] = _plain(intro)
        for setting, described in definition["properties"].items():
            if setting in meanings:
                described["description"] = _plain(meanings[setting])
    pipeline = definitions["Config"]
    pipeline["required"].remove("pipeline")  # the name of the file is its default
    pipeline["properties"]["format"]["examples"] = list(FORMATS)  # a class may be named, too
    errors = definitions["ErrorSettings"]["properties"]
    for name, accepted in accepted_names().items():
        described = errors[accepted] if isinstance(accepted, str) else {"enum": accepted}
        pipeline["properties"][name] = errors[name.removeprefix("errors.")] = described
    return {"$schema": _DIALECT, "title": "A pipeline of Tidelake", **schema, "$defs": definitions}


def explained(kind: type[msgspec.Struct]) -> tuple[str, dict[str, str]]:
    """Return a docstring's intro, and each setting's meaning: a line `name: meaning`, continued on indented lines."""
    intro: list[str] = []
    meanings: dict[str, list[str]] = {}
    part = intro
    for line in cleandoc(kind.__doc__ or "").splitlines():
        name, _, meaning = line.partition(": ")
        if name in kind.__struct_fields__:
            part = meanings[name] = [meaning]
        else:
            part.append(line.strip())
    texts = {name: " ".join(part).strip().replace("{formats}", _format_names()) for name, part in meanings.items()}
    return " ".join(intro).strip(), texts


def _structs_in(kind: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Return the struct, and those that its settings contain."""
    found: dict[type[msgspec.Struct], None] = {}

    def visit(described: Any) -> None:
        if isinstance(described, inspect.StructType) and described.cls not in found:
            found[described.cls] = None
            for field in described.fields:
                visit(field.type)
        for part in ("types", "item_type", "item_types", "key_type", "value_type"):
            inner = getattr(described, part, ())
            for one in inner if isinstance(inner, tuple) else (inner,):
                visit(one)
        if isinstance(described, inspect.Metadata):
            visit(described.type)

    visit(inspect.type_info(kind))
    return list(found)


def _format_names() -> str:
    *names, last = (f"`{name}`" for name in FORMATS)
    return f"{', '.join(names)} or {last}"


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text)


def _schema_of(kind: type) -> dict[str, Any]:
    if kind is RedactedOptions:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if kind is Secret or issubclass(kind, pathlib.PurePath):
        return {"type": "string"}
    raise NotImplementedError  # so msgspec reports that it has no schema for the type
