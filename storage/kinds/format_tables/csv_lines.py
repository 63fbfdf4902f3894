"""Converts columns to lines of csv files, and back.

Written values are read back unchanged, by Java and by Tidelake: escape and quote characters in a value are escaped, and
a value that can't be in a line is refused. Files of all writers can be read: a field may be quoted, escaped, missing,
or invalid.

Source: Java `format/csv/CsvParser.java`, `CsvFormatWriter.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.base.arguments import shown
from tidelake.storage.files.formats.file_format import batch_of
from tidelake.storage.kinds.format_tables.format_options import CsvSettings, is_standard
from tidelake.storage.kinds.format_tables.lines import joined, read_lines
from tidelake.storage.kinds.format_tables.text_values import texts_of, values_of
from tidelake.storage.model.types import AtomicType, DataField, arrow_schema, arrow_type

# ---------------------------------------------------------------- writing


def csv_header(fields: Sequence[DataField], settings: CsvSettings) -> bytes:
    if not settings.has_header:
        return b""
    names = pa.array([field.name for field in fields])
    line = settings.delimiter.join(_escaped(names, settings).to_pylist())
    return joined(pa.array([line]), settings.line_end)


def csv_lines(rows: pa.RecordBatch, fields: Sequence[DataField], settings: CsvSettings) -> bytes:
    """Encode rows. Raises BadInput, with column and value, for values that a reader would misinterpret."""
    columns = []
    for column, field in zip(rows.columns, fields, strict=True):
        assert isinstance(field.type, AtomicType), field
        texts = texts_of(column, field.type)
        _check_distinguishable_from_null(texts, field.name, settings)
        columns.append(pc.fill_null(_escaped(texts, settings), settings.null))
    lines = columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, settings.delimiter)
    return joined(lines, settings.line_end)


def _check_distinguishable_from_null(texts: pa.Array, name: str, settings: CsvSettings) -> None:
    if (found := pc.index(texts, settings.null).as_py()) >= 0:
        raise BadInput(
            f"column {name!r}: the value {settings.null!r} in row {found} of the batch equals csv.null-literal, and "
            "would be read as NULL; set csv.null-literal to a string that is not a value"
        )
    pattern = r"[\r\n]" if is_standard(settings.line_end) else None
    holds = pc.match_substring_regex(texts, pattern) if pattern else pc.match_substring(texts, settings.line_end)
    if (row := pc.index(holds, True).as_py()) >= 0:
        raise BadInput(
            f"column {name!r}: {shown(texts[row].as_py())} in row {row} of the batch contains a line break, where "
            "readers begin the next row; use file.format = json or parquet"
        )


def _escaped(texts: pa.Array, settings: CsvSettings) -> pa.Array:
    """Quote texts with a special character, and blank texts: a blank line would not be read as a text."""
    special = pc.match_substring(texts, settings.delimiter)
    for character in (settings.quote, settings.escape):
        special = pc.or_(special, pc.match_substring(texts, character))
    special = pc.or_(special, pc.equal(pc.utf8_trim_whitespace(texts), ""))
    if not pc.any(special).as_py():
        return texts
    escaped = pc.replace_substring(texts, settings.escape, settings.escape * 2)
    escaped = pc.replace_substring(escaped, settings.quote, settings.escape + settings.quote)
    return pc.if_else(special, pc.binary_join_element_wise(settings.quote, escaped, settings.quote, ""), texts)


# ---------------------------------------------------------------- reading


def read_csv(
    source: pa.NativeFile,
    path: str,
    fields: Sequence[DataField],
    wanted: Sequence[DataField],
    settings: CsvSettings,
) -> Iterator[pa.RecordBatch]:
    """Read the wanted columns of a csv file.

    fields: the columns of the file, in the order of a line.
    wanted: the columns to return, in that order.

    Raises CorruptFile for bytes that are not text, and with `failfast` for an invalid field.
    """
    places = {field.name: n for n, field in enumerate(fields)}
    skips_header = settings.has_header
    first_line = 1
    for lines in read_lines(source, path, settings.line_end):
        block = lines[1:] if skips_header else lines
        skips_header = False
        if len(block):
            texts = _fields(block, [places[field.name] for field in wanted], settings)
            rows = _rows(texts, wanted, settings, len(block), f"{path}, after line {first_line}")
            if rows.num_rows:
                yield rows
        first_line += len(lines)


def _rows(
    texts: Sequence[pa.Array], wanted: Sequence[DataField], settings: CsvSettings, count: int, where: str
) -> pa.RecordBatch:
    columns, malformed = [], np.zeros(count, bool)
    for field, found in zip(wanted, texts, strict=True):
        assert isinstance(field.type, AtomicType), field
        given = pc.if_else(pc.equal(found, settings.null), pa.scalar(None, pa.string()), found)
        values, bad = values_of(given, field.type)
        if bad is not None:
            if settings.mode == "failfast":
                text = given[int(np.flatnonzero(bad)[0])].as_py()
                raise CorruptFile(
                    where,
                    f"values of column {field.name!r}, {field.type}",
                    f"the text {shown(text)} (csv.mode = failfast)",
                )
            malformed |= bad
        columns.append(values.cast(arrow_type(field.type)))
    rows = batch_of(columns, count, arrow_schema([_nullable(field) for field in wanted]))
    if settings.mode == "dropmalformed" and malformed.any():
        return rows.filter(pa.array(~malformed))
    return rows


def _nullable(field: DataField) -> DataField:
    return replace(field, type=replace(field.type, nullable=True))


def _fields(lines: pa.Array, places: Sequence[int], settings: CsvSettings) -> list[pa.Array]:
    """Return for each place the (n,) texts; null if a line is too short or blank.

    Most lines have no quotes, and are split all at once.
    """
    special = pc.or_(pc.match_substring(lines, settings.quote), pc.match_substring(lines, settings.escape))
    blank = pc.equal(pc.utf8_trim_whitespace(lines), "")
    found = _split_at_once(pc.if_else(pc.or_(special, blank), pa.scalar(None, pa.string()), lines), places, settings)
    rows = np.flatnonzero(pc.and_not(special, blank).to_numpy(zero_copy_only=False))
    if not len(rows):
        return found
    count = max(places, default=-1) + 1
    split = [split_line(line, count, settings) for line in lines.take(pa.array(rows)).to_pylist()]
    mask = np.zeros(len(lines), bool)
    mask[rows] = True
    return [
        pc.replace_with_mask(texts, pa.array(mask), pa.array([fields[place] for fields in split], pa.string()))
        for place, texts in zip(places, found, strict=True)
    ]


def _split_at_once(lines: pa.Array, places: Sequence[int], settings: CsvSettings) -> list[pa.Array]:
    lists = pc.split_pattern(lines, settings.delimiter)
    offsets = lists.offsets.to_numpy()
    starts, lengths = offsets[:-1], np.diff(offsets)
    return [
        lists.values.take(pa.array(np.where(lengths > place, starts + place, 0), mask=lengths <= place))
        for place in places
    ]


def split_line(line: str, count: int, settings: CsvSettings) -> list[str | None]:
    """Return the first `count` fields of a line; None for a missing field, or if quotes are not closed.

    An escape character inside a field escapes a quote or itself; anywhere else it is dropped. A quote inside a field
    that does not start with a quote is an ordinary character. Two quotes mean one quote.
    """
    fields: list[str | None] = []
    text: list[str] = []
    in_quotes = in_field = False
    at = 0
    while at < len(line) and len(fields) < count:
        character, following = line[at], line[at + 1 : at + 2]
        if character == settings.escape:
            if (in_quotes or in_field) and following in (settings.quote, settings.escape):
                text.append(following)
                at += 1
        elif character == settings.quote:
            if (in_quotes or in_field) and following == settings.quote:
                text.append(settings.quote)
                at += 1
            else:
                inside = at > 2 and line[at - 1] != settings.delimiter and following not in ("", settings.delimiter)
                if inside and text and not "".join(text).strip():
                    text.clear()
                elif inside:
                    text.append(character)
                in_quotes = not in_quotes
            in_field = not in_field
        elif character == settings.delimiter and not in_quotes:
            fields.append("".join(text))
            text.clear()
            in_field = False
        else:
            text.append(character)
            in_field = True
        at += 1
    if len(fields) < count and not in_quotes:
        fields.append("".join(text))
    return fields + [None] * (count - len(fields))
