"""A primary key change at the source, of which Debezium makes two records, maybe in two partitions.

    d  old key   header `__debezium.newkey`
       old key   a tombstone
    c  new key   header `__debezium.oldkey`

Both come from one event of the source's log, and say its place there (member `source`): that says which belong
together, whatever is between them or is missing. Source: Debezium `RelationalChangeRecordEmitter.emitUpdateRecord`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from ingest.formats.base import KEY_CHANGE_ID_BYTES, KeyChange, KeyChanges
from ingest.formats.debezium.envelope import NEW_KEY_HEADER, OLD_KEY_HEADER, split_schema
from ingest.formats.debezium.record_key import key_members
from ingest.formats.values.json_text import BadValue
from ingest.raw_batch import RawBatch

_DEPARTURE: Final = f"record with header `{NEW_KEY_HEADER}` that deletes it there"
# Their records always bring whole rows: a row's old values are not needed.
_ALWAYS_WHOLE: Final = frozenset({"mysql", "mariadb", "sqlserver", "db2"})
# Where an event is in the source's log: PostgreSQL's log has one for each row.
_POSITIONS: Final = (("lsn",), ("file", "pos", "row"))


def find_key_changes(rows: NDArray[np.int64], batch: RawBatch, lacking: Collection[int] = ()) -> KeyChanges | None:
    """Which of n rows are halves of key changes; None when none is, the rule, which costs next to nothing.

    rows (n,): the row of the raw batch that each came from. lacking: those of them that came from another key and lack
    values: if such a record doesn't say of which key change it is half, no other half will be found.
    """
    if not batch.headers:
        return None
    places = np.flatnonzero(np.isin(rows, np.fromiter(batch.headers, np.int64, len(batch.headers))))
    found = [
        (place, key_change_of(batch, row) or (_unmatched_key_change(batch, row) if place in lacking else None))
        for place, row in zip(places.tolist(), rows[places].tolist(), strict=True)
    ]
    changes = [(place, change) for place, change in found if change is not None]
    if not changes:
        return None
    places = np.array([place for place, _ in changes], np.int64)
    return KeyChanges(places, [change for _, change in changes], _DEPARTURE)


def key_change_of(batch: RawBatch, row: int) -> KeyChange | None:
    """None for a record that is no half of a key change, or doesn't say of which."""
    headers = dict(batch.headers.get(row, ()))
    key: bytes | None = batch.keys[row].as_py()
    try:
        payload = split_schema(batch.values[row].as_py())[1]
        source = _source(payload)
        if source.get("connector") in _ALWAYS_WHOLE:
            return None
        if NEW_KEY_HEADER in headers:
            old, new = key, headers[NEW_KEY_HEADER]
        elif OLD_KEY_HEADER in headers:
            old, new = headers[OLD_KEY_HEADER], key
        else:
            return None
        is_exact = any(all(source.get(name) is not None for name in names) for names in _POSITIONS)
        said = (source,) if is_exact else (source, _members(old), _members(new))
    except (BadValue, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    data = msgspec.json.encode(said, order="deterministic")
    id_ = bytes([is_exact]) + hashlib.blake2b(data, digest_size=KEY_CHANGE_ID_BYTES - 1).digest()
    return KeyChange(id_, is_exact, _text(old), _text(new))


def _unmatched_key_change(batch: RawBatch, row: int) -> KeyChange:
    """Of a record that doesn't say of which: with an id that no other record has."""
    place = f"{batch.topic}-{batch.partition}-{batch.offsets[row]}".encode()
    id_ = b"\1" + hashlib.blake2b(place, digest_size=KEY_CHANGE_ID_BYTES - 1).digest()
    return KeyChange(id_, True, _text(dict(batch.headers[row]).get(OLD_KEY_HEADER)), _text(batch.keys[row].as_py()))


class _EnvelopePayload(msgspec.Struct):
    source: dict[str, Any] | None = None


_read_payload: Final = msgspec.json.Decoder(_EnvelopePayload).decode


def _source(payload: bytes | msgspec.Raw) -> Mapping[str, Any]:
    return _read_payload(payload).source or {}


def _members(key: bytes | None) -> Mapping[str, Any]:
    """Raises BadValue for a key that names no columns."""
    return {name: msgspec.json.decode(raw) for name, raw in key_members(key or b"").items()}


def _text(key: bytes | None) -> str:
    """A key as people read it, without its schema."""
    try:
        return msgspec.json.encode(_members(key)).decode()
    except (BadValue, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return repr((key or b"")[:200].decode(errors="replace"))
