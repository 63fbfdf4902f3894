"""The format `debezium-cloudevents`: Debezium's change records as its CloudEvents converter writes them, in JSON.

An event has the row images in `data`, and what else a record has as attributes: `iodebeziumop`, `iodebeziumtable` and
others. Each event is converted to the record that Connect's JSON converter would have written.

Source: Debezium 3.5 `io.debezium.converters.CloudEventsConverter`, `converters/recordandmetadata`, `converters/spi`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import msgspec

from tidelake.errors import TableNotInferred
from tidelake.ingest.formats.base import Decoder, InferredTable, TargetOf
from tidelake.ingest.formats.debezium.converted_records import ConvertingDecoder
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER
from tidelake.ingest.formats.debezium.debezium_json import DebeziumOptions
from tidelake.ingest.formats.debezium.debezium_json_decoder import DebeziumJsonDecoder
from tidelake.ingest.formats.debezium.origin import origin_of
from tidelake.ingest.formats.debezium.table_inference import infer_table
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, snapshot_marks
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import Headers, RawBatch, binary_column

_PREFIX: Final = "iodebezium"
_JSON: Final = "application/json"
_NULL: Final = msgspec.Raw(b"null")


class _Event(msgspec.Struct, frozen=True):
    """An event. The members with a prefix are extension attributes, which Debezium writes as texts."""

    specversion: str | None = None
    type: str | None = None
    datacontenttype: str | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    op: str | None = msgspec.field(name=f"{_PREFIX}op", default=None)
    connector: str | None = msgspec.field(name=f"{_PREFIX}connector", default=None)
    db: str | None = msgspec.field(name=f"{_PREFIX}db", default=None)
    schema: str | None = msgspec.field(name=f"{_PREFIX}schema", default=None)
    table: str | None = msgspec.field(name=f"{_PREFIX}table", default=None)
    collection: str | None = msgspec.field(name=f"{_PREFIX}collection", default=None)
    ts_ms: int | str | None = msgspec.field(name=f"{_PREFIX}tsms", default=None)

    @property
    def time_ms(self) -> int | None:
        """Time of the change at the source, in epoch milliseconds; None if the event has none."""
        try:
            return None if self.ts_ms is None else int(self.ts_ms)
        except ValueError:
            return None


class _Images(msgspec.Struct, frozen=True):
    before: msgspec.Raw = _NULL
    after: msgspec.Raw = _NULL


class _Wrapped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: _Images


_read_event: Final = msgspec.json.Decoder(_Event).decode
_read_images: Final = msgspec.json.Decoder(_Images).decode
_read_wrapped: Final = msgspec.json.Decoder(_Wrapped).decode


def as_debezium_json(value: bytes, _headers: Headers = ()) -> bytes:
    """Return an event as Connect's JSON converter would have written its record.

    The converter leaves records that are no changes as they are: transaction markers, heartbeats, schema changes.

    Raises BadValue for anything but an event of Debezium with JSON, and for a change that is no event.
    """
    try:
        event = _read_event(value)
        if event.specversion is None:
            return _control(value)
        data = _data(event)
        try:
            wrapped = _read_wrapped(data)
            schema, found = wrapped.schema, wrapped.payload
        except msgspec.ValidationError:  # the converter writes no schemas
            schema, found = _NULL, _read_images(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue(f"not an event of Debezium in JSON: {error}") from None
    source = {
        name: one
        for name, one in (
            ("connector", event.connector),
            ("db", event.db),
            ("schema", event.schema),
            ("table", event.table),
            ("collection", event.collection),
            ("ts_ms", event.time_ms),
        )
        if one is not None
    }
    payload = b'{"before":%b,"after":%b,"source":%b,"op":%b}' % (
        bytes(found.before),
        bytes(found.after),
        msgspec.json.encode(source),
        msgspec.json.encode(event.op),
    )
    return payload if bytes(schema) == b"null" else b'{"schema":%b,"payload":%b}' % (bytes(schema), payload)


def _data(event: _Event) -> msgspec.Raw:
    """Return the member `data`. Raises BadValue if it is not JSON, or the event has no operation."""
    kind = event.datacontenttype or _JSON
    if kind != _JSON or event.data_base64 is not msgspec.UNSET:
        raise BadValue(
            f"the data of the event is {kind}, not JSON. Set `data.serializer.type` of the CloudEvents converter to "
            "json"
        )
    if event.op is None:
        raise BadValue(
            f"the event has no attribute {_PREFIX}op, so nobody can tell what it did. Set "
            "`extension.attributes.enable` of the CloudEvents converter to true, and send events of Debezium only"
        )
    if event.data is msgspec.UNSET:
        raise BadValue("the event has no data")
    return event.data


def _control(value: bytes) -> bytes:
    members = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    payload = members.get("payload")
    inner = msgspec.json.decode(payload, type=dict[str, msgspec.Raw] | None) if payload is not None else members
    if inner is not None and "op" in inner:
        raise BadValue("no CloudEvents: it has no specversion. It looks like debezium-json: set `format` to it")
    return value


@dataclass(frozen=True)
class DebeziumCloudEvents:
    """The format `debezium-cloudevents`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "debezium-cloudevents"
    KEPT_HEADERS: ClassVar = frozenset({OLD_KEY_HEADER, NEW_KEY_HEADER})
    DECODING_BLOCKS: ClassVar = False
    CAPABILITIES: ClassVar = FormatCapabilities(
        origin_of,  # of the converted record
        members=(frozenset({"specversion", "source", "type", "id"}),),
        connector_settings_of=lambda options: DebeziumOptions.parsed("debezium-cloudevents", options).connector,
        snapshot_marks_of=snapshot_marks("iodebeziumop", "r", "iodebeziumsnapshot"),
    )

    options: DebeziumOptions = field(default_factory=DebeziumOptions)

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> DebeziumCloudEvents:
        """Return the format with its options: those of `debezium-json`."""
        return cls(DebeziumOptions.parsed(cls.NAME, options))

    def decoder(self, target_of: TargetOf) -> Decoder:
        options = self.options
        decoder = DebeziumJsonDecoder(target_of, options.connector, options.truncates, options.inexact_values)
        return ConvertingDecoder(decoder, as_debezium_json)

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        one = batch.slice(row, row + 1)
        try:
            value = as_debezium_json(one.values[0].as_py() or b"")
        except BadValue as error:
            raise TableNotInferred.for_record(batch, row, str(error)) from None
        try:
            return infer_table(replace(one, values=binary_column([value])), 0)
        except TableNotInferred as error:
            raise TableNotInferred(batch, row, error.reason) from None
