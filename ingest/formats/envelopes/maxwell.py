"""The format `maxwell-json`: records of Maxwell's Daemon.

Source: Maxwell `RowMap`, `DDLMap`, its data format page. Paimon: `cdc/format/maxwell/MaxwellRecordParser.java`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any, ClassVar, Final

import msgspec

from tidelake.ingest.formats.base import Skipped
from tidelake.ingest.formats.envelopes.envelope import NULL, ChangeEvent, EmptyRecord, Envelope, NotThisFormat, Op
from tidelake.ingest.formats.envelopes.envelope_format import EnvelopeFormat
from tidelake.ingest.formats.format_capabilities import (
    FormatCapabilities,
    RecordOrigin,
    origin_from,
    snapshot_marks,
)
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue, read_object

_OPS: Final = {"insert": Op.INSERT, "bootstrap-insert": Op.INSERT, "update": Op.UPDATE, "delete": Op.DELETE}
_SKIPPED: Final = {
    **dict.fromkeys(("bootstrap-start", "bootstrap-complete"), Skipped.MESSAGE),
    "heartbeat": Skipped.HEARTBEAT,
    **dict.fromkeys(
        (f"{what}-{how}" for what in ("table", "database") for how in ("create", "alter", "drop")),
        Skipped.SCHEMA_CHANGE,
    ),
}
_KEY_PREFIX: Final = "pk."


class MaxwellEnvelope(Envelope):
    """The envelope of a record.

    data: the row.
    old: for an update, the old values of the columns that changed.
    """

    OLD_IS_PARTIAL: ClassVar = True
    OLD_LISTS_CHANGES: ClassVar = True
    OMITTED: ClassVar = "unchanged"
    KEY_NAMES_COLUMNS: ClassVar = True

    type: str | None = None
    data: msgspec.Raw = NULL
    old: msgspec.Raw = NULL
    database: str | None = None
    table: str | None = None
    primary_key_columns: list[str] | None = None
    sql: str | None = None

    def ddl_text(self) -> str | None:
        return self.sql

    def event(self) -> Op | Skipped:
        event = _OPS.get(self.type or "") or _SKIPPED.get(self.type or "")
        if event is None:
            if self.type is None:
                raise NotThisFormat("it has no member `type`")
            raise BadValue(f"unknown type {self.type!r}")
        return event

    def source_table(self, topic: str) -> SourceTable:
        return SourceTable(topic, self.database or None, None, self.table or None)

    def shape(self) -> Hashable:
        return self.database, self.table, self.type in _OPS, tuple(self.primary_key_columns or ())

    def keyed(self, key: bytes | None) -> Envelope:
        if self.primary_key_columns is None:
            self.primary_key_columns = [*self.primary_key(key)]
        return self

    def primary_key(self, key: bytes | None) -> Sequence[str]:
        """Return `primary_key_columns`, which Maxwell sends if configured; else members `pk.<column>` of the key."""
        if self.primary_key_columns is not None or key is None:
            return self.primary_key_columns or ()
        try:
            members: Any = msgspec.json.decode(key)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return ()
        names = members if isinstance(members, dict) else ()
        return [name.removeprefix(_KEY_PREFIX) for name in names if name.startswith(_KEY_PREFIX)]

    def images(self, columns: Collection[str]) -> tuple[Sequence[msgspec.Raw], Sequence[msgspec.Raw] | None]:
        return (self.data,), (self.old,) if self.type == "update" else None

    def changes(self, op: Op, columns: Collection[str]) -> Sequence[ChangeEvent]:
        if bytes(self.data) == b"null":
            raise EmptyRecord(f"a record of type {self.type}", "data")
        row = read_object(self.data)
        if op is not Op.UPDATE:
            return [ChangeEvent(op, row, None) if op is Op.DELETE else ChangeEvent(op, None, row)]
        if bytes(self.old) == b"null":
            raise BadValue("the update has no `old`, so it is unknown whether it changed the key")
        return [ChangeEvent(op, {**row, **read_object(self.old)}, row)]


class MaxwellOrigin(MaxwellEnvelope):
    """The envelope with members that only metadata columns need.

    ts: time of the change, in epoch seconds.
    """

    ts: int | None = None

    def origin(self) -> RecordOrigin:
        return RecordOrigin(self.database, None, self.table, None if self.ts is None else self.ts * 1000)


class MaxwellJson(EnvelopeFormat):
    """The format `maxwell-json`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "maxwell-json"
    ENVELOPE: ClassVar = MaxwellEnvelope
    CAPABILITIES: ClassVar = FormatCapabilities(
        origin_from(MaxwellOrigin),
        members=(frozenset({"type", "data", "database", "table"}),),
        snapshot_marks_of=snapshot_marks("type", "bootstrap-insert"),
    )
