"""A CSV record is one row. An invalid record is reported with its fields."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any, Final

import pytest

from tests.ingest.formats.debezium.changes import Record, batch_of, orders, rows_of
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import FailureKind, Skipped
from tidelake.ingest.formats.registry import open_format

COLUMNS: Final = {"id": "BIGINT", "note": "STRING", "price": "DECIMAL(9, 2)", "day": "DATE"}


def decode(lines: list[bytes | None], **options: Any) -> Any:
    target = orders(COLUMNS)
    format_ = open_format("csv", {"columns": list(COLUMNS), **options})
    return format_.decoder(lambda source: target).decode(batch_of([Record(None, line) for line in lines]))


@pytest.mark.parametrize(
    ("line", "options", "row"),
    [
        (b"1,a,12.50,2024-02-29", {}, (1, "a", Decimal("12.50"), date(2024, 2, 29))),
        (b"1,a,12.50,2024-02-29\r\n", {}, (1, "a", Decimal("12.50"), date(2024, 2, 29))),
        (b'1,"a, ""b""\nc",,', {}, (1, 'a, "b"\nc', None, None)),
        ("1,Größe 🦊,1,".encode(), {}, (1, "Größe 🦊", Decimal("1.00"), None)),
        (b"\xef\xbb\xbf1,\xef\xbb\xbf,,", {}, (1, "\ufeff", None, None)),
        (b"1;a,b;;", {"csv.field-delimiter": ";"}, (1, "a,b", None, None)),
        (b"1\ta\t\t", {"field-delimiter": "\\t"}, (1, "a", None, None)),
        (b"1,'a,b',,", {"quote_character": "'"}, (1, "a,b", None, None)),
        (b'1,"a",,', {"csv.disable-quote-character": "true"}, (1, '"a"', None, None)),
        (b"1,a\\,b,,", {"csv.escape-character": "\\"}, (1, "a,b", None, None)),
        (b"1,,\\N,\\N", {"csv.null-literal": "\\N"}, (1, "", None, None)),
    ],
    ids=[
        "fields",
        "a line's end",
        "quotes",
        "unicode",
        "byte order mark",
        "delimiter",
        "tab",
        "quote",
        "no quotes",
        "escape",
        "null",
    ],
)
def test_a_record_is_a_row(line: bytes, options: dict[str, Any], row: tuple[Any, ...]) -> None:
    decoded = decode([line], **options)
    assert not decoded.failures
    assert rows_of(decoded) == [("+I", *row)]


def test_invalid_csv_records_fail_with_a_reason_and_others_are_decoded() -> None:
    lines = [b"1,a,1,", b"2,b", b'3,"c,1,', b"4,\xff,1,", b"", b"x,y,1,", b"7,g,1,", None]
    decoded = decode(lines)
    assert [row[1] for row in rows_of(decoded)] == [1, 7]
    assert decoded.skipped == {Skipped.TOMBSTONE: 1}
    reasons = {failure.row: failure.reason for failure in decoded.failures}
    assert list(reasons) == [1, 2, 3, 4, 5]
    assert "a csv record has 2 fields, but `columns` names 4 (id, note, price, day): 2,b" in reasons[1]
    assert "unexpected end of data" in reasons[2]
    assert "utf-8" in reasons[3]
    assert "column id" in reasons[5]
    assert {failure.kind for failure in decoded.failures} == {FailureKind.BAD_RECORD}


def test_comments_are_skipped_where_they_are_allowed() -> None:
    assert decode([b"# 1,a,1,"], allow_comments=True).skipped == {Skipped.MESSAGE: 1}
    assert len(decode([b"# 1,a,1,"]).failures) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "id,id"}, "columns of csv must be a list of different names"),
        ({"field_delimiter": "||"}, r"field_delimiter of csv must be one character, not '\|\|'"),
        ({"quote_character": ""}, "quote_character of csv must be one character"),
        ({"csv.ignore-parse-errors": "true"}, r"`errors\.tolerance`"),
        ({"csv.field-delimiter": ";", "field_delimiter": ","}, "is given twice"),
        ({"allow_comments": "maybe"}, "must be true or false"),
        ({"delimiter": ";"}, "csv has no option 'delimiter'"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_contradictory_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_format("csv", {"columns": ["id"], **options})


def test_missing_columns_are_refused_before_reading() -> None:
    with pytest.raises(BadInput, match="set `columns` in `format_options`"):
        open_format("csv", {}).decoder(lambda source: None)


def test_a_new_table_has_string_columns() -> None:
    inferred = open_format("csv", {"columns": "a, b"}).infer_table(batch_of([Record(None, b"1,")]), 0)
    assert [(field.name, str(field.type)) for field in inferred.fields] == [("a", "STRING"), ("b", "STRING")]
    assert inferred.primary_key == ()
