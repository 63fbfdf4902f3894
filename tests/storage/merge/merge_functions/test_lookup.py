"""In compactions with lookups, only the row of the lowest level above level 0 counts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.case_values import column_type
from tests.support.cases import Case, case_id, check_members, options_of, vectors
from tests.support.column_merge import KEY, batch_of_records, merge_function, merge_records
from tests.support.row_merge import Record, merge_row_by_row, merge_without_shortcut
from tidelake.storage.merge.merge_functions.lookup import LookupMergeFunction
from tidelake.storage.model.types import BIGINT

TYPES = {KEY: BIGINT, "v": BIGINT}
MEMBERS = {"engine", "options", "records", "picked_high_level", "contain_level0", "expect_value"}
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}


@pytest.mark.parametrize("case", vectors("lookup_merge_function"), ids=case_id)
def test_the_rows_that_take_part_in_a_lookup_merge_are_selected(case: Case) -> None:
    """Records as they were added: merge order."""
    check_members(case, MEMBERS)
    expect = case["expect_value"]
    values = [r["v"] for r in case["records"]] + ([] if expect is None else [expect])
    columns = [f"v{i}" for i in range(len(values[0]))]
    types = {name: column_type(None, of_one) for name, of_one in zip(columns, zip(*values, strict=True), strict=True)}
    options = {"merge-engine": case["engine"], **options_of(case)}
    if case["engine"] == "aggregation" and "options" not in case:  # the suite's aggregation is a sum
        options |= {f"fields.{name}.aggregate-function": "sum" for name in columns}
    records = [
        Record(r["kind"], i, {KEY: 1, **dict(zip(columns, r["v"], strict=True))}) for i, r in enumerate(case["records"])
    ]
    rows = batch_of_records({KEY: BIGINT, **types}, records, [r["level"] for r in case["records"]])
    merged = merge_records(LookupMergeFunction(merge_function({KEY: BIGINT, **types}, options)), rows)
    assert [[record.row[name] for name in columns] for record in merged] == ([] if expect is None else [expect])


@st.composite
def stacked(draw: st.DrawFn) -> list[tuple[Record, int]]:
    """Rows of up to three keys with their levels: of each key any number on level 0, one at most on each above."""
    found: list[tuple[Record, int]] = []
    for key in range(1, 4):
        levels = sorted(draw(st.lists(st.integers(1, 4), unique=True, max_size=3)), reverse=True)
        levels += [0] * draw(st.integers(0, 3))
        for level in levels:
            kind = draw(st.sampled_from(["+I", "+U", "-D"]))
            found.append((Record(kind, len(found), {KEY: key, "v": draw(st.none() | st.integers(0, 5))}), level))
    return found


@given(drawn=stacked())
def test_higher_levels_are_left_out_key_by_key(drawn: list[tuple[Record, int]]) -> None:
    options = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    rows = batch_of_records(TYPES, [record for record, _ in drawn], [level for _, level in drawn])
    expected = []
    for key in sorted({record.row[KEY] for record, _ in drawn}):
        versions = [(record, level) for record, level in drawn if record.row[KEY] == key]
        lowest = min((level for _, level in versions if level > 0), default=0)
        counted = [record for record, level in versions if level in (0, lowest)]
        # a row that is left over is merged by itself; only one that was alone from the start stays as it is
        merge = merge_row_by_row if len(versions) == 1 else merge_without_shortcut
        expected.append(merge("partial-update", options, list(TYPES), KEY, counted))
    assert merge_records(LookupMergeFunction(merge_function(TYPES, options)), rows) == expected


@pytest.mark.parametrize(
    ("options", "looks_up"),
    [
        pytest.param({}, False, id="no lookups"),
        pytest.param({"changelog-producer": "lookup"}, True, id="a changelog by lookup"),
        pytest.param({"force-lookup": "true"}, True, id="lookups by force"),
        pytest.param({"changelog-producer": "full-compaction"}, False, id="a changelog by full compaction"),
    ],
)
def test_tables_with_lookup_compaction_need_the_level_column(options: dict[str, str], looks_up: bool) -> None:
    needed = merge_function(TYPES, SUM | options).columns_needed(TYPES)
    assert needed == (("_LEVEL",) if looks_up else ())


def test_rows_in_memory_have_no_level() -> None:
    records = [Record("+I", 0, {KEY: 1, "v": 2}), Record("+I", 1, {KEY: 1, "v": 3})]
    rows: pa.RecordBatch = batch_of_records(TYPES, records)
    assert merge_records(LookupMergeFunction(merge_function(TYPES, SUM)), rows)[0].row["v"] == 5
