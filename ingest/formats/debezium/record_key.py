"""Reads keys of Debezium records, and keys in the headers of moved rows. Both are JSON objects of key columns."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.ingest.formats.concatenated_json import concatenate_objects
from tidelake.ingest.formats.debezium.debezium_envelope import unwrapped
from tidelake.ingest.formats.values.json_text import BadValue, read_object


def key_members(key: bytes) -> dict[str, bytes]:
    """Return column name to raw JSON of a key with or without a schema. Raises BadValue for anything but an object."""
    return read_object(unwrapped(key))


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
        self._plain_lines: Any = msgspec.json.Decoder(key).decode_lines
        wrapped = msgspec.defstruct("Wrapped", [("schema", msgspec.Raw), ("payload", key)], gc=False)
        self._plain: Any = msgspec.json.Decoder(key).decode
        self._wrapped: Any = msgspec.json.Decoder(wrapped).decode

    def check(self, keys: pa.Array) -> None:
        """Raise ValueError, or an error of msgspec, if one of these keys may have other columns."""
        if keys.null_count != (0 if self._has_columns else len(keys)):
            raise ValueError("keys with other columns, or without")
        if self._has_columns:
            given: list[bytes] = keys.to_pylist()
            decode = self._wrapped if self._is_wrapped(given[0]) else self._plain
            for key in given:
                decode(key)

    def _is_wrapped(self, key: bytes) -> bool:
        try:
            self._plain(key)
        except msgspec.MsgspecError:
            return True
        return False

    def check_all(self, keys: pa.Array, rows: NDArray[np.int64]) -> None:
        """Check the keys of these rows as `check` does, but faster for many keys."""
        if not self._has_columns:
            valid = keys.take(pa.array(rows)).drop_null() if keys.null_count < len(keys) else keys[:0]
            if len(valid) and pc.any(pc.starts_with(valid, b"{")).as_py():
                raise ValueError("keys with columns")
            return
        if keys.null_count:
            raise ValueError("keys without columns")
        first: bytes = keys[int(rows[0])].as_py()
        if not self._is_wrapped(first):
            found = self._plain_lines(concatenate_objects(keys, rows))
            if len(found) != len(rows):
                raise ValueError("not one key each")
            return
        self._wrapped(first)
        begin, payload, _ = first.partition(b',"payload":')
        if not payload or not begin.startswith(b'{"schema":'):
            raise ValueError("keys in an unusual form")
        taken = keys if len(rows) == len(keys) else keys.take(pa.array(rows))
        if not pc.all(pc.starts_with(taken, begin + payload)).as_py():
            raise ValueError("keys of several schemas")
