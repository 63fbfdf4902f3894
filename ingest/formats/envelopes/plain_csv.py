"""The format `csv`: each record is a line of fields, and is a row. The configuration has the names of the fields."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.ingest.formats.base import Skipped
from tidelake.ingest.formats.envelopes.envelope import Envelope, Op
from tidelake.ingest.formats.envelopes.envelope_format import EnvelopeFormat
from tidelake.ingest.formats.envelopes.envelope_options import EnvelopeOptions
from tidelake.ingest.formats.envelopes.envelope_reader import EnvelopeReader
from tidelake.ingest.formats.envelopes.plain_json import JsonRow
from tidelake.ingest.formats.values.json_text import BadValue, shown
from tidelake.storage.model.messages import did_you_mean

_COMMON_OPTIONS: Final = ("inexact_values", "binary_handling_mode")
_CHARACTERS: Final = ("field_delimiter", "quote_character", "escape_character")
_TAB_SPELLINGS: Final = {"\\t": "\t", "tab": "\t"}
_UNSUPPORTED_OPTIONS: Final = {
    "ignore_parse_errors": (
        "`errors.tolerance` decides whether a record that can't be read becomes a dead letter or stops the pipeline"
    ),
}


@dataclass(frozen=True)
class CsvOptions:
    """The options of the format `csv`, with Flink's names: `csv.field-delimiter` and `field_delimiter` are the same.

    columns: names of the fields, in order: a list, or a text with commas between the names.
    field_delimiter: the character between fields.
    quote_character: the character around a field that contains a delimiter. Inside such a field it is doubled.
    disable_quote_character: whether the quote character has no special meaning.
    escape_character: the character that removes the special meaning of the next character; "" for none.
    allow_comments: whether records that begin with # are skipped.
    null_literal: the text of a field that means NULL. By default it is the empty text.
    """

    columns: tuple[str, ...] = ()
    field_delimiter: str = ","
    quote_character: str = '"'
    disable_quote_character: bool = False
    escape_character: str = ""
    allow_comments: bool = False
    null_literal: str = ""

    @classmethod
    def parsed(cls, options: Mapping[str, Any]) -> tuple[CsvOptions, EnvelopeOptions]:
        """Return the parsed options. Raises BadInput for an unknown option and for an invalid value."""
        known = [*(field.name for field in fields(cls)), *_COMMON_OPTIONS]
        given: dict[str, Any] = {}
        for spelled, value in options.items():
            name = spelled.removeprefix("csv.").replace("-", "_")
            if name in _UNSUPPORTED_OPTIONS:
                raise BadInput(f"`format_options`: csv has no option {spelled!r}: {_UNSUPPORTED_OPTIONS[name]}")
            if name not in known:
                hint = did_you_mean(name, known) or "."
                raise BadInput(
                    f"`format_options`: csv has no option {spelled!r}{hint} Its options are {', '.join(known)}"
                )
            if name in given:
                raise BadInput(f"`format_options`: {name!r} of csv is given twice")
            given[name] = value
        shared = EnvelopeOptions.parsed("csv", {name: given.pop(name) for name in _COMMON_OPTIONS if name in given})
        for name in ("disable_quote_character", "allow_comments"):
            given[name] = _boolean(name, given.get(name, False))
        for name in (*_CHARACTERS, "null_literal"):
            if name in given and not isinstance(given[name], str):
                raise BadInput(f"{name} of csv must be a string, not {given[name]!r}")
        given["columns"] = _names(given.get("columns", ()))
        found = cls(**given)
        for name in _CHARACTERS:
            character = getattr(found, name)
            if len(_TAB_SPELLINGS.get(character, character)) != 1 and (character or name != "escape_character"):
                raise BadInput(f"{name} of csv must be one character, not {character!r}")
        try:
            found.reader([""])
        except (TypeError, ValueError, csv.Error) as e:
            raise BadInput(f"csv: delimiter, quote and escape must be different characters: {e}") from None
        return found, shared

    def reader(self, lines: Sequence[str]) -> Any:
        """Return Python's CSV reader of these lines. Iterating it raises csv.Error for an invalid line."""
        delimiter = _TAB_SPELLINGS.get(self.field_delimiter, self.field_delimiter)
        return csv.reader(
            lines,
            delimiter=delimiter,
            quotechar=None if self.disable_quote_character else self.quote_character,
            quoting=csv.QUOTE_NONE if self.disable_quote_character else csv.QUOTE_MINIMAL,
            escapechar=self.escape_character or None,
            strict=True,
        )


class CsvRow(JsonRow):
    """A record that is a row or a comment.

    row: an object of the fields as JSON texts.
    is_comment: whether the record is a comment.
    """

    is_comment: bool = False

    def event(self) -> Op | Skipped:
        return Skipped.MESSAGE if self.is_comment else Op.INSERT

    def shape(self) -> bool:
        return self.is_comment


class _CsvReader(EnvelopeReader):
    def __init__(self, options: CsvOptions) -> None:
        super().__init__(CsvRow, Csv.NAME)
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


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise BadInput(f"{name} of csv must be true or false, not {value!r}")
    return value


def _names(value: Any) -> tuple[str, ...]:
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) and value else list(value or ())
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise BadInput(f"columns of csv must be a list of different names, not {value!r}")
    return tuple(names)
