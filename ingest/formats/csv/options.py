"""The options of the format `csv`, with Flink's names.

`csv.field-delimiter`, `field-delimiter` and `field_delimiter` are the same option.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from tidelake.ingest.formats.envelopes.options import EnvelopeOptions
from tidelake.storage.base.errors import BadInput
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
    """The options of the format `csv`.

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
