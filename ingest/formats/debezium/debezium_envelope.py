"""The envelope of a Debezium JSON record: separates schema and payload, and finds the kind of record.

Source: Debezium 3.5 `data/Envelope`, `pipeline/txmetadata`, `relational/history`, `heartbeat`; Connect `JsonConverter`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.ingest.formats.base import Skipped
from tidelake.ingest.formats.connect_schema import ConnectSchema, parse_connect_schema
from tidelake.ingest.formats.connector_rules import refused_format
from tidelake.ingest.formats.debezium.cells import check_cells
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue, read_object
from tidelake.ingest.raw_batch import RawBatch

ROW_OPS: Final = frozenset("crud")
# Headers of the two halves of a key change. The value is the key of the other half. Debezium sends four more headers
# with every record, whose content is in the record as well.
OLD_KEY_HEADER: Final = "__debezium.oldkey"
NEW_KEY_HEADER: Final = "__debezium.newkey"
DELETE_OP: Final = "d"
TRUNCATE_OP: Final = "t"
_MESSAGE_OP: Final = "m"
_HEARTBEAT_MEMBERS: Final = frozenset({"ts_ms", "ts_us", "ts_ns"})


class _SchemaAndPayload(msgspec.Struct):
    schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    schema: dict[str, msgspec.Raw] | None
    payload: msgspec.Raw


class SourceInfo(msgspec.Struct, frozen=True):
    """The fields of the member `source` that identify a table."""

    db: str | None = None
    schema: str | None = None
    table: str | None = None
    connector: str | None = None

    def source_table(self, topic: str) -> SourceTable:
        return SourceTable(topic, self.db, self.schema, self.table)


class DebeziumEnvelope(msgspec.Struct):
    """A payload. It is a row change if `op` is one of ROW_OPS.

    Row images are raw JSON. A missing image and the image `null` are the same.
    """

    op: str | None = None
    before: msgspec.Raw = msgspec.Raw(b"null")
    after: msgspec.Raw = msgspec.Raw(b"null")
    source: SourceInfo = SourceInfo()
    ddl: str | None = None


_read_wrapped: Final = msgspec.json.Decoder(_SchemaAndPayload).decode
_read_exactly_wrapped: Final = msgspec.json.Decoder(_Wrapped).decode
_read_envelope: Final = msgspec.json.Decoder(DebeziumEnvelope).decode


def split_schema(value: bytes) -> tuple[bytes | None, bytes | msgspec.Raw]:
    """Return (schema, payload) of a JSON object.

    Without a member `schema` the whole object is the payload. The schema is None if it is missing or null.

    Raises BadValue for anything but a JSON object, and for a schema without a payload.
    """
    try:
        wrapped = _read_wrapped(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise BadValue(f"not a JSON object: {e}") from None
    if wrapped.schema is msgspec.UNSET:
        return None, value
    if wrapped.payload is msgspec.UNSET:
        raise BadValue("it has a member schema, but no payload")
    schema = bytes(wrapped.schema)
    return (None if schema == b"null" else schema), wrapped.payload


def unwrapped(data: bytes) -> bytes:
    """Return the columns of a key, or of a flattened row, which may be wrapped with a schema.

    Only an object with exactly the members `schema`, which is an object or null, and `payload` is wrapped: a key, or a
    row, may have columns of these names.
    """
    try:
        return bytes(_read_exactly_wrapped(data).payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return data


_WRAPPED_NULL_MAX: Final = 64  # bytes of `{"schema":null,"payload":null}`, with blanks
_NULL: Final = b"null"


def with_plain_tombstones(batch: RawBatch) -> RawBatch:
    """Return the batch with null for each value that Connect's JSON converter wrote for null.

    With schemas, some releases of the converter write `{"schema":null,"payload":null}` for a tombstone.
    """
    short = pc.less_equal(pc.binary_length(batch.values), _WRAPPED_NULL_MAX)
    rows = np.flatnonzero(pc.fill_null(short, False).to_numpy(zero_copy_only=False))
    values = batch.values.take(pa.array(rows)).to_pylist()
    found = [row for row, value in zip(rows.tolist(), values, strict=True) if unwrapped(value).strip() == _NULL]
    if not found:
        return batch
    is_null = np.zeros(len(batch), np.bool_)
    is_null[found] = True
    return replace(batch, values=pc.if_else(pa.array(is_null), pa.scalar(None, batch.values.type), batch.values))


def image_schema(schema: bytes) -> ConnectSchema:
    """Return the schema of the row images from a record's schema. Raises BadValue if it contains none."""
    try:
        envelope = parse_connect_schema(schema)
    except BadInput as e:
        raise BadValue(str(e)) from None
    for image in ("after", "before"):
        if (found := envelope.member(image)) is not None:
            return found
    raise BadValue("the record's schema has neither after nor before")


def read_envelope(payload: bytes | msgspec.Raw) -> DebeziumEnvelope:
    """Return the parsed payload.

    Raises BadValue for anything but a JSON object, and for an `op` or `source` of a wrong type.
    """
    try:
        return _read_envelope(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise BadValue(f"not a Debezium payload: {e}") from None


def check_connector(envelope: DebeziumEnvelope) -> None:
    """Raise BadValue for a record of a connector whose rows another format reads, or none."""
    check_cells(envelope.source.connector)
    if envelope.op in ROW_OPS and (reason := refused_format(envelope.source.connector or "")) is not None:
        raise BadValue(reason)


def control_record_kind(envelope: DebeziumEnvelope, payload: bytes | msgspec.Raw) -> Skipped:
    """Return the kind of a record without a row. Raises BadValue for a record that Debezium doesn't send."""
    if envelope.op == _MESSAGE_OP:
        return Skipped.MESSAGE
    if envelope.op is not None:
        raise BadValue(f"unknown op {envelope.op!r}; expected c, r, u, d, t or m")
    members = read_object(payload).keys()
    if members >= {"status", "id"} and "before" not in members:
        return Skipped.TRANSACTION
    if "databaseName" in members and members & {"ddl", "tableChanges"}:
        return Skipped.SCHEMA_CHANGE
    if members and members <= _HEARTBEAT_MEMBERS:
        return Skipped.HEARTBEAT
    raise BadValue(
        "not a Debezium change record, as it has no member op. If the connector flattens its records "
        "(ExtractNewRecordState), set `format` to debezium-flattened-json"
    )
