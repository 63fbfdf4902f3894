"""Finds the format that an unreadable record seems to have, for the error message.

No record is decoded by a guess: only the configuration decides the format.
"""

from __future__ import annotations

from tidelake.ingest.formats.registry import format_like
from tidelake.ingest.formats.values.json_text import BadValue, read_object


def other_format_hint(value: bytes, format_: str) -> str:
    """Return the end of a message about a record that is not in `format_`; "" if no other format matches."""
    if value[:1] == b"\0":
        return ". It looks like Avro in Confluent's wire format: set `format` to debezium-avro or avro"
    try:
        found = format_like(read_object(value).keys())
    except BadValue:
        return ""
    return "" if found in (None, format_) else f". It looks like {found}: set `format` to the format of the topic"
