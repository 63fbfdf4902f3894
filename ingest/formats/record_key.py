"""The key of a Debezium record, and the one in the header of a row that was moved: JSON objects of key columns."""

from __future__ import annotations

from ingest.formats.cells.json_text import BadValue, read_object
from ingest.formats.debezium_envelope import split_schema


def key_members(key: bytes) -> dict[str, bytes]:
    """Column to raw JSON, with or without a schema around them. Raises BadValue for anything but an object."""
    _, payload = split_schema(key)
    return read_object(payload)


def columns_of_key(key: bytes | None) -> frozenset[str]:
    """The names in a record's key; none where it has no key, or one that names no columns."""
    if key is None:
        return frozenset()
    try:
        return frozenset(key_members(key))
    except BadValue:
        return frozenset()
