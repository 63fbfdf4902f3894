"""The format `debezium-bson`: change records of Debezium's MongoDB connector. Documents are texts of extended JSON.

Source: Paimon `cdc/format/debezium/DebeziumBsonRecordParser.java`; Debezium 3.5, "MongoDB connector".
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from tidelake.ingest.formats.base import Skipped, Target
from tidelake.ingest.formats.debezium.origin import origin_of
from tidelake.ingest.formats.debezium.record_key import key_members
from tidelake.ingest.formats.envelopes.envelope import NULL, ChangeEvent, Envelope, NotThisFormat, Op
from tidelake.ingest.formats.envelopes.envelope_decoder import EnvelopeDecoder
from tidelake.ingest.formats.envelopes.envelope_format import EnvelopeFormat
from tidelake.ingest.formats.envelopes.extended_json import document_members, plain_json
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, snapshot_marks
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue, JsonKind, kind_of, read_object, read_text

ID: Final = "_id"
_WHOLE_DOCUMENTS: Final = "Let the connector send whole documents (capture.mode=change_streams_update_full)"
_OPS: Final = {"c": Op.INSERT, "r": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE}


class _Source(msgspec.Struct, gc=False):
    db: str | None = None
    collection: str | None = None


class _UpdateDescription(msgspec.Struct, gc=False, rename="camel"):
    """What an update changed, by paths. It stands beside the document, or in place of it."""

    updated_fields: msgspec.Raw = NULL
    removed_fields: list[str] | None = None
    truncated_arrays: msgspec.Raw = NULL


class _Payload(msgspec.Struct, gc=False, kw_only=True):
    op: str | None = None
    before: msgspec.Raw = NULL
    after: msgspec.Raw = NULL
    update: _UpdateDescription | None = msgspec.field(name="updateDescription", default=None)
    patch: msgspec.Raw = NULL
    source: _Source | None = None
    status: str | None = None
    id: str | None = None
    ts_ms: int | None = None


class BsonEnvelope(Envelope):
    """The envelope of a record with or without a schema.

    payload: the payload of a record with a schema. Without a schema, the envelope has the payload's members.
    key: the record's key.
    """

    ROW_BY_ROW_ONLY: ClassVar = True

    op: str | None = None
    before: msgspec.Raw = NULL
    after: msgspec.Raw = NULL
    update: _UpdateDescription | None = msgspec.field(name="updateDescription", default=None)
    patch: msgspec.Raw = NULL
    source: _Source | None = None
    status: str | None = None
    id: str | None = None
    ts_ms: int | None = None
    payload: _Payload | None = None
    operation_type: str | None = msgspec.field(name="operationType", default=None)
    key: bytes | None = msgspec.field(default=None, name="$key")

    def keyed(self, key: bytes | None) -> BsonEnvelope:
        return msgspec.structs.replace(self, key=key)

    @property
    def _content(self) -> _Payload | BsonEnvelope:
        return self.payload or self

    def event(self) -> Op | Skipped:
        content = self._content
        if content.op is None and self.operation_type is not None:
            raise NotThisFormat(
                "it is a change event of MongoDB's own Kafka connector (`operationType`), which is not read. Use "
                "Debezium's MongoDB connector for the topic"
            )
        if content.op is None:
            if content.status is not None and content.id is not None:
                return Skipped.TRANSACTION
            if content.source is None and content.ts_ms is not None:
                return Skipped.HEARTBEAT
            raise NotThisFormat("it has no member `op`")
        if content.op == "m":
            return Skipped.MESSAGE
        if content.op not in _OPS:
            raise BadValue(f"unknown op {content.op!r}; expected c, r, u, d or m")
        return _OPS[content.op]

    def source_table(self, topic: str) -> SourceTable:
        source = self._content.source or _Source()
        return SourceTable(topic, source.db or None, None, source.collection or None)

    def shape(self) -> Hashable:
        source = self._content.source or _Source()
        return source.db, source.collection, self._content.op in _OPS

    def primary_key(self, key: bytes | None) -> Sequence[str]:
        return (ID,)

    def changes(self, op: Op, columns: Collection[str]) -> Sequence[ChangeEvent]:
        """Return the changes. Columns of the table that a document lacks are null, as documents are always whole."""
        before, after = _document(self._content.before, "before"), _document(self._content.after, "after")
        if op is Op.DELETE:
            return [ChangeEvent(op, before or {ID: plain_json(self._raw_id_of_key())}, None)]
        if after is None and op is Op.UPDATE:
            return [self._update_without_document(before, columns)]
        if after is None:
            raise BadValue(f"op {self._content.op} has no document. {_WHOLE_DOCUMENTS}")
        absent = dict.fromkeys(columns, b"null")
        old = None if before is None or op is not Op.UPDATE else {**absent, **before}
        return [ChangeEvent(op, old, {**absent, **after})]

    def _update_without_document(self, before: dict[str, bytes] | None, columns: Collection[str]) -> ChangeEvent:
        """Return an update that has only the description of what changed.

        Columns that it does not name did not change. With the document before the change, all are known.
        """
        content = self._content
        if bytes(content.patch) != b"null":
            raise BadValue(
                "the update is a `patch` of the oplog, as Debezium before 2.0 sends it, and has no document. "
                f"{_WHOLE_DOCUMENTS}"
            )
        if content.update is None:
            raise BadValue(f"op {content.op} has no document. {_WHOLE_DOCUMENTS}")
        changed = _changed_fields(content.update)
        if before is not None:
            old = {**dict.fromkeys(columns, b"null"), **before}
            return ChangeEvent(Op.UPDATE, old, {**old, **changed})
        after = {**changed, ID: plain_json(self._raw_id_of_key())}
        return ChangeEvent(Op.UPDATE, None, after, unchanged=frozenset(columns) - after.keys())

    def raw_id(self) -> bytes | None:
        """Return the document's id in extended JSON; None if the record has no document."""
        content = self._content
        for raw in map(bytes, (content.after, content.before)):
            if raw != b"null":
                return read_object(_json_text(raw, ID) if kind_of(raw) is JsonKind.TEXT else raw).get(ID)
        return self._raw_id_of_key()

    def _raw_id_of_key(self) -> bytes:
        """Return the document's id. Member `id` of the record's key is a text of extended JSON."""
        members: Mapping[str, bytes] = {}
        if isinstance(self.key, bytes):
            members = key_members(self.key)
        raw = members.get("id", b"null")
        if kind_of(raw) is not JsonKind.TEXT:
            raise BadValue("the record has no document, and its key has no member `id`")
        return _json_text(raw, "id of the key")


