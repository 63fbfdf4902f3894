"""The format `aws-dms-json`: records that AWS Database Migration Service writes to Kafka and Kinesis.

Source: Paimon `cdc/format/dms/DMSRecordParser.java`; AWS DMS, "Using Apache Kafka as a target".
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import ClassVar, Final

import msgspec

from tidelake.ingest.formats.base import Skipped
from tidelake.ingest.formats.envelopes.envelope import NULL, ChangeEvent, EmptyRecord, Envelope, NotThisFormat, Op
from tidelake.ingest.formats.envelopes.envelope_format import EnvelopeFormat
from tidelake.ingest.formats.format_capabilities import (
    FormatCapabilities,
    RecordOrigin,
    epoch_ms_of,
    origin_from,
    snapshot_marks,
)
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue, read_object

_OPS: Final = {"load": Op.INSERT, "insert": Op.INSERT, "update": Op.UPDATE, "delete": Op.DELETE}
_TRUNCATE: Final = "truncate-table"
_OLD_IN_JSON: Final = b'"BI_'
_OLD: Final = "BI_"  # the prefix of columns with old values (setting BeforeImageSettings)


class _Metadata(msgspec.Struct, gc=False, rename="kebab"):
    record_type: str | None = None
    operation: str | None = None
    schema_name: str | None = None
    table_name: str | None = None


class DmsEnvelope(Envelope):
    """The envelope of a record.

    data: the row. With before images, it also has the old values in columns with the prefix `BI_`.
    """

    OLD_IS_PARTIAL: ClassVar = True
    MISSING_OLD_IS_UNCHANGED: ClassVar = False
    OMITTED: ClassVar = "null"  # IncludeNullAndEmpty=false leaves out columns that are NULL

    data: msgspec.Raw = NULL
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)

    def event(self) -> Op | Skipped:
        metadata = self.metadata
        if metadata.record_type is None or metadata.operation is None:
            raise NotThisFormat("it has no members `metadata.record-type` and `metadata.operation`")
        if metadata.record_type != "data":
            return Op.TRUNCATE if metadata.operation == _TRUNCATE else Skipped.SCHEMA_CHANGE
        if metadata.operation not in _OPS:
            raise BadValue(f"unknown operation {metadata.operation!r}")
        return _OPS[metadata.operation]

    def source_table(self, topic: str) -> SourceTable:
        return SourceTable(topic, self.metadata.schema_name or None, None, self.metadata.table_name or None)

    def shape(self) -> Hashable:
        return self.metadata.schema_name, self.metadata.table_name, self.metadata.record_type, _kind(self.metadata)

    def images(self, columns: Collection[str]) -> tuple[Sequence[msgspec.Raw], Sequence[msgspec.Raw] | None]:
        if self.metadata.operation != "update" or _OLD_IN_JSON not in bytes(self.data):
            return (self.data,), None
        row = read_object(self.data)
        old = {name: raw for name, raw in row.items() if name.startswith(_OLD) and name not in columns}
        if not old:
            return (self.data,), None
        new = ((name, raw) for name, raw in row.items() if name not in old)
        return (_object(new),), (_object((name.removeprefix(_OLD), raw) for name, raw in old.items()),)

    def changes(self, op: Op, columns: Collection[str]) -> Sequence[ChangeEvent]:
        """Return the changes. A column with the prefix `BI_` has an old value, unless the table has such a column."""
        if bytes(self.data) == b"null":
            raise EmptyRecord(f"operation {self.metadata.operation}", "data")
        row = read_object(self.data)
        if op is not Op.UPDATE:
            return [ChangeEvent(op, row, None) if op is Op.DELETE else ChangeEvent(op, None, row)]
        old = {name for name in row if name.startswith(_OLD) and name not in columns}
        after = {name: raw for name, raw in row.items() if name not in old}
        if not old:
            return [ChangeEvent(op, None, after)]
        before = {**after, **{name.removeprefix(_OLD): row[name] for name in old}}
        return [ChangeEvent(op, before, after, knows_old_row=len(old) == len(before))]


class _TimedMetadata(_Metadata):
    timestamp: str | None = None


class DmsOrigin(DmsEnvelope):
    """The envelope with members that only metadata columns need."""

    metadata: _TimedMetadata = msgspec.field(default_factory=_TimedMetadata)

    def origin(self) -> RecordOrigin:
        metadata = self.metadata
        op_ts = epoch_ms_of(metadata.timestamp)
        return RecordOrigin(metadata.schema_name, metadata.schema_name, metadata.table_name, op_ts)


def _object(members: Iterable[tuple[str, bytes]]) -> msgspec.Raw:
    return msgspec.Raw(b"{" + b",".join(msgspec.json.encode(name) + b":" + raw for name, raw in members) + b"}")


def _kind(metadata: _Metadata) -> bool:
    return metadata.operation in _OPS


class DmsJson(EnvelopeFormat):
    """The format `aws-dms-json`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "aws-dms-json"
    ENVELOPE: ClassVar = DmsEnvelope
    CAPABILITIES: ClassVar = FormatCapabilities(
        origin_from(DmsOrigin),
        members=(frozenset({"metadata", "data"}), frozenset({"metadata", "control"})),
        snapshot_marks_of=snapshot_marks("operation", "load"),
    )
