"""Columns and results in the form of the suites file-index-*.json."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tests.support.case_values import column_of
from tests.support.cases import Case, check_members
from tidelake.storage.files.file_index.column_index import Answer, ColumnIndex, IndexWriter
from tidelake.storage.model.types import TIMESTAMP_ROOTS, AtomicType, DataType, arrow_type, parse_type

REMAIN, SKIP = "REMAIN", "SKIP"

OPERATORS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def type_of(case: Case) -> AtomicType:
    data_type = parse_type(case["type"])
    assert isinstance(data_type, AtomicType)
    return data_type


def column(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """`micros:…` of a type that holds fewer digits is a multiple of what it counts."""
    if data_type.root not in TIMESTAMP_ROOTS:
        return column_of(values, data_type)
    micros = [None if value is None else int(str(value).removeprefix("micros:")) for value in values]
    kind = arrow_type(data_type)
    return pa.array(micros, pa.timestamp("us", kind.tz)).cast(kind)


def written(writer: IndexWriter, rows: pa.Array, batch_rows: int = 5) -> bytes:
    """In several batches, as files are."""
    for start in range(0, len(rows), batch_rows):
        writer.add(rows.slice(start, batch_rows))
    data = writer.finish()
    assert data is not None
    return data


def check_answers(case: Case, index: ColumnIndex) -> None:
    data_type = type_of(case)

    def literals(values: Iterable[Any]) -> pa.Array:
        return column([*values], data_type)

    for probe in case["probes"]:
        check_members(probe, {"literal", "eq", "ne", *OPERATORS})
        value = literals([probe["literal"]])
        check_answer(index.any_of(value), probe["eq"])
        check_answer(index.none_of(value), probe["ne"])
        for name, operator in OPERATORS.items():
            if name in probe:
                check_answer(index.compare(operator, value), probe[name])
    check_answer(index.is_null(), case["is_null"])
    check_answer(index.is_not_null(), case["is_not_null"])
    for name, ask in (("in", index.any_of), ("not_in", index.none_of)):
        check_members(case[name], {"literals", "result"})
        check_answer(ask(literals(case[name]["literals"])), case[name]["result"])
    if "between" in case:
        check_members(case["between"], {"literals", "result"})
        low, high = (literals([value]) for value in case["between"]["literals"])
        least, most = index.compare(">=", low), index.compare("<=", high)
        assert least is not None
        assert most is not None
        check_answer(least & most, case["between"]["result"])


def check_answer(answer: Answer, expected: Any) -> None:
    match expected:
        case "REMAIN":
            assert answer is None
        case "SKIP":
            assert answer is not None
            assert not answer
        case _:
            check_members(expected, {"bitmap", "remain"})
            assert answer is not None
            assert list(answer) == expected["bitmap"]
            assert bool(answer) is expected["remain"]
