"""The base class of formats with envelopes. A subclass defines the format's name and its envelope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from tidelake.ingest.formats.base import InferredTable, TableNotInferred, TargetOf
from tidelake.ingest.formats.envelopes.decoder import EnvelopeDecoder
from tidelake.ingest.formats.envelopes.envelope import Envelope
from tidelake.ingest.formats.envelopes.options import EnvelopeOptions
from tidelake.ingest.formats.envelopes.reader import EnvelopeReader
from tidelake.ingest.formats.envelopes.table_inference import infer_table
from tidelake.ingest.formats.format_capabilities import FormatCapabilities
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import RawBatch


@dataclass(frozen=True)
class EnvelopeFormat:
    """A format with envelopes. See `tidelake.ingest.formats.base.Format`.

    ENVELOPE: the struct into which its records are decoded.
    """

    NAME: ClassVar[str]
    KEPT_HEADERS: ClassVar[frozenset[str]] = frozenset()
    DECODING_BLOCKS: ClassVar[bool] = False
    CAPABILITIES: ClassVar[FormatCapabilities] = FormatCapabilities()
    ENVELOPE: ClassVar[type[Envelope]]

    options: EnvelopeOptions = field(default_factory=EnvelopeOptions)

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> Self:
        return cls(EnvelopeOptions.parsed(cls.NAME, options))

    def decoder(self, target_of: TargetOf) -> EnvelopeDecoder:
        return EnvelopeDecoder(target_of, self.reader(), self.options)

    def reader(self) -> EnvelopeReader:
        return EnvelopeReader(self.ENVELOPE)

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        try:
            record = self.reader().read(batch.values[row].as_py() or b"")
            return infer_table(record.keyed(batch.keys[row].as_py()), batch, row)
        except BadValue as error:
            raise TableNotInferred.for_record(batch, row, str(error)) from None
