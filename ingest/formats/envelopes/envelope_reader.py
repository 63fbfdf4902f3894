"""Decodes the bytes of records to envelopes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.concatenated_json import concatenate_objects
from tidelake.ingest.formats.envelopes.envelope import Envelope
from tidelake.ingest.formats.registry import other_format_hint
from tidelake.ingest.formats.values.json_text import BadValue


class EnvelopeReader:
    """A reader of envelopes of one format. format_: the format's name."""

    def __init__(self, envelope: type[Envelope], format_: str) -> None:
        self.format = format_
        decoder: Any = msgspec.json.Decoder(envelope)
        self._read = decoder.decode
        self._read_all = decoder.decode_lines

    def read(self, value: bytes) -> Envelope:
        """Return the envelope of a record. Raises BadValue for a record that is not of this format."""
        try:
            record: Envelope = self._read(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
            raise BadValue(f"not a valid {self.format} record: {e}{other_format_hint(value, self.format)}") from None
        return record

    def read_rows(self, values: pa.Array, rows: NDArray[np.int64]) -> Sequence[Envelope]:
        """Return the envelopes in these rows of a binary column, which are not null. Raises as `read_all`."""
        return self.read_all(concatenate_objects(values, rows), len(rows))

    def read_all(self, values: bytes | memoryview, n: int) -> Sequence[Envelope]:
        """Return the envelopes of n concatenated records, each an object.

        Raises ValueError, or an error of msgspec, if a record is not of this format.
        """
        records: list[Envelope] = self._read_all(values)
        if len(records) != n:
            raise ValueError("not one record each")
        return records
