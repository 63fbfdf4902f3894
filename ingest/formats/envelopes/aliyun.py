"""The format `aliyun-json`: records of Alibaba DataWorks' synchronization to Kafka.

Source: Paimon `cdc/format/aliyun/AliyunRecordParser.java`; DataWorks' message format for Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from tidelake.ingest.formats.base import Skipped
from tidelake.ingest.formats.connect_schema import JSON_VALUE, PER_SECOND, SemanticType, SourceType
from tidelake.ingest.formats.envelopes.envelope import NULL, ChangeEvent, EmptyRecord, Envelope, NotThisFormat, Op
from tidelake.ingest.formats.envelopes.envelope_format import EnvelopeFormat
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, RecordOrigin, origin_from
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.types.mysql_types import mysql_source_type
from tidelake.ingest.formats.values.json_text import BadValue, read_object
from tidelake.storage.model.types import BYTES, timestamp

_OPS: Final = {
    "INSERT": Op.INSERT,
    "UPDATE_BEFORE": Op.UPDATE_BEFORE,
    "UPDATE_BEFOR": Op.UPDATE_BEFORE,  # the spelling in DataWorks' documentation
    "UPDATE_AFTER": Op.UPDATE_AFTER,
    "DELETE": Op.DELETE,
    "TRUNCATE": Op.TRUNCATE,
}
_EVENTS: Final = {
    **dict.fromkeys(("CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY"), Skipped.SCHEMA_CHANGE),
    **dict.fromkeys(("TRANSACTION_BEGIN", "TRANSACTION_END", "GTID", "XACOMMIT", "XAROLLBACK"), Skipped.TRANSACTION),
    "MHEARTBEAT": Skipped.HEARTBEAT,
}
# DataWorks' DATE has a time of day. Its values are milliseconds.
_OWN_TYPES: Final = {
    "DATE": SourceType(
        JSON_VALUE.connect, SemanticType.TIMESTAMP, per_second=PER_SECOND["ms"], column_type=timestamp(3)
    ),
    "BYTES": SourceType(JSON_VALUE.connect, SemanticType.BASE64, column_type=BYTES),
}
_WITHOUT_NEW_ROW: Final = frozenset({Op.DELETE, Op.UPDATE_BEFORE})


class _Image(msgspec.Struct, gc=False):
    row: msgspec.Raw = msgspec.field(default=NULL, name="dataColumn")


class _AliyunPayload(msgspec.Struct, gc=False):
    op: str | None = None
    before: _Image | None = None
    after: _Image | None = None


class _SourceNames(msgspec.Struct, gc=False):
    database: str | None = msgspec.field(default=None, name="dbName")
    table: str | None = msgspec.field(default=None, name="tableName")


class _Schema(msgspec.Struct, gc=False):
    columns: msgspec.Raw = msgspec.field(default=NULL, name="dataColumn")
    primary_key: list[str] | None = msgspec.field(default=None, name="primaryKey")
    source: _SourceNames = msgspec.field(default_factory=_SourceNames)


class _SchemaColumn(msgspec.Struct):
    name: str
    type: str


_read_columns: Final = msgspec.json.Decoder(list[_SchemaColumn]).decode


class _Times(msgspec.Struct, gc=False):
    event_ms: int | None = msgspec.field(default=None, name="eventTime")


class _TimedPayload(_AliyunPayload):
    timestamp: _Times | None = None


class AliyunEnvelope(Envelope):
    """The envelope of a record.

    schema: the row's source table, and the types of its columns.
    payload: the images of one row.
    """

    OMITTED: ClassVar = "unchanged"

    schema: _Schema = msgspec.field(default_factory=_Schema)
    payload: _AliyunPayload = msgspec.field(default_factory=_AliyunPayload)
    ddl: bool | None = None

    def event(self) -> Op | Skipped:
        if self.payload.op is None:
            raise NotThisFormat("it has no member `payload.op`")
        if self.ddl:
            return Skipped.SCHEMA_CHANGE
        op = _OPS.get(self.payload.op)
        if op is Op.UPDATE_AFTER and self._old is not None:
            return Op.UPDATE
        if op is None and self.payload.op not in _EVENTS:
            raise BadValue(f"unknown op {self.payload.op!r}")
        return op or _EVENTS[self.payload.op]

    def source_table(self, topic: str) -> SourceTable:
        return SourceTable(topic, self.schema.source.database or None, None, self.schema.source.table or None)

    def shape(self) -> Hashable:
        is_change = self.payload.op in _OPS and not self.ddl
        source, key = self.schema.source, tuple(self.schema.primary_key or ())
        return source.database, source.table, bytes(self.schema.columns), is_change, key

    def declared_types(self) -> Mapping[str, SourceType]:
        if bytes(self.schema.columns) == b"null":
            return {}
        try:
            columns = _read_columns(self.schema.columns)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
            raise BadValue(f"schema.dataColumn: {e}") from None
        return {c.name: _OWN_TYPES.get(c.type.upper()) or mysql_source_type(c.type) for c in columns}

    def primary_key(self, key: bytes | None) -> Sequence[str]:
        return self.schema.primary_key or ()

    @property
    def _old(self) -> msgspec.Raw | None:
        before = self.payload.before
        return None if before is None or bytes(before.row) == b"null" else before.row

    @property
    def _new(self) -> msgspec.Raw | None:
        after = self.payload.after
        return None if after is None or bytes(after.row) == b"null" else after.row

    def images(self, columns: Collection[str]) -> tuple[Sequence[msgspec.Raw], Sequence[msgspec.Raw] | None]:
        op = self.event()
        row = self._old if op in _WITHOUT_NEW_ROW else self._new
        if row is None:
            raise ValueError("an image is missing")
        return (row,), (self._old,) if op is Op.UPDATE and self._old is not None else None

    def changes(self, op: Op, columns: Collection[str]) -> Sequence[ChangeEvent]:
        old, new = self._old, self._new
        member = "before" if op in _WITHOUT_NEW_ROW else "after"
        if (old if op in _WITHOUT_NEW_ROW else new) is None:
            raise EmptyRecord(f"op {self.payload.op}", f"payload.{member}")
        before = None if old is None else read_object(old)
        return [ChangeEvent(op, before, None if new is None or op in _WITHOUT_NEW_ROW else read_object(new))]


class AliyunOrigin(AliyunEnvelope):
    """The envelope with members that only metadata columns need."""

    payload: _TimedPayload = msgspec.field(default_factory=_TimedPayload)

    def origin(self) -> RecordOrigin:
        names, times = self.schema.source, self.payload.timestamp
        return RecordOrigin(names.database, None, names.table, None if times is None else times.event_ms)


class AliyunJson(EnvelopeFormat):
    """The format `aliyun-json`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "aliyun-json"
    ENVELOPE: ClassVar = AliyunEnvelope
    CAPABILITIES: ClassVar = FormatCapabilities(
        origin_from(AliyunOrigin), members=(frozenset({"schema", "payload", "version"}),)
    )
