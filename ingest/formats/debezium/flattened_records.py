"""Records of Debezium that the transformation `ExtractNewRecordState` has flattened, as records with an envelope.

A flattened record is only the new row. Its operation is in the member `__op`, if the transformation adds it. A delete
is a tombstone, a record with `__deleted`, or both. Each record gets its envelope back, and is then read by the rules of
Debezium's records: types, keys, unavailable values.

A row without `__op` may be an insert or an update, so it counts as an update without its old row: an upsert.

Source: Debezium 3.5 `transforms/ExtractNewRecordState`, `AbstractExtractNewRecordState`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import msgspec

from tidelake.errors import BadInput
from tidelake.ingest.formats.base import InferredTable
from tidelake.ingest.formats.connect_schema import ConnectSchema, parse_connect_schema
from tidelake.ingest.formats.debezium.debezium_envelope import with_plain_tombstones
from tidelake.ingest.formats.format_capabilities import RecordOrigin, SnapshotMarks, origin_from, snapshot_marks
from tidelake.ingest.raw_batch import RawBatch, binary_column

PREFIX: Final = "__"  # default of the transformation's `add.fields.prefix`
OP_FIELD: Final = "op"
DELETED_FIELD: Final = "deleted"
_OF_ENVELOPE: Final = (OP_FIELD, DELETED_FIELD, "ts_ms", "ts_us", "ts_ns")
_OF_SOURCE: Final = (
    *("version", "connector", "name", "ts_ms", "ts_us", "ts_ns", "snapshot", "db", "sequence", "schema", "table"),
    *("collection", "server_id", "gtid", "file", "pos", "row", "thread", "query", "txId", "lsn", "xmin", "origin"),
    *("scn", "commit_scn", "lcr_position", "rs_id", "ssn", "redo_thread", "user_name", "row_id", "start_scn"),
    *("change_lsn", "commit_lsn", "event_serial_no", "ord", "h", "tord", "stxnid", "lsid", "txnNumber", "wallTime"),
)
_OF_TRANSACTION: Final = ("id", "total_order", "data_collection_order")
METADATA_FIELDS: Final = frozenset(
    {
        *_OF_ENVELOPE,
        *_OF_SOURCE,
        *(f"source_{name}" for name in _OF_SOURCE),
        *(f"transaction_{name}" for name in _OF_TRANSACTION),
    }
)
"""Names of the fields that `add.fields` can add, without the prefix."""

_Object: Final = dict[str, msgspec.Raw]
_read_row: Final = msgspec.json.Decoder(_Object).decode


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    schema: dict[str, msgspec.Raw] | None
    payload: msgspec.Raw


class _SchemaOf(msgspec.Struct):
    schema: msgspec.Raw


_read_wrapped: Final = msgspec.json.Decoder(_Wrapped).decode
_read_schema: Final = msgspec.json.Decoder(_SchemaOf).decode


def is_metadata(name: str) -> bool:
    """Return whether the transformation adds a member of this name."""
    return name.startswith(PREFIX) and name[len(PREFIX) :] in METADATA_FIELDS


def op_of(members: Mapping[str, bytes | msgspec.Raw]) -> bytes:
    """Return the operation of a row with these members, as JSON."""
    deleted = bytes(members.get(PREFIX + DELETED_FIELD, b"false"))
    if deleted in (b"true", b'"true"'):
        return b'"d"'
    op = bytes(members.get(PREFIX + OP_FIELD, b"null"))
    return b'"u"' if op == b"null" else op


@dataclass(frozen=True, slots=True)
class Enveloped:
    """A batch whose records have envelopes.

    metadata: names of members in its rows that the transformation added.
    """

    batch: RawBatch
    metadata: frozenset[str]


def enveloped(batch: RawBatch, *, tombstones_delete: bool) -> Enveloped:
    """Return the batch with an envelope around each record. Records that are no objects stay as they are.

    tombstones_delete: whether a tombstone is a delete of its key's row. Otherwise it stays a tombstone.
    """
    batch = with_plain_tombstones(batch)
    keys: list[bytes | None] = batch.keys.to_pylist() if tombstones_delete else [None] * len(batch)
    values: list[bytes | None] = []
    metadata: set[str] = set()
    for key, value in zip(keys, batch.values.to_pylist(), strict=True):
        if value is None:
            values.append(None if key is None else b'{"op":"d"}')
            continue
        try:
            schema, row = _split(value)
            members: Mapping[str, msgspec.Raw] = _read_row(row)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            values.append(value)  # the decoder finds the error
            continue
        metadata.update(name for name in members if is_metadata(name))
        op = op_of(members)
        image = b"before" if op == b'"d"' else b"after"
        payload = b'{"op":%b,"%b":%b}' % (op, image, bytes(row))
        values.append(payload if schema is None else b'{"schema":%b,"payload":%b}' % (schema, payload))
    return Enveloped(replace(batch, values=binary_column(values)), frozenset(metadata))


def without_metadata(inferred: InferredTable) -> InferredTable:
    """Return a table without the columns that the transformation added."""
    fields = [field for field in inferred.fields if not is_metadata(field.name)]
    return replace(
        inferred,
        fields=tuple(replace(field, id=number) for number, field in enumerate(fields)),
        sources={name: source for name, source in inferred.sources.items() if not is_metadata(name)},
    )


def _split(value: bytes) -> tuple[bytes | None, bytes | msgspec.Raw]:
    """Return the schema of the envelope, which is None without a schema, and the row."""
    if not value.lstrip().startswith(b'{"schema"'):
        return None, value
    try:
        wrapped = _read_wrapped(value)
    except msgspec.ValidationError:  # a row with a column named `schema`
        return None, value
    if wrapped.schema is None:
        return None, wrapped.payload
    return _envelope_schema(bytes(_read_schema(value).schema)), wrapped.payload


@lru_cache(maxsize=1_000)
def _envelope_schema(row_schema: bytes) -> bytes:
    """Return the schema of an envelope whose images have this schema. An invalid one stays as it is."""
    try:
        row = parse_connect_schema(row_schema)
    except BadInput:
        return row_schema
    return msgspec.json.encode(
        ConnectSchema(
            "struct", fields=tuple(msgspec.structs.replace(row, field=image) for image in ("before", "after"))
        )
    )


# ---------------------------------------------------------------- origin


class _Flat(msgspec.Struct, frozen=True):
    db: Any = msgspec.field(name="__db", default=None)
    source_db: Any = msgspec.field(name="__source_db", default=None)
    schema_: Any = msgspec.field(name="__schema", default=None)
    source_schema: Any = msgspec.field(name="__source_schema", default=None)
    table: Any = msgspec.field(name="__table", default=None)
    source_table: Any = msgspec.field(name="__source_table", default=None)
    source_ts_ms: Any = msgspec.field(name="__source_ts_ms", default=None)
    ts_ms: Any = msgspec.field(name="__ts_ms", default=None)
    payload: Any = None

    def origin(self) -> RecordOrigin:
        if isinstance(self.payload, dict):  # with a schema; with an envelope, if it was Avro
            row = self.payload.get("after") or self.payload.get("before")
            return msgspec.convert(row if isinstance(row, dict) else self.payload, _Flat).origin()
        time_ms = self.source_ts_ms if self.source_ts_ms is not None else self.ts_ms
        return RecordOrigin(
            _text(self.db or self.source_db),
            _text(self.schema_ or self.source_schema),
            _text(self.table or self.source_table),
            time_ms if isinstance(time_ms, int) else None,
        )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


flattened_origin_of: Final = origin_from(_Flat)


SNAPSHOT_FIELDS: Final = (f"{PREFIX}snapshot", f"{PREFIX}source_snapshot")
"""The members of `add.fields` = `snapshot` and `source.snapshot`."""


def flattened_snapshot_marks(options: Mapping[str, Any]) -> SnapshotMarks:
    """Return the marks of records to which the transformation adds `op`, and perhaps `source.snapshot`."""
    both = [snapshot_marks(PREFIX + OP_FIELD, "r", member)(options) for member in SNAPSHOT_FIELDS]
    return SnapshotMarks(both[0].are_rows, lambda value: any(one.is_last(value) for one in both))
