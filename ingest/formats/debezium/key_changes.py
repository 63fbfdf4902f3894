"""Finds the halves of primary key changes. Debezium sends a key change as two records, maybe in two partitions:

    d  old key   header `__debezium.newkey`
       old key   a tombstone
    c  new key   header `__debezium.oldkey`

Both records come from one event of the source's log and contain its position there (member `source`). Halves with the
same position belong together, even if other records are between them or records are missing.

Source: Debezium `RelationalChangeRecordEmitter.emitUpdateRecord`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tidelake.ingest.formats.base import KEY_CHANGE_ID_BYTES, KeyChange, KeyChanges
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER, split_schema
from tidelake.ingest.formats.debezium.record_key import key_members
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import RawBatch

_DEPARTURE: Final = f"record with header `{NEW_KEY_HEADER}` that deletes it there"
# Connectors whose records always have whole rows, so a moved row's old values need no lookup.
_FULL_BEFORE_IMAGES: Final = frozenset({"mysql", "mariadb", "sqlserver", "db2"})
# Members with an event's position in the source's log. PostgreSQL's log has an event for each row.
_POSITIONS: Final = (("lsn",), ("file", "pos", "row"))


def find_key_changes(rows: NDArray[np.int64], batch: RawBatch, lacking: Collection[int] = ()) -> KeyChanges | None:
    """Return the halves of key changes among n rows; None, found quickly, if there are none.

    rows (n,): the row in the raw batch of each row's record.
    lacking: numbers of moved rows that lack values. If such a record doesn't identify its key change, it gets a unique
        id, so no other half is found for it.
    """
    if not batch.headers:
        return None
    places = np.flatnonzero(np.isin(rows, np.fromiter(batch.headers, np.int64, len(batch.headers))))
    found = [
        (place, key_change_of(batch, row) or (_unique_key_change(batch, row) if place in lacking else None))
        for place, row in zip(places.tolist(), rows[places].tolist(), strict=True)
    ]
    changes = [(place, change) for place, change in found if change is not None]
    if not changes:
        return None
    places = np.array([place for place, _ in changes], np.int64)
    return KeyChanges(places, [change for _, change in changes], _DEPARTURE)


def key_change_of(batch: RawBatch, row: int) -> KeyChange | None:
    """Return the key change of a record; None if the record is no half of one, or doesn't identify it."""
    headers = dict(batch.headers.get(row, ()))
    key: bytes | None = batch.keys[row].as_py()
    try:
        payload = split_schema(batch.values[row].as_py())[1]
        source = _source(payload)
        if source.get("connector") in _FULL_BEFORE_IMAGES:
            return None
        if NEW_KEY_HEADER in headers:
            old, new = key, headers[NEW_KEY_HEADER]
        elif OLD_KEY_HEADER in headers:
            old, new = headers[OLD_KEY_HEADER], key
        else:
            return None
        is_exact = any(all(source.get(name) is not None for name in names) for names in _POSITIONS)
        identity = (source,) if is_exact else (source, _members(old), _members(new))
    except (BadValue, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    data = msgspec.json.encode(identity, order="deterministic")
    id_ = bytes([is_exact]) + hashlib.blake2b(data, digest_size=KEY_CHANGE_ID_BYTES - 1).digest()
    return KeyChange(id_, is_exact, _text(old), _text(new))


def _unique_key_change(batch: RawBatch, row: int) -> KeyChange:
    """Return a key change with a unique id, for a record that doesn't identify its key change."""
    place = f"{batch.topic}-{batch.partition}-{batch.offsets[row]}".encode()
    id_ = b"\1" + hashlib.blake2b(place, digest_size=KEY_CHANGE_ID_BYTES - 1).digest()
    return KeyChange(id_, True, _text(dict(batch.headers[row]).get(OLD_KEY_HEADER)), _text(batch.keys[row].as_py()))


class _EnvelopePayload(msgspec.Struct):
    source: dict[str, Any] | None = None


_read_payload: Final = msgspec.json.Decoder(_EnvelopePayload).decode


def _source(payload: bytes | msgspec.Raw) -> Mapping[str, Any]:
    return _read_payload(payload).source or {}


def _members(key: bytes | None) -> Mapping[str, Any]:
    """Return the decoded values of a key by column. Raises BadValue for a key without column names."""
    return {name: msgspec.json.decode(raw) for name, raw in key_members(key or b"").items()}


def _text(key: bytes | None) -> str:
    """Return a key without its schema, for messages."""
    try:
        return msgspec.json.encode(_members(key)).decode()
    except (BadValue, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return repr((key or b"")[:200].decode(errors="replace"))
