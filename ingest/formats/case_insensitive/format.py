"""Any format, for tables whose columns are in lower case whatever the source writes.

Facts: Java's `sink/CaseSensitiveUtils` and `CdcActionCommonUtils.listCaseConvert`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ingest.formats.base import Decoder, Format, InferredTable, TableNotInferred, TargetOf
from ingest.formats.case_insensitive.case_duplicates import case_duplicate_text, first_case_duplicate
from ingest.formats.case_insensitive.decoder import LowerCaseDecoder
from ingest.formats.record_facts import RecordFacts
from ingest.raw_batch import RawBatch


@dataclass(frozen=True)
class LowerCaseFormat:
    """See `ingest.formats.base.Format`. format: what the records are."""

    format: Format

    @property
    def KEPT_HEADERS(self) -> frozenset[str]:  # noqa: N802 - as there
        return self.format.KEPT_HEADERS

    @property
    def DECODING_WAITS(self) -> bool:  # noqa: N802 - as there
        return self.format.DECODING_WAITS

    @property
    def FACTS(self) -> RecordFacts:  # noqa: N802 - as there
        return self.format.FACTS

    def decoder(self, target_of: TargetOf) -> Decoder:
        return LowerCaseDecoder(self.format.decoder, target_of)

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        """Raises TableNotInferred, too, for two columns that would have one name."""
        found = self.format.infer_table(batch, row)
        names = [field.name for field in found.fields]
        if same := first_case_duplicate(names):
            raise TableNotInferred.because(batch, row, case_duplicate_text(*same))
        return InferredTable(
            tuple(replace(field, name=field.name.lower()) for field in found.fields),
            tuple(name.lower() for name in found.primary_key),
            {name.lower(): source for name, source in found.sources.items()},
            found.key_error,
        )
