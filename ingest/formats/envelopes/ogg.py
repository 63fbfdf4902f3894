"""The format `ogg-json`: records of Oracle GoldenGate's JSON formatter.

Source: Paimon `cdc/format/ogg/OggRecordParser.java`; GoldenGate for Big Data, JSON formatter (operation mode).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import ClassVar, Final

import msgspec

from tidelake.ingest.formats.base import Skipped
from tidelake.ingest.formats.envelopes.envelope import NULL, ChangeEvent, EmptyRecord, Envelope, NotThisFormat, Op
from tidelake.ingest.formats.envelopes.envelope_format import EnvelopeFormat
from tidelake.ingest.formats.format_capabilities import FormatCapabilities, RecordOrigin, epoch_ms_of, origin_from
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue, read_object

_OPS: Final = {"I": Op.INSERT, "U": Op.UPDATE, "D": Op.DELETE, "T": Op.TRUNCATE}
_NAMES_MAX: Final = 3
_MARKER: Final = "_isMissing"


class OggEnvelope(Envelope):
    """The envelope of a record.

    before: the old row. In a compressed update it has only the key and the columns that changed.
    after: the new row, with the same columns.
    """

    OMITTED: ClassVar = "unchanged"  # compressed updates; nulls are sent, unless omitNullValues is set

    op_type: str | None = None
    table: str | None = None
    primary_keys: list[str] | None = None
    before: msgspec.Raw = NULL
    after: msgspec.Raw = NULL

    def event(self) -> Op | Skipped:
        if self.op_type is None:
            raise NotThisFormat("it has no member `op_type`")
        if self.op_type not in _OPS:
            raise BadValue(f"unknown op_type {self.op_type!r}; expected I, U, D or T")
        return _OPS[self.op_type]

    def source_table(self, topic: str) -> SourceTable:
        """Return the table that `SCHEMA.TABLE` names, or `PDB.SCHEMA.TABLE` for a pluggable database."""
        names = (self.table or "").split(".", _NAMES_MAX - 1)
        if len(names) == _NAMES_MAX:
            return SourceTable(topic, *names)
        return SourceTable(topic, names[0] if len(names) > 1 else None, None, names[-1] or None)

    def shape(self) -> Hashable:
        return self.table, self.op_type in _OPS, tuple(self.primary_keys or ())

    def primary_key(self, key: bytes | None) -> Sequence[str]:
        return self.primary_keys or ()

    def images(self, columns: Collection[str]) -> tuple[Sequence[msgspec.Raw], Sequence[msgspec.Raw] | None]:
        if self.op_type == "U":
            return (self.after,), (self.before,)
        return (self.before if self.op_type == "D" else self.after,), None

    def changes(self, op: Op, columns: Collection[str]) -> Sequence[ChangeEvent]:
        wanted = {Op.INSERT: ("after",), Op.DELETE: ("before",)}.get(op, ("after", "before"))
        for name in wanted:
            if bytes(getattr(self, name)) == b"null":
                why = ", so it is unknown whether it changed the key" if name == "before" and op is Op.UPDATE else ""
                raise EmptyRecord(f"op_type {self.op_type}", name + why)
        before, _ = _split_markers(self.before, columns) if "before" in wanted else (None, frozenset())
        after, missing = _split_markers(self.after, columns) if "after" in wanted else (None, frozenset())
        return [ChangeEvent(op, before, after, unchanged=missing)]


def _split_markers(raw: msgspec.Raw, columns: Collection[str]) -> tuple[dict[str, bytes], frozenset[str]]:
    """Return an image without the markers of missing columns, and the columns that they say are missing.

    With `includeIsMissingFields`, a boolean `<column>_isMissing` follows each column. It distinguishes a column that is
    NULL from one that the trail lacks. A column of the table with such a name is no marker.
    """
    image = read_object(raw)
    markers = {
        name: name.removesuffix(_MARKER)
        for name, value in image.items()
        if name.endswith(_MARKER) and value in (b"true", b"false") and name not in columns
    }
    missing = frozenset(column for name, column in markers.items() if image[name] == b"true")
    return {name: value for name, value in image.items() if name not in markers and name not in missing}, missing


class OggOrigin(OggEnvelope):
    """The envelope with members that only metadata columns need.

    op_ts: time of the change, as text.
    """

    op_ts: str | None = None

    def origin(self) -> RecordOrigin:
        schema, _, table = (self.table or "").rpartition(".")
        return RecordOrigin(schema or None, schema or None, table or None, epoch_ms_of(self.op_ts))


class OggJson(EnvelopeFormat):
    """The format `ogg-json`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "ogg-json"
    ENVELOPE: ClassVar = OggEnvelope
    CAPABILITIES: ClassVar = FormatCapabilities(origin_from(OggOrigin), members=(frozenset({"op_type", "table"}),))
