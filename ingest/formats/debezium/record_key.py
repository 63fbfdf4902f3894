"""Reads keys of Debezium records, and keys in the headers of moved rows. Both are JSON objects of key columns."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from tidelake.ingest.formats.debezium.debezium_envelope import split_schema
from tidelake.ingest.formats.values.json_text import BadValue, read_object


def key_members(key: bytes) -> dict[str, bytes]:
    """Return column name to raw JSON of a key with or without a schema. Raises BadValue for anything but an object."""
    _, payload = split_schema(key)
    return read_object(payload)


def columns_of_key(key: bytes | None) -> frozenset[str]:
    """Return the columns in a record's key; empty if the record has no key, or a key without column names."""
    if key is None:
        return frozenset()
    try:
        return frozenset(key_members(key))
    except BadValue:
        return frozenset()


class KeyColumnsCheck:
    """A fast check that many records have keys with exactly these columns.

    The constructor raises ValueError if msgspec can't match a column's name.
    """

    def __init__(self, columns: frozenset[str]) -> None:
        self._has_columns = bool(columns)
        key = msgspec.defstruct(
            "Key",
            [(f"f{i}", msgspec.Raw, msgspec.field(name=name)) for i, name in enumerate(sorted(columns))],
            forbid_unknown_fields=True,
            gc=False,
        )
        wrapped = msgspec.defstruct("Wrapped", [("schema", msgspec.Raw), ("payload", key)], gc=False)
        self._plain: Any = msgspec.json.Decoder(key).decode
        self._wrapped: Any = msgspec.json.Decoder(wrapped).decode

    def check(self, keys: pa.Array) -> None:
        """Raise ValueError, or an error of msgspec, if one of these keys may have other columns."""
        if keys.null_count != (0 if self._has_columns else len(keys)):
            raise ValueError("keys with other columns, or without")
        if self._has_columns:
            given: list[bytes] = keys.to_pylist()
            decode = self._wrapped if given[0].startswith(b'{"schema"') else self._plain
            for key in given:
                decode(key)
