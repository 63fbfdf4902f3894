"""The options of `debezium-json`, checked: the same for a configuration, whatever runs it, and for a Spark sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, Literal, TypeAlias

from ingest.formats.connect_schema import ConnectorSettings
from storage.errors import BadInput
from storage.messages.suggestions import did_you_mean

DEBEZIUM_JSON: Final = "debezium-json"
Truncates: TypeAlias = Literal["fail", "skip"]
InexactValues: TypeAlias = Literal["fail", "round"]

_CONNECTOR: Final = tuple(field.name for field in fields(ConnectorSettings))


def debezium_settings(options: Mapping[str, Any]) -> tuple[ConnectorSettings, Truncates, InexactValues]:
    """options: `truncates`, `inexact_values`, and settings of the connector by name. Raises BadInput for any other, and
    for a value that is none of an option's.
    """
    known = (*_CONNECTOR, "truncates", "inexact_values")
    for name, value in options.items():
        if name not in known:
            hint = did_you_mean(name, known) or "."
            raise BadInput(f"`format_options`: {DEBEZIUM_JSON} has no option {name!r}{hint} It has {', '.join(known)}")
        if not isinstance(value, str):
            raise BadInput(f"{name} of {DEBEZIUM_JSON} is a text, not {value!r}")
    truncates = options.get("truncates", "fail")
    if truncates not in ("fail", "skip"):
        raise BadInput(f"truncates of {DEBEZIUM_JSON} is fail or skip, not {truncates!r}")
    inexact_values = options.get("inexact_values", "fail")
    if inexact_values not in ("fail", "round"):
        raise BadInput(f"inexact_values of {DEBEZIUM_JSON} is fail or round, not {inexact_values!r}")
    connector = ConnectorSettings(**{name: options[name] for name in _CONNECTOR if name in options})
    return connector, truncates, inexact_values
