"""The format `csv`: each record is a line of fields. The configuration has the names of the fields."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.ingest.formats.base import Skipped
from tidelake.ingest.formats.csv.options import CsvOptions
from tidelake.ingest.formats.envelopes.envelope import Envelope, Op
from tidelake.ingest.formats.envelopes.format import EnvelopeFormat
from tidelake.ingest.formats.envelopes.reader import EnvelopeReader
from tidelake.ingest.formats.plain_json.format import JsonRow
from tidelake.ingest.formats.values.json_text import BadValue, shown
from tidelake.storage.base.errors import BadInput


class CsvRow(JsonRow):
    """A record that is a row or a comment.

    row: an object of the fields as JSON texts.
    is_comment: whether the record is a comment.
    """

    FORMAT: ClassVar = "csv"

    is_comment: bool = False

    def event(self) -> Op | Skipped:
        return Skipped.MESSAGE if self.is_comment else Op.INSERT

    def shape(self) -> bool:
        return self.is_comment


class _CsvReader(EnvelopeReader):
    def __init__(self, options: CsvOptions) -> None:
        super().__init__(CsvRow)
        self._options = options

    def read(self, value: bytes) -> Envelope:
        try:
            text = value.decode("utf-8-sig")  # Flink's parser skips a byte order mark, too
        except UnicodeDecodeError as e:
            raise BadValue(f"not a valid csv record: {e}") from None
        if self._options.allow_comments and text.startswith("#"):
            return CsvRow(is_comment=True)
        try:
            rows = [*self._options.reader([text.removesuffix("\n").removesuffix("\r")])]
        except csv.Error as e:
            raise BadValue(f"not a valid csv record: {e} in {shown(value)}") from None
        texts = rows[0] if rows else [""]
        names = self._options.columns
        if len(texts) != len(names):
            raise BadValue(
                f"a csv record has {len(texts)} fields, but `columns` names {len(names)} ({', '.join(names)}): "
                f"{shown(value)}"
            )
        null = self._options.null_literal
        row = {name: None if text == null else text for name, text in zip(names, texts, strict=True)}
        return CsvRow(row=msgspec.Raw(msgspec.json.encode(row)))

    def read_rows(self, values: pa.Array, rows: NDArray[np.int64]) -> Sequence[Envelope]:
        return [self.read(value) for value in values.take(pa.array(rows)).to_pylist()]


@dataclass(frozen=True)
class Csv(EnvelopeFormat):
    """The format `csv`. See `tidelake.ingest.formats.base.Format`."""

    NAME: ClassVar = "csv"
    ENVELOPE: ClassVar = CsvRow

    csv: CsvOptions = field(default_factory=CsvOptions)

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> Csv:
        csv_options, shared_options = CsvOptions.parsed(options)
        return cls(shared_options, csv_options)

    def reader(self) -> EnvelopeReader:
        if not self.csv.columns:
            raise BadInput(
                "csv records don't name their fields: set `columns` in `format_options` to the names in order"
            )
        return _CsvReader(self.csv)
