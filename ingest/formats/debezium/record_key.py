"""The key of a Debezium record, and the one in the header of a row that was moved: JSON objects of key columns."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from ingest.formats.debezium.envelope import split_schema
from ingest.formats.values.json_text import BadValue, read_object


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


class KeyColumnsCheck:
    """Checks fast whether many records have keys of exactly these columns.

    Raises ValueError on construction when a column's name can't be matched fast.
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
        """Raises ValueError, or an error of msgspec's, when one of these may have other columns."""
        if keys.null_count != (0 if self._has_columns else len(keys)):
            raise ValueError("keys with other columns, or without")
        if self._has_columns:
            given: list[bytes] = keys.to_pylist()
            decode = self._wrapped if given[0].startswith(b'{"schema"') else self._plain
            for key in given:
                decode(key)
