"""The key of a Debezium record, and the one in the header of a row that was moved: JSON objects of key columns."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.formats.adjacent_objects import adjacent_objects
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


class KeysOf:
    """Tells fast whether many records have keys of exactly these columns.

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
        self._decoders: list[Any] = [msgspec.json.Decoder(shape).decode_lines for shape in (key, wrapped)]

    def check(self, keys: pa.Array, rows: NDArray[np.int64]) -> None:
        """Raises ValueError, or another error of a JSON parser, when a key in these rows may have other columns."""
        wanted = keys.take(pa.array(rows))
        given = len(wanted) - wanted.null_count
        if given != (len(rows) if self._has_columns else 0):
            raise ValueError("keys with other columns, or without")
        if given:
            data = adjacent_objects(keys, rows)
            decode = self._decoders[bytes(data[:9]) == b'{"schema"']
            if len(decode(data)) != len(rows):
                raise ValueError("not one key each")
