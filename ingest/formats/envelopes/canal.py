"""The format `canal-json`: flat messages of Alibaba Canal.

Source: Canal `FlatMessage`, `MQMessageUtils`; TiCDC's canal-json. Paimon: `cdc/format/canal/CanalRecordParser.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, Final, Literal

import msgspec
import numpy as np

from tidelake.ingest.formats.base import Skipped
from tidelake.ingest.formats.connect_schema import SourceType
from tidelake.ingest.formats.envelopes.envelope import (
    NULL,
    ChangeEvent,
    DirectReader,
    EmptyRecord,
    Envelope,
    ImageTypes,
    NotThisFormat,
    Op,
    RowImages,
)
from tidelake.ingest.formats.envelopes.envelope_format import EnvelopeFormat
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, RecordOrigin, origin_from
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.types.mysql_types import mysql_source_type
from tidelake.ingest.formats.values.json_text import BadValue, read_object

_OPS: Final = {"INSERT": Op.INSERT, "ROW": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE, "TRUNCATE": Op.TRUNCATE}
_EVENTS: Final = {
    **dict.fromkeys(("CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX"), Skipped.SCHEMA_CHANGE),
    **dict.fromkeys(("GTID", "XACOMMIT", "XAROLLBACK"), Skipped.TRANSACTION),
    **dict.fromkeys(("MHEARTBEAT", "TIDB_WATERMARK"), Skipped.HEARTBEAT),
}
_ROW_OPS: Final = {type_: op for type_, op in _OPS.items() if op is not Op.TRUNCATE}
_ROW_OP_CODES: Final = {type_: int(op) for type_, op in _ROW_OPS.items()}
_STATEMENTS_WITH_ROWS: Final = ("insert", "update", "delete", "replace", "load")


class CanalEnvelope(Envelope):
    """The envelope of a message.

    data: the rows.
    old: for an UPDATE, the old values of the columns that changed, one object for each row of `data`.
    mysql_type: an object with MySQL's type of each column.
    """

    OLD_IS_PARTIAL: ClassVar = True
    OLD_LISTS_CHANGES: ClassVar = True
    OMITTED: ClassVar = "unchanged"

    type: str | None = None
    data: list[msgspec.Raw] | None = None
    old: list[msgspec.Raw] | None = None
    is_ddl: bool | None = msgspec.field(default=False, name="isDdl")
    database: str | None = None
    table: str | None = None
    mysql_type: msgspec.Raw = msgspec.field(default=NULL, name="mysqlType")
    pk_names: list[str] | None = msgspec.field(default=None, name="pkNames")
    sql: str | None = None

    def event(self) -> Op | Skipped:
        op = _OPS.get(self.type or "")
        if op is not None and (not self.is_ddl or op is Op.TRUNCATE):
            return op
        if self.type is None:
            raise NotThisFormat("it has no member `type`")
        if self.is_ddl:
            return Skipped.SCHEMA_CHANGE
        if self.type in _EVENTS:
            return _EVENTS[self.type]
        if self.type == "QUERY" and not self.data:
            if (self.sql or "").lstrip().lower().startswith(_STATEMENTS_WITH_ROWS):
                raise BadValue("it has a statement instead of the changed rows: set binlog_format=ROW at the source")
            return Skipped.MESSAGE
        raise BadValue(f"unknown type {self.type!r}")

    def source_table(self, topic: str) -> SourceTable:
        return SourceTable(topic, self.database or None, None, self.table or None)

    def ddl_text(self) -> str | None:
        return self.sql

    def shape(self) -> Hashable:
        is_change = self.type in _OPS and not self.is_ddl
        if not is_change:
            return self.database, self.table, None
        return self.database, self.table, bytes(self.mysql_type), tuple(self.pk_names or ())

    def declared_types(self) -> Mapping[str, SourceType]:
        if bytes(self.mysql_type) == b"null":
            return {}
        try:
            types: dict[str, str] = msgspec.json.decode(self.mysql_type, type=dict[str, str])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
            raise BadValue(f"mysqlType: {e}") from None
        return {name: mysql_source_type(text) for name, text in types.items()}

    def primary_key(self, key: bytes | None) -> Sequence[str]:
        return self.pk_names or ()

    def images(self, columns: Collection[str]) -> tuple[Sequence[msgspec.Raw], Sequence[msgspec.Raw] | None]:
        if not self.data or (self.type == "UPDATE" and self.old is None):
            raise ValueError("rows are missing")
        return self.data, self.old if self.type == "UPDATE" else None

    def direct_reader(self, images: ImageTypes) -> DirectReader | None:
        return _CanalDirectReader(self.database, self.table, self.mysql_type, self.pk_names, images)

    def changes(self, op: Op, columns: Collection[str]) -> Sequence[ChangeEvent]:
        if not self.data:
            raise EmptyRecord(f"a record of type {self.type}", "data")
        rows = [_image(raw, "data") for raw in self.data]
        if op is not Op.UPDATE:
            return [ChangeEvent(op, row, None) if op is Op.DELETE else ChangeEvent(op, None, row) for row in rows]
        if self.old is None or len(self.old) != len(rows):
            raise BadValue(f"an UPDATE of {len(rows)} rows, with {len(self.old or ())} in `old`")
        # Old and new rows are matched by position, because a message may contain equal rows.
        return [ChangeEvent(op, {**row, **_image(old, "old")}, row) for row, old in zip(rows, self.old, strict=True)]


class CanalOrigin(CanalEnvelope):
    """The envelope with members that only metadata columns need.

    es: time of the change, in epoch milliseconds.
    """

    es: int | None = None

    def origin(self) -> RecordOrigin:
        return RecordOrigin(self.database, None, self.table, self.es)


def _image(raw: msgspec.Raw, member: str) -> Mapping[str, bytes]:
    try:
        return read_object(raw)
    except BadValue as e:
        raise BadValue(f"{member}: {e}") from None


class _CanalDirectReader:
    """A reader of many messages of one table and one `mysqlType` at once, with their rows. It refuses other messages.

    database: the database in all messages.
    table: the table in all messages.
    mysql_type: the `mysqlType` in all messages.
    pk_names: the `pkNames` in all messages.
    images: the structs into which rows are decoded.
    """

    def __init__(
        self,
        database: str | None,
        table: str | None,
        mysql_type: msgspec.Raw,
        pk_names: list[str] | None,
        images: ImageTypes,
    ) -> None:
        self._pk_names = pk_names
        self._mysql_type = msgspec.Raw(bytes(mysql_type))

        def decoder(image: Any, old: Any) -> Callable[[bytes | memoryview], list[Any]]:
            message = msgspec.defstruct(
                "Message",
                [
                    ("type", Literal["INSERT", "ROW", "UPDATE", "DELETE"]),
                    ("data", list[image]),
                    ("old", list[old] | None, None),
                    ("is_ddl", bool | None, msgspec.field(default=False, name="isDdl")),
                    ("database", *_exact_member(database)),
                    ("table", *_exact_member(table)),
                    ("mysql_type", msgspec.Raw, msgspec.field(default=msgspec.Raw(b"null"), name="mysqlType")),
                    ("pk_names", list[str] | None, msgspec.field(default=None, name="pkNames")),
                ],
                gc=False,
                kw_only=True,
            )
            return msgspec.json.Decoder(message, float_hook=str.encode).decode_lines

        self._decode, self._decode_partial = (
            decoder(images.whole, images.old),
            decoder(images.partial, images.partial),  # a column that a row lacks may be in its old row
        )

    def read(self, messages: bytes | memoryview, n: int) -> RowImages:
        try:
            found = self._decode(messages)
        except msgspec.ValidationError:  # some or all messages lack a column of the table
            found = self._decode_partial(messages)
            self._decode = self._decode_partial
        # Each loop is short and reads one field: any access to a message in Python costs more than parsing it.
        if len(found) != n:
            raise ValueError("not one record each")
        rows: list[Sequence[Any]] = [message.data for message in found]
        counts = [*map(len, rows)]
        if True in [message.is_ddl for message in found] or not min(counts):
            raise ValueError("messages without rows")
        if [message.mysql_type for message in found].count(self._mysql_type) != n:
            raise ValueError("another schema")
        if [message.pk_names for message in found].count(self._pk_names) != n:
            raise ValueError("another key")
        types = [message.type for message in found]
        codes = np.frombuffer(bytes([*map(_ROW_OP_CODES.__getitem__, types)]), np.int8)
        old_rows = [message.old if message.type == "UPDATE" else None for message in found]
        if old_rows.count(None) != n - types.count("UPDATE"):
            raise ValueError("an update without old rows")
        if max(counts) == 1:
            if not {len(old) for old in old_rows if old is not None} <= {1}:
                raise ValueError("more old rows than new ones, or fewer")
            return [row for (row,) in rows], [None if old is None else old[0] for old in old_rows], codes, counts
        if any(old is not None and len(old) != count for old, count in zip(old_rows, counts, strict=True)):
            raise ValueError("more old rows than new ones, or fewer")
        old_images: list[Any] = []
        for old, count in zip(old_rows, counts, strict=True):
            old_images += [None] * count if old is None else old
        return [*chain.from_iterable(rows)], old_images, np.repeat(codes, counts), counts


def _exact_member(name: str | None) -> tuple[Any, Any]:
    """Return (type, default) of a struct's member that accepts exactly this name."""
    return (str | None, None) if not name else (Literal[name], msgspec.NODEFAULT)


_NAMES: Final = ("database", "table")  # Maxwell's records have these members, too


class CanalJson(EnvelopeFormat):
    """The format `canal-json`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "canal-json"
    ENVELOPE: ClassVar = CanalEnvelope
    CAPABILITIES: ClassVar = FormatCapabilities(
        origin_from(CanalOrigin),
        members=tuple(
            frozenset({"type", "data", own, *names}) for own in ("isDdl", "mysqlType") for names in ((), _NAMES)
        ),
    )
