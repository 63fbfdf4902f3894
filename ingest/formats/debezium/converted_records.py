"""Decodes records of another form by the decoder of Debezium's JSON, after each was converted to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidelake.ingest.formats.base import DecodedBatch, DecodeFailure, Decoder, FailureKind, Skipped
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import Headers, RawBatch, binary_column


class ConvertingDecoder:
    """See `tidelake.ingest.formats.base.Decoder`.

    decoder: decodes the converted records.
    convert: returns the value of a record in Debezium's JSON. Raises BadValue for a record that has another form.
    prepare: returns the converted batch as the decoder wants it.
    """

    def __init__(
        self,
        decoder: Decoder,
        convert: Callable[[bytes, Headers], bytes],
        prepare: Callable[[RawBatch], RawBatch] = lambda batch: batch,
    ) -> None:
        self._decoder = decoder
        self._convert = convert
        self._prepare = prepare

    def decode(self, batch: RawBatch) -> DecodedBatch:
        values: list[bytes | None] = []
        failures: list[DecodeFailure] = []
        for row, value in enumerate(batch.values.to_pylist()):
            try:
                values.append(None if value is None else self._convert(value, batch.headers.get(row, ())))
            except BadValue as error:
                values.append(None)
                failures.append(DecodeFailure(row, int(batch.offsets[row]), FailureKind.BAD_RECORD, str(error)))
        decoded = self._decoder.decode(self._prepare(replace(batch, values=binary_column(values))))
        if not failures:
            return decoded
        skipped = dict(decoded.skipped)
        skipped[Skipped.TOMBSTONE] -= len(failures)  # after the conversion they have no value
        return replace(
            decoded,
            failures=tuple(sorted((*decoded.failures, *failures), key=lambda failure: failure.row)),
            skipped={kind: count for kind, count in skipped.items() if count},
        )

    def value_as_json(self, batch: RawBatch, row: int) -> bytes:
        """Return a record's value as JSON. See `JsonView`."""
        return self._convert(batch.values[row].as_py(), batch.headers.get(row, ()))