def _document(raw: msgspec.Raw, member: str) -> dict[str, bytes] | None:
    """Return the fields of a document; None for null.

    It is a text of extended JSON. A transformation at the connector may have replaced the text by the document itself.
    """
    data = bytes(raw)
    if data == b"null":
        return None
    try:
        found = document_members(_json_text(data, member) if kind_of(data) is JsonKind.TEXT else data)
    except BadValue as e:
        raise BadValue(f"{member}: {e}") from None
    if found.get(ID, b"null") == b"null":
        raise BadValue(f"{member}: the document has no {ID}")
    return found


def _changed_fields(update: _UpdateDescription) -> dict[str, bytes]:
    """Return column name to value of the fields that an update set or removed.

    Raises BadValue if it changed a part of a field: the field's whole value is not in the record then.
    """
    changed: dict[str, bytes] = {}
    raw = bytes(update.updated_fields)
    if raw != b"null":
        try:
            changed = document_members(_json_text(raw, "updatedFields") if kind_of(raw) is JsonKind.TEXT else raw)
        except BadValue as e:
            raise BadValue(f"updateDescription: {e}") from None
    changed |= dict.fromkeys(update.removed_fields or (), b"null")
    parts = sorted(name for name in changed if "." in name)
    if parts or bytes(update.truncated_arrays) not in (b"null", b"[]"):
        what = ", ".join(parts) or "elements of an array"
        raise BadValue(f"the update changed only a part of a field ({what}), and has no document. {_WHOLE_DOCUMENTS}")
    if ID in changed:
        raise BadValue(f"updateDescription: it changes {ID}, which MongoDB does not allow")
    return changed


def _json_text(raw: bytes, what: str) -> bytes:
    data = read_text(raw).encode()
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError) as e:
        raise BadValue(f"{what}: not extended JSON ({e})") from None
    return data.strip()


class BsonDecoder(EnvelopeDecoder):
    """Refuses ids that the text of another id could be equal to."""

    def _check_identity(self, target: Target, record: Envelope) -> None:
        raw = record.raw_id() if isinstance(record, BsonEnvelope) and ID in target.schema.primary_keys else None
        if raw is not None and raw != b"null":
            target.document_ids.check(target.name, raw, _column_text(raw))


def _column_text(raw: bytes) -> str:
    plain = plain_json(raw)
    return read_text(plain) if kind_of(plain) is JsonKind.TEXT else plain.decode()


class DebeziumBson(EnvelopeFormat):
    """The format `debezium-bson`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "debezium-bson"
    ENVELOPE: ClassVar = BsonEnvelope
    CAPABILITIES: ClassVar = FormatCapabilities(
        origin_of, has_document_ids=True, snapshot_marks_of=snapshot_marks("op", "r", "snapshot")
    )
    DECODER: ClassVar = BsonDecoder
