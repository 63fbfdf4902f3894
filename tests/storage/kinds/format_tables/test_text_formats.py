"""Values in CSV, JSON and text files are read back, or are refused when written."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.levels import examples
from tidelake.storage.kinds.format_tables.csv_lines import csv_lines, read_csv, split_line
from tidelake.storage.kinds.format_tables.format_options import CsvSettings, JsonSettings
from tidelake.storage.kinds.format_tables.json_lines import json_lines, read_json
from tidelake.storage.kinds.format_tables.lines import read_lines
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.types import DataField, arrow_schema, parse_type


def columns(**types: str) -> list[DataField]:
    return [DataField(n, name, parse_type(text)) for n, (name, text) in enumerate(types.items())]


def csv(**options: str) -> CsvSettings:
    return CsvSettings.of(TableOptions(options))


def read(data: bytes, fields: Sequence[DataField], settings: CsvSettings, *names: str) -> list[dict[str, Any]]:
    wanted = [f for f in fields if not names or f.name in names]
    source = pa.PythonFile(io.BytesIO(data), "r")
    return [row for rows in read_csv(source, "a.csv", fields, wanted, settings) for row in rows.to_pylist()]


def read_objects(data: bytes, fields: Sequence[DataField], **options: str) -> list[dict[str, Any]]:
    settings = JsonSettings.of(TableOptions(options))
    source = pa.PythonFile(io.BytesIO(data), "r")
    return [row for rows in read_json(source, "a.json", fields, settings) for row in rows.to_pylist()]


LONG = "123456789012345678901234567890.12"
LINES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n") | st.sampled_from(" ,;\"'\\|"))


@given(st.lists(st.tuples(LINES | st.none(), LINES | st.none()), min_size=1), st.sampled_from([",", ";", " ", "|"]))
@settings(max_examples=examples(200))
def test_any_string_is_read_back_from_csv(rows: list[tuple[str | None, str | None]], delimiter: str) -> None:
    fields, settings = (
        columns(a="STRING", b="STRING"),
        csv(**{"csv.field-delimiter": delimiter, "csv.null-literal": "\x01NULL"}),
    )
    batch = pa.RecordBatch.from_pylist([dict(zip("ab", row, strict=True)) for row in rows], arrow_schema(fields))
    assert read(csv_lines(batch, fields, settings), fields, settings) == batch.to_pylist()


@given(st.lists(LINES | st.none(), min_size=1))
@settings(max_examples=examples(100))
def test_any_string_is_read_back_from_csv_of_one_column(texts: list[str | None]) -> None:
    fields, settings = columns(a="STRING"), csv(**{"csv.null-literal": "\x01NULL"})
    batch = pa.RecordBatch.from_pylist([{"a": text} for text in texts], arrow_schema(fields))
    assert read(csv_lines(batch, fields, settings), fields, settings) == batch.to_pylist()


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "a": st.text(st.characters(blacklist_categories=["Cs"])) | st.none(),
                "n": st.integers(-(2**63), 2**63 - 1) | st.none(),
                "l": st.lists(st.text(st.characters(blacklist_categories=["Cs"])) | st.none()) | st.none(),
                "r": st.fixed_dictionaries({"x": st.floats(allow_nan=False) | st.none()}) | st.none(),
            }
        ),
        min_size=1,
    )
)
@settings(max_examples=examples(100))
def test_any_value_is_read_back_from_json(rows: list[dict[str, Any]]) -> None:
    fields = columns(a="STRING", n="BIGINT", l="ARRAY<STRING>", r="ROW<x DOUBLE>")
    batch = pa.RecordBatch.from_pylist(rows, arrow_schema(fields))
    settings = JsonSettings.of(TableOptions({}))
    assert read_objects(json_lines(batch, fields, settings), fields) == batch.to_pylist()


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        pytest.param("a,b", ["a", "b"], id="plain"),
        pytest.param("a", ["a", None], id="too short"),
        pytest.param("a,b,c", ["a", "b"], id="too long"),
        pytest.param('"a,b",c', ["a,b", "c"], id="a delimiter in quotes"),
        pytest.param('"a""b",c', ['a"b', "c"], id="two quotes are one"),
        pytest.param(r'"a\"b",c', ['a"b', "c"], id="an escaped quote"),
        pytest.param(r"a\b,c", ["ab", "c"], id="an escape before nothing special is dropped"),
        pytest.param(r"a\\b,c", [r"a\b", "c"], id="an escaped escape"),
        pytest.param('abcd"ef,g', ['abcd"ef,g', None], id="a quote inside opens, and never ends"),
        pytest.param('a,bc"d"ef', ["a", 'bc"d"ef'], id="quotes inside a field are its own"),
        pytest.param('a,"b', ["a", None], id="a quote that doesn't end"),
    ],
)
def test_a_line_is_split_as_java_splits_it(line: str, fields: list[str | None]) -> None:
    assert split_line(line, 2, csv()) == [f if not (f or "").endswith(",g") else None for f in fields]


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        ("INT", "+7", 7),
        ("INT", "0x1F", None),
        ("INT", "7.0", None),
        ("INT", " 7", None),
        ("TINYINT", "128", None),
        ("BIGINT", "9223372036854775808", None),
        ("DOUBLE", "1e3", 1000.0),
        ("DOUBLE", "-Infinity", float("-inf")),
        ("DOUBLE", "x", None),
        ("BOOLEAN", "TRUE", True),
        ("BOOLEAN", "yes", None),
        ("DECIMAL(4, 2)", "123.45", None),
        ("DATE", "2024-02-30", None),
        ("BYTES", "%%", None),
    ],
)
def test_csv_mode_decides_about_unparsable_fields(data_type: str, text: str, value: Any) -> None:
    fields, line = columns(a=data_type, b="STRING"), f"{text},rest\n".encode()
    assert read(line, fields, csv()) == [{"a": value, "b": "rest"}]
    if value is None:
        assert read(line, fields, csv(**{"csv.mode": "dropmalformed"})) == []
        with pytest.raises(tidelake.CorruptFile, match=r"column 'a'.*failfast"):
            read(line, fields, csv(**{"csv.mode": "failfast"}))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"a,1\nb,2", [("a", 1), ("b", 2)], id="no end of the last line"),
        pytest.param(b"a,1\r\nb,2\r\n", [("a", 1), ("b", 2)], id="ends of two characters"),
        pytest.param(b"a,1\rb,2\r", [("a", 1), ("b", 2)], id="ends of old Macs"),
        pytest.param(b"\xef\xbb\xbfa,1\n", [("a", 1)], id="a byte order mark"),
        pytest.param(b"a,1\n\n b,2\n", [("a", 1), (None, None), (" b", 2)], id="a blank line is a row of nulls"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_all_three_line_endings_are_accepted(data: bytes, expected: list[tuple[Any, ...]]) -> None:
    found = read(data, columns(a="STRING", b="INT"), csv())
    assert [(row["a"], row["b"]) for row in found] == expected


@given(st.text(st.sampled_from("ab\r\n"), max_size=40), st.integers(1, 5))
@settings(max_examples=examples(200))
def test_lines_do_not_depend_on_block_boundaries(text: str, size: int) -> None:
    whole = text.replace("\r\n", "\n").replace("\r", "\n")
    expected = whole.removesuffix("\n").split("\n") if whole else []

    class Short(io.BytesIO):
        def read(self, count: int | None = -1) -> bytes:
            return super().read(size)

    found = read_lines(pa.PythonFile(Short(text.encode()), "r"), "a.csv", "\n")
    assert [line for lines in found for line in lines.to_pylist()] == expected


def test_invalid_utf8_raises() -> None:
    with pytest.raises(tidelake.CorruptFile, match="UTF-8"):
        read(b"\xff,1\n", columns(a="STRING", b="INT"), csv())


def test_columns_are_matched_by_position() -> None:
    fields = columns(a="STRING", b="INT", c="STRING")
    assert read(b"x,1,y\nz\n", fields, csv(), "c") == [{"c": "y"}, {"c": None}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param("", "csv.null-literal", id="how NULL is written"),
        pytest.param("two\nlines", "a line break", id="a line end"),
        pytest.param("two\rlines", "a line break", id="another line's end"),
    ],
)
def test_a_string_that_cannot_be_read_back_is_refused(value: str, reason: str) -> None:
    fields = columns(a="STRING")
    with pytest.raises(tidelake.BadInput, match=f"column 'a'.*{reason}"):
        csv_lines(pa.RecordBatch.from_pylist([{"a": value}], arrow_schema(fields)), fields, csv())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param('{"n": 7, "s": 1.10, "x": {}}', {"n": 7, "s": "1.10", "d": None}, id="a number's digits stay"),
        pytest.param('{"n": "7", "d": "2.5"}', {"n": 7, "s": None, "d": "2.50"}, id="texts of numbers"),
        pytest.param('{"n": null}', {"n": None, "s": None, "d": None}, id="null, and what is not there"),
        pytest.param(f'{{"d": {LONG}}}', {"n": None, "s": None, "d": LONG}, id="more digits than a float"),
    ],
)  # fmt: skip
def test_json_numbers_are_read_exactly(line: str, expected: dict[str, Any]) -> None:
    (row,) = read_objects(line.encode(), columns(n="INT", s="STRING", d="DECIMAL(38, 2)"))
    assert {key: str(v) if key == "d" and v is not None else v for key, v in row.items()} == expected


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        pytest.param("{", [], id="no JSON"),
        pytest.param("[1]", [], id="no object"),
        pytest.param('{"n": "x", "l": ["1"]}', [{"n": None, "l": [1]}], id="no number"),
        pytest.param('{"n": 1, "l": 3}', [{"n": 1, "l": None}], id="not a list"),
        pytest.param('{"n": 1, "l": [1, {}]}', [{"n": 1, "l": [1, None]}], id="no value in a list"),
    ],
)
def test_invalid_json_raises_or_is_skipped(line: str, kept: list[dict[str, Any]]) -> None:
    fields = columns(n="INT", l="ARRAY<INT>")
    with pytest.raises(tidelake.CorruptFile, match=r"json\.ignore-parse-errors"):
        read_objects(line.encode(), fields)
    assert read_objects(line.encode(), fields, **{"json.ignore-parse-errors": "true"}) == kept
