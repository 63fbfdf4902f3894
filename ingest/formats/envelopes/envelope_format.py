"""The base class of formats with envelopes. A subclass defines the format's name and its envelope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from tidelake.errors import TableNotInferred
from tidelake.ingest.formats.base import Decoder, InferredTable, TargetOf
from tidelake.ingest.formats.connect_schema import JSON_VALUE, SourceType
from tidelake.ingest.formats.envelopes.envelope import Envelope, Op
from tidelake.ingest.formats.envelopes.envelope_decoder import EnvelopeDecoder
from tidelake.ingest.formats.envelopes.envelope_options import EnvelopeOptions
from tidelake.ingest.formats.envelopes.envelope_reader import EnvelopeReader
from tidelake.ingest.formats.envelopes.omitted_columns import OmittedColumns
from tidelake.ingest.formats.format_capabilities import FormatCapabilities
from tidelake.ingest.formats.types.inferred_types import inferred_type
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.model.types import DataField, not_null


@dataclass(frozen=True)
class EnvelopeFormat:
    """A format with envelopes. See `tidelake.ingest.formats.base.Format`.

    A subclass sets NAME, ENVELOPE and, if there are any, CAPABILITIES.

    ENVELOPE: the struct into which its records are decoded.
    """

    NAME: ClassVar[str]
    KEPT_HEADERS: ClassVar[frozenset[str]] = frozenset()
    DECODING_BLOCKS: ClassVar[bool] = False
    CAPABILITIES: ClassVar[FormatCapabilities] = FormatCapabilities()
    ENVELOPE: ClassVar[type[Envelope]]
    DECODER: ClassVar[type[EnvelopeDecoder]] = EnvelopeDecoder

    options: EnvelopeOptions = field(default_factory=EnvelopeOptions)

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> Self:
        return cls(EnvelopeOptions.parsed(cls.NAME, options, has_partial_rows=cls.ENVELOPE.OMITTED is not None))

    def decoder(self, target_of: TargetOf) -> Decoder:
        return self.DECODER(
            target_of, self.reader(), self.options, OmittedColumns.of(self.ENVELOPE, self.options.omitted)
        )

    def reader(self) -> EnvelopeReader:
        return EnvelopeReader(self.ENVELOPE, self.NAME)

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        try:
            record = self.reader().read(batch.values[row].as_py() or b"")
            return _described_table(record.keyed(batch.keys[row].as_py()), batch, row)
        except BadValue as error:
            raise TableNotInferred.for_record(batch, row, str(error)) from None


def _described_table(record: Envelope, batch: RawBatch, row: int) -> InferredTable:
    """Return the table that a record describes.

    The columns have the types that the record declares. If it declares none, all columns are STRING, as in Paimon's own
    ingestion.

    record: the record in that row.

    Raises BadValue if the record has no row.
    """
    columns = _columns(record)
    key_columns = record.primary_key(batch.keys[row].as_py())
    primary_key = tuple(name for name in key_columns if name in columns)
    fields = []
    for number, (name, source) in enumerate(columns.items()):
        column_type = inferred_type(source)
        fields.append(DataField(number, name, not_null(column_type) if name in primary_key else column_type))
    outside = {name: JSON_VALUE for name in key_columns if name not in columns}
    return InferredTable(tuple(fields), primary_key, columns, outside=outside)


def _columns(record: Envelope) -> Mapping[str, SourceType]:
    event = record.event()
    if not isinstance(event, Op) or event is Op.TRUNCATE:
        raise BadValue("it has no row")
    if declared := record.declared_types():
        return declared
    change = record.changes(event, ())[0]
    image = change.before if change.after is None else {**change.after, **(change.before or {})}
    return dict.fromkeys([*(image or {}), *sorted(change.unchanged)], JSON_VALUE)
