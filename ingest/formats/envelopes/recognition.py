"""Which format a record that was not understood looks like, for the message that refuses it.

Nothing is decoded on the strength of a likeness: the configuration says the format.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ingest.formats.values.json_text import BadValue, read_object

_MEMBERS: Final[Mapping[str, tuple[frozenset[str], ...]]] = {
    "debezium-json": (
        frozenset({"op", "source", "before"}),
        frozenset({"op", "source", "after"}),
        frozenset({"schema", "payload"}),
    ),
    "aliyun-json": (frozenset({"schema", "payload", "version"}),),
    "canal-json": (frozenset({"type", "data", "isDdl"}), frozenset({"type", "data", "mysqlType"})),
    "maxwell-json": (frozenset({"type", "data", "database", "table"}),),
    "ogg-json": (frozenset({"op_type", "table"}),),
    "aws-dms-json": (frozenset({"metadata", "data"}), frozenset({"metadata", "control"})),
}
_MOST_DISTINCTIVE: Final = ("aliyun-json", "canal-json", "debezium-json", "ogg-json", "aws-dms-json", "maxwell-json")


def format_like(members: Collection[str]) -> str | None:
    """The format whose envelope has these members; None where none has."""
    for name in _MOST_DISTINCTIVE:
        if any(wanted <= set(members) for wanted in _MEMBERS[name]):
            return name
    return None


def hint(value: bytes, format_: str) -> str:
    """The end of a message about a record that is not in `format_`."""
    if value[:1] == b"\0":
        return ". It looks like Avro in Confluent's wire format: set `format` to debezium-avro or avro"
    try:
        found = format_like(read_object(value).keys())
    except BadValue:
        return ""
    return "" if found in (None, format_) else f". It looks like {found}: set `format` to what the topic holds"
