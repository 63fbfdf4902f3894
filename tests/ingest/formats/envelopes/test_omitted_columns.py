"""What a column is that an update leaves out: NULL or unchanged, by format, image and option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from tests.ingest.formats.debezium.changes import Record, as_json, batch_of, orders
from tests.ingest.formats.envelopes.test_records import aliyun, canal, dms, maxwell, ogg
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import DecodedBatch, Target
from tidelake.ingest.formats.envelopes import envelope_decoder
from tidelake.ingest.formats.registry import open_format

KEPT: Final = "looked up in the table"


def _decode(format_: str, record: Any, options: Mapping[str, str], target: Target | None = None) -> DecodedBatch:
    decoder = open_format(format_, options).decoder(lambda source: target or orders())
    return decoder.decode(batch_of([Record(None, as_json(record))] * 3))


def _note(decoded: DecodedBatch) -> Any:
    """Column `note` of the last row: its value, or KEPT."""
    assert decoded.failures == ()
    (found,) = decoded.tables
    if found.unavailable is not None and found.unavailable.columns["note"][-1]:
        return KEPT
    return found.rows["note"][-1].as_py()


@dataclass(frozen=True)
class Case:
    id: str
    format: str
    record: Any
    note: Any
    options: Mapping[str, str] = field(default_factory=dict)


NULL: Final = {"omitted": "null"}
UNCHANGED: Final = {"omitted": "unchanged"}
_NEW: Final = {"id": "1", "qty": "2"}
_WHOLE: Final = {"id": "1", "note": "x", "qty": "1"}
_CANAL: Final = (canal("UPDATE", _NEW, old=[{"note": "x"}]), canal("UPDATE", _NEW, old=[{"qty": "1"}]))
_MAXWELL: Final = (maxwell("update", _NEW, old={"note": "x"}), maxwell("update", _NEW, old={"qty": "1"}))
_OGG: Final = (ogg("U", before=_WHOLE, after=_NEW), ogg("U", before={"id": 1, "qty": 1}, after=_NEW))
_ALIYUN: Final = (aliyun("UPDATE_AFTER", _WHOLE, _NEW), aliyun("UPDATE_AFTER", {"id": "1"}, _NEW))
_DMS: Final = (dms("update", {**_NEW, "BI_note": "x"}), dms("update", {**_NEW, "BI_qty": "1"}), dms("update", _NEW))
_MARKED: Final = {"id_isMissing": False, "qty_isMissing": False, "note_isMissing": True, "note": None}

CASES: Final = (
    *(
        case
        for name, (named, unnamed) in {"canal-json": _CANAL, "maxwell-json": _MAXWELL}.items()
        for case in (
            Case("the old image lists it as changed", name, named, None),
            Case("the old image lists it as changed", name, named, None, NULL),
            Case("the old image lists it as changed", name, named, None, UNCHANGED),
            Case("the old image does not list it", name, unnamed, KEPT),
            Case("the old image does not list it", name, unnamed, None, NULL),
        )
    ),
    *(
        case
        for name, (named, unnamed) in {"ogg-json": _OGG, "aliyun-json": _ALIYUN}.items()
        for case in (
            Case("only the old image has it", name, named, None),
            Case("only the old image has it", name, named, None, NULL),
            Case("only the old image has it", name, named, "x", UNCHANGED),
            Case("no image has it", name, unnamed, KEPT),
            Case("no image has it", name, unnamed, None, NULL),
        )
    ),
    Case("only the new record of an update", "aliyun-json", aliyun("UPDATE_AFTER", None, _NEW), KEPT),
    *(Case("left out as null", "aws-dms-json", record, None) for record in _DMS),
    *(Case("left out as null", "aws-dms-json", record, None, NULL) for record in _DMS),
    Case("only the old image has it", "aws-dms-json", _DMS[0], "x", UNCHANGED),
    Case("no image has it", "aws-dms-json", _DMS[1], KEPT, UNCHANGED),
    Case("without old values", "aws-dms-json", _DMS[2], KEPT, UNCHANGED),
    Case("marked as missing", "ogg-json", ogg("U", before={"id": 1}, after={**_NEW, **_MARKED}), KEPT),
    Case("marked as missing", "ogg-json", ogg("U", before={"id": 1}, after={**_NEW, **_MARKED}), KEPT, NULL),
    Case("marked as missing, old value known", "ogg-json", ogg("U", before=_WHOLE, after={**_NEW, **_MARKED}), "x"),
    Case(
        "marked as null",
        "ogg-json",
        ogg("U", before=_WHOLE, after={**_NEW, **_MARKED, "note_isMissing": False}),
        None,
    ),
)


@pytest.mark.parametrize("way", ["columnar where it can", "row by row"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.format}, {dict(case.options)}: {case.id}")
def test_a_column_that_an_update_leaves_out(case: Case, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "row by row":
        monkeypatch.setattr(envelope_decoder, "ColumnarImages", _refuse)
    assert _note(_decode(case.format, case.record, case.options)) == case.note


def _refuse(*_: Any) -> None:
    raise ValueError("read row by row")


def test_canal_messages_of_one_table_may_leave_out_columns_for_both_reasons() -> None:
    records = [Record(None, as_json(_CANAL[i % 2])) for i in range(300)]
    (found,) = open_format("canal-json", {}).decoder(lambda source: orders()).decode(batch_of(records * 2)).tables
    assert found.unavailable is not None
    assert found.unavailable.rows.tolist() == list(range(1, 600, 2))
    assert found.rows["note"].null_count == 600


def test_markers_of_missing_columns_become_no_columns() -> None:
    record = ogg("I", after={"id": 1, "id_isMissing": False, "note": "a", "note_isMissing": False})
    found = open_format("ogg-json", {}).infer_table(batch_of([Record(None, as_json(record))]), 0)
    assert [column.name for column in found.fields] == ["id", "note"]


def test_a_column_of_the_table_that_is_named_like_a_marker_is_a_column() -> None:
    target = orders({"id": "BIGINT", "note": "STRING", "note_isMissing": "BOOLEAN"})
    record = ogg("I", after={"id": 1, "note": "a", "note_isMissing": True})
    (found,) = _decode("ogg-json", record, {}, target).tables
    assert found.rows.to_pylist()[0] == {"id": 1, "note": "a", "note_isMissing": True, "_VALUE_KIND": 0}


def test_old_images_that_leave_out_nulls_are_not_retracted_from_a_sum() -> None:
    target = replace(orders(emit_update_before=True), needs_retractions=True)
    record = maxwell("update", {"id": "1", "note": "x", "qty": "2"}, old={"qty": "1"})
    assert _decode("maxwell-json", record, {}, target).failures == ()
    (failure, *_) = _decode("maxwell-json", record, NULL, target).failures
    assert "has no old value of every column, but shop.orders aggregates" in failure.reason


@pytest.mark.parametrize("name", ["json", "csv", "debezium-bson"])
def test_formats_of_whole_rows_have_no_such_option(name: str) -> None:
    options = {"columns": "id"} if name == "csv" else {}
    with pytest.raises(BadInput, match="has no option 'omitted'"):
        open_format(name, {**options, "omitted": "null"})
