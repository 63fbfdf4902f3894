"""Wraps any format for tables whose columns are in lower case, in any case of the source's names.

Source: Java `sink/CaseSensitiveUtils`, `CdcActionCommonUtils.listCaseConvert`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelake.errors import TableNotInferred
from tidelake.ingest.formats.base import Decoder, Format, InferredTable, TargetOf
from tidelake.ingest.formats.case_insensitive.decoder import LowerCaseDecoder, case_duplicate_text, first_case_duplicate
from tidelake.ingest.formats.format_capabilities import FormatCapabilities
from tidelake.ingest.raw_batch import RawBatch


@dataclass(frozen=True)
class LowerCaseFormat:
    """A format with column names in lower case. See `tidelake.ingest.formats.base.Format`.

    format: the format of the records.
    """

    format: Format

    @property
    def KEPT_HEADERS(self) -> frozenset[str]:  # noqa: N802 - the name in `Format`
        return self.format.KEPT_HEADERS

    @property
    def DECODING_BLOCKS(self) -> bool:  # noqa: N802 - the name in `Format`
        return self.format.DECODING_BLOCKS

    @property
    def CAPABILITIES(self) -> FormatCapabilities:  # noqa: N802 - the name in `Format`
        return self.format.CAPABILITIES

    def decoder(self, target_of: TargetOf) -> Decoder:
        return LowerCaseDecoder(self.format.decoder, target_of)

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        """Return the table of a record. Also raises TableNotInferred for two columns that differ only in case."""
        found = self.format.infer_table(batch, row)
        names = [field.name for field in found.fields]
        if same := first_case_duplicate(names):
            raise TableNotInferred.for_record(batch, row, case_duplicate_text(*same))
        return InferredTable(
            tuple(replace(field, name=field.name.lower()) for field in found.fields),
            tuple(name.lower() for name in found.primary_key),
            {name.lower(): source for name, source in found.sources.items()},
            found.key_error,
        )
