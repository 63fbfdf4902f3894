"""The options of format tables: the options of each format, and the codecs.

Source: Java `format/csv/CsvOptions.java`, `format/json/JsonOptions.java`, `format/text/TextOptions.java`,
`CoreOptions.formatTableFileCompression`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.options.registry import find_option

FORMATS: Final = ("csv", "json", "parquet", "orc", "text")
TEXT_FORMATS: Final = frozenset({"csv", "json", "text"})
_STANDARD_LINE_ENDS: Final = frozenset({"\n", "\r\n", "\r"})
_TEXT_CODECS: Final = ("none", "gzip", "bzip2", "deflate", "zstd")
_HADOOP_CODECS: Final = frozenset({"snappy", "lz4"})
_DEFAULT_COMPRESSION: Final = {"parquet": "snappy", "orc": "zstd"}

# Options that apply to a format table, in addition to the options of its format.
_FORMAT_TABLE_OPTIONS: Final = frozenset(
    {
        "type",
        "path",
        "file.format",
        "file.compression",
        "file.compression.zstd-level",
        "file.block-size",
        "file.suffix.include.compression",
        "data-file.prefix",
        "partition.default-name",
        "partition.legacy-name",
        "target-file-size",
        "target-file-row-num",
        "metastore.partitioned-table",
    }
)


def check_own_options(options: Mapping[str, str]) -> None:
    """Check the options of a new table. Raises BadInput for Paimon's options that don't apply to format tables.

    Raises UnsupportedFeature for `format-table.commit-hive-sync-url`.
    """
    if "format-table.commit-hive-sync-url" in options:
        raise UnsupportedFeature(
            "option format-table.commit-hive-sync-url",
            "a commit does not report its partitions to a metastore",
            "Unset it",
        )
    for key in options:
        option = find_option(key)
        known_formats = tuple(f"{name}." for name in (*FORMATS, "format-table"))
        if (
            key in _FORMAT_TABLE_OPTIONS
            or option is None
            or option.key in _FORMAT_TABLE_OPTIONS
            or option.key.startswith(known_formats)
        ):
            continue
        raise BadInput(f"option {key} does not apply to a format table, which has no snapshots; remove it")


def format_of_table(options: TableOptions) -> str:
    """Return the format of a table. Raises BadInput if it is not a format of format tables."""
    name = (options.text("file.format") or "").strip().lower()
    if name == "mosaic":
        raise UnsupportedFeature("file.format = mosaic", "this release can't read or write it", "Use parquet")
    if name not in FORMATS:
        known = ", ".join(FORMATS)
        raise BadInput(
            f"file.format = {name!r} of a format table: expected one of {known}{did_you_mean(name, FORMATS)}"
        )
    return name


def compression_of(options: TableOptions) -> str:
    """Return the codec of new files. Raises BadInput or UnsupportedFeature for a codec that the format can't have."""
    format_name = format_of_table(options)
    given = (options.get(key) for key in ("file.compression", "format-table.file.compression", "compression"))
    codec = next((text.strip().lower() for text in given if text is not None), None)
    if codec is None:
        return _DEFAULT_COMPRESSION.get(format_name, "none")
    if format_name not in TEXT_FORMATS:
        return codec
    if codec in _HADOOP_CODECS:
        raise UnsupportedFeature(
            f"{codec} of {format_name} files",
            "this release can't write Hadoop's framing of it",
            f"Use {', '.join(_TEXT_CODECS)}",
        )
    if codec not in _TEXT_CODECS:
        raise BadInput(f"compression {codec!r} of {format_name} files: expected one of {', '.join(_TEXT_CODECS)}")
    if format_name == "text" and codec != "none":
        raise UnsupportedFeature(
            f"{codec} of text files", "readers can't detect it from the names of the files", "Use none, csv or json"
        )
    return codec


@dataclass(frozen=True, slots=True)
class CsvSettings:
    """The options of csv files.

    delimiter: the character between fields.
    line_end: the line delimiter. If it is LF, CRLF or CR, each of these three ends a line when read.
    quote: the quote character.
    escape: the escape character.
    has_header: whether a file starts with a line of column names.
    null: the text that means NULL.
    mode: how a line with an invalid field is handled: `permissive` makes the field null, `dropmalformed` skips the
        line, `failfast` raises an error.
    """

    delimiter: str
    line_end: str
    quote: str
    escape: str
    has_header: bool
    null: str
    mode: str

    @classmethod
    def of(cls, options: TableOptions) -> Self:
        """Read the options. Raises BadInput for values that Java refuses, and for delimiters that Java can't read."""
        found = {
            key: _text(options, key) for key in ("csv.field-delimiter", "csv.quote-character", "csv.escape-character")
        }
        for key, text in found.items():
            if len(text) != 1 or text in "\0\r\n":
                raise BadInput(f"option {key} = {text!r}: expected one character other than a line break")
        delimiter, quote, escape = found.values()
        if len({delimiter, quote, escape}) < 3:
            raise BadInput(f"csv: field delimiter {delimiter!r}, quote {quote!r} and escape {escape!r} must differ")
        return cls(
            delimiter,
            _line_end(options, "csv.line-delimiter"),
            quote,
            escape,
            options.is_on("csv.include-header"),
            _text(options, "csv.null-literal"),
            _text(options, "csv.mode").lower(),
        )


@dataclass(frozen=True, slots=True)
class JsonSettings:
    """The options of json files.

    line_end: the line delimiter, see `is_standard`.
    ignores_errors: whether an invalid field becomes null, and an invalid line is skipped. If False, they are errors.
    """

    line_end: str
    ignores_errors: bool

    @classmethod
    def of(cls, options: TableOptions) -> Self:
        """Read the options. Raises BadInput."""
        return cls(_line_end(options, "json.line-delimiter"), options.is_on("json.ignore-parse-errors"))


@dataclass(frozen=True, slots=True)
class TextSettings:
    line_end: str

    @classmethod
    def of(cls, options: TableOptions) -> Self:
        """Read the options. Raises BadInput."""
        return cls(_line_end(options, "text.line-delimiter"))


def is_standard(line_end: str) -> bool:
    """Return whether the delimiter is LF, CRLF or CR. Then each of the three ends a line when read, like in Java."""
    return line_end in _STANDARD_LINE_ENDS


def _line_end(options: TableOptions, key: str) -> str:
    text = _text(options, key)
    if not text:
        raise BadInput(f"option {key} is empty: expected a line break")
    return text


def _text(options: TableOptions, key: str) -> str:
    return options.text(key) or ""
