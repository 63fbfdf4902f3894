"""The format `json`: each record is an object of columns. It is a row that is inserted, or replaces that of its key."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import msgspec

from tidelake.errors import BadInput, TableNotInferred
from tidelake.ingest.formats.base import Decoder, InferredTable, Skipped, TargetOf
from tidelake.ingest.formats.debezium.converted_records import ConvertingDecoder
from tidelake.ingest.formats.envelopes.envelope import NULL, ChangeEvent, Envelope, Op
from tidelake.ingest.formats.envelopes.envelope_format import EnvelopeFormat
from tidelake.ingest.formats.envelopes.envelope_options import EnvelopeOptions
from tidelake.ingest.formats.envelopes.envelope_reader import EnvelopeReader
from tidelake.ingest.formats.registry import format_like, other_format_hint
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue, read_object
from tidelake.ingest.raw_batch import Headers, RawBatch, binary_column

FRAMINGS: Final = ("none", "confluent")
_FRAME_BYTES: Final = 5
_Raws: Final[Any] = msgspec.json.Decoder(msgspec.Raw)


def refuse_other_format(members: Collection[str], columns: Collection[str]) -> None:
    """Raise BadValue for a record that looks like one of another format, as its envelope would become columns.

    A record whose members are all columns of the table is a row.
    """
    other = format_like(members)
    if other is not None and not set(members) <= set(columns):
        raise BadValue(f"not a row: it looks like {other}. Set `format` to the format of the topic")


def unframed_json(value: bytes, _headers: Headers = ()) -> bytes:
    """Return the JSON of a record in Confluent's frame. Raises BadValue for a record without the frame."""
    if len(value) < _FRAME_BYTES or value[0] != 0:
        begin = value[:8].hex(" ") or "nothing"
        raise BadValue(
            f"not in Confluent's frame: it begins with {begin}, not with a zero byte and a schema id. If no record of "
            "the topic has the frame, leave out `framing`"
        )
    return value[_FRAME_BYTES:]


class JsonRow(Envelope):
    """A record that is a row. Only the topic names the source table.

    row: the whole record.
    """

    row: msgspec.Raw = NULL

    def event(self) -> Op | Skipped:
        return Op.INSERT

    def source_table(self, topic: str) -> SourceTable:
        return SourceTable(topic)

    def shape(self) -> Hashable:
        return None

    def images(self, columns: Collection[str]) -> tuple[Sequence[msgspec.Raw], Sequence[msgspec.Raw] | None]:
        return (self.row,), None

    def changes(self, op: Op, columns: Collection[str]) -> Sequence[ChangeEvent]:
        row = read_object(self.row)
        refuse_other_format(row.keys(), columns)
        return [ChangeEvent(op, None, row)]


class _JsonReader(EnvelopeReader):
    """A reader of rows without an envelope."""

    def read(self, value: bytes) -> Envelope:
        if value[:1] == b"\0":
            raise BadValue(f"not JSON: it begins with a zero byte{other_format_hint(value, PlainJson.NAME)}")
        if value[:1] == b"\3" and (hint := other_format_hint(value, PlainJson.NAME)):
            raise BadValue(f"not JSON{hint}")
        read_object(value)
        return JsonRow(row=msgspec.Raw(value))

    def read_all(self, values: bytes | memoryview, n: int) -> Sequence[Envelope]:
        rows = _Raws.decode_lines(values)
        if len(rows) != n:
            raise ValueError("not one record each")
        return [JsonRow(row=row) for row in rows]


@dataclass(frozen=True)
class PlainJson(EnvelopeFormat):
    """The format `json`. See `tidelake.ingest.formats.base.Format`.

    is_framed: whether a zero byte and the id of a schema precede each record, as Confluent's serializers for JSON
        Schema write them. The schema is not read: JSON says what its values are.
    """

    NAME: ClassVar = "json"
    ENVELOPE: ClassVar = JsonRow

    is_framed: bool = False

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> PlainJson:
        """Return the format with its options: `framing`, and those of all formats with envelopes."""
        framing = options.get("framing", "none")
        if framing not in FRAMINGS:
            raise BadInput(f"framing of json must be {' or '.join(FRAMINGS)}, not {framing!r}")
        others = {name: value for name, value in options.items() if name != "framing"}
        return cls(EnvelopeOptions.parsed(cls.NAME, others), framing == "confluent")

    def decoder(self, target_of: TargetOf) -> Decoder:
        decoder = super().decoder(target_of)
        return ConvertingDecoder(decoder, unframed_json) if self.is_framed else decoder

    def reader(self) -> EnvelopeReader:
        return _JsonReader(JsonRow, self.NAME)

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        """Return the table of a record.

        Raises BadInput for a record that looks like one of another format: its envelope would become columns.
        """
        if self.is_framed:
            try:
                value = unframed_json(batch.values[row].as_py() or b"")
            except BadValue as error:
                raise TableNotInferred.for_record(batch, row, str(error)) from None
            batch, row = replace(batch.slice(row, row + 1), values=binary_column([value])), 0
        try:
            other = format_like(read_object(batch.values[row].as_py() or b"").keys())
        except BadValue:
            other = None
        if other is not None:
            raise BadInput(  # not TableNotInferred: a tolerance would make dead letters of the whole topic
                f"topic {batch.topic}, partition {batch.partition}, offset {int(batch.offsets[row])}: no table can be "
                f"derived from this record: it looks like {other}: set `format` to the format of the topic"
            )
        return super().infer_table(batch, row)
