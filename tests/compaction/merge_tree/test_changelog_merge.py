"""The changes that a compaction emits for each merged key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.cases import Case, case_id, check_members, options_of, vectors
from tests.support.column_merge import KEY, batch_of_records, merge_function, records_of, table_schema
from tests.support.row_merge import Record
from tidelake.compaction.merge_tree.changelog_merge import (
    CompactionMerge,
    FullCompactionMerge,
    Merged,
    compared_columns,
)
from tidelake.compaction.merge_tree.lookup_merge import FirstRowLookup, LookupMerge
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.merge.changelog_rows import KeyedRows
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions import Deduplicate, MergeFunction, merge_engine_of
from tidelake.storage.merge.merge_functions.first_row import FirstRow
from tidelake.storage.merge.merge_reader import MergeOrder
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import BIGINT, DataType
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds

DEDUPLICATE = "changelog-producer.row-deduplicate"
ROW_DEDUPLICATE = {
    None: {},
    "all fields": {DEDUPLICATE: "true"},
    "ignore second field": {DEDUPLICATE: "true", "changelog-producer.row-deduplicate-ignore-fields": "w"},
}


def columns_of(case: Case) -> dict[str, DataType]:
    return {KEY: BIGINT, **dict.fromkeys(["v", "w"][: len(case["records"][0]["v"])], BIGINT)}


def options_for(case: Case) -> dict[str, str]:
    return {"merge-engine": case["engine"], **options_of(case), **ROW_DEDUPLICATE[case["row_deduplicate"]]}


def rows_of(columns: dict[str, DataType], records: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Records of one key, in merge order."""
    drawn = [Record(r["kind"], r["seq"], dict(zip(columns, [1, *r["v"]], strict=True))) for r in records]
    return batch_of_records(columns, drawn, [r["level"] for r in records])


def reported(rows: pa.RecordBatch | None) -> list[dict[str, Any]]:
    """In the words of the suites."""
    records = [] if rows is None else records_of(rows)
    return [
        {"kind": r.kind, "seq": r.sequence, "v": [value for name, value in r.row.items() if name != KEY]}
        for r in records
    ]


def compare_by(columns: dict[str, DataType], options: dict[str, str]) -> Sequence[str] | None:
    return compared_columns(table_schema(columns, options), TableOptions(options))


def merge_one_key(merge: CompactionMerge, rows: pa.RecordBatch) -> Merged:
    return merge(rows, Groups(np.arange(rows.num_rows), np.zeros(1, np.intp)))


@pytest.mark.parametrize("case", vectors("full_changelog_wrapper"), ids=case_id)
def test_full_compaction_emits_the_changes_of_a_key(case: Case) -> None:
    check_members(
        case,
        {"engine", "options", "max_level", "row_deduplicate", "records", "expect_changelog", "expect_result"},
    )
    columns, options = columns_of(case), options_for(case)
    merge = FullCompactionMerge(merge_function(columns, options), case["max_level"], compare_by(columns, options))
    merged = merge_one_key(merge, rows_of(columns, case["records"]))
    assert reported(merged.changes) == case["expect_changelog"]
    written = merged.rows.filter(pa.array(~is_retract(row_kinds(merged.rows))))
    assert reported(written) == [case["expect_result"]] * (case["expect_result"] is not None)


class Above:
    """The level above, with one row or none. asked: number of lookups."""

    def __init__(self, row: pa.RecordBatch) -> None:
        self.row = row
        self.asked = 0

    def find(self, keys: pa.RecordBatch) -> KeyedRows:
        self.asked += keys.num_rows
        found = min(keys.num_rows, self.row.num_rows)
        return KeyedRows(self.row.slice(0, found), np.arange(found))


def engine_of(columns: dict[str, DataType], options: dict[str, str]) -> MergeFunction:
    schema = table_schema(columns, options)
    return merge_engine_of(TableContext(LocalFileIO(), "/nowhere", "d.t", schema, TableOptions(options)))


@pytest.mark.parametrize("case", vectors("lookup_changelog_wrapper"), ids=case_id)
def test_a_lookup_emits_the_changes_of_a_key(case: Case) -> None:
    check_members(
        case,
        {
            *("engine", "options", "row_deduplicate", "sequence_fields", "produce_changelog", "records"),
            *("lookup_result", "expect_lookup_called", "expect_changelog", "expect_result"),
        },
    )
    columns, options = columns_of(case), options_for(case)
    sequence_fields = tuple(list(columns)[1 + at] for at in case["sequence_fields"] or ())
    # the suite names a combination that a table may not have: the column that orders rows is aggregated
    engine = engine_of(columns, {name: text for name, text in options.items() if name != "sequence.field"})
    above = Above(rows_of(columns, [case["lookup_result"]] * (case["lookup_result"] is not None)))
    compared = compare_by(columns, options)
    merge = LookupMerge(engine, MergeOrder((KEY,), sequence_fields), above.find, case["produce_changelog"], compared)
    merged = merge_one_key(merge, rows_of(columns, case["records"]))
    assert reported(merged.changes) == case["expect_changelog"]
    assert reported(merged.rows) == [case["expect_result"]]
    assert (above.asked > 0) is case["expect_lookup_called"]


@pytest.mark.parametrize("case", vectors("first_row_wrapper"), ids=case_id)
def test_first_row_emits_the_changes_of_a_key(case: Case) -> None:
    check_members(case, {"records", "lookup_contains_key", "expect_changelog", "expect_result_value"})
    columns = columns_of(case)
    old = [{"kind": "+I", "seq": 0, "level": 5, "v": [0]}]
    above = Above(rows_of(columns, old * case["lookup_contains_key"]))
    merged = merge_one_key(
        FirstRowLookup(FirstRow("d.t"), MergeOrder((KEY,)), above.find, True), rows_of(columns, case["records"])
    )
    assert reported(merged.changes) == case["expect_changelog"]
    expected = case["expect_result_value"]
    assert [record["v"] for record in reported(merged.rows)] == ([] if expected is None else [expected])


def test_keys_are_looked_up_in_one_batch_and_only_without_rows_above_level_0() -> None:
    columns = {KEY: BIGINT, "v": BIGINT}
    records = [Record("+I", number, {KEY: number // 2, "v": number}) for number in range(8)]
    rows = batch_of_records(columns, records, [3, 0, 0, 0, 2, 1, 0, 0])
    asked: list[list[int]] = []

    def find(keys: pa.RecordBatch) -> KeyedRows:
        asked.append(keys.column(KEY).to_pylist())
        return KeyedRows(rows.slice(0, 0), np.zeros(0, np.intp))

    merge = LookupMerge(Deduplicate(), MergeOrder((KEY,)), find, True)
    merged = merge(rows, Groups(np.arange(8), np.arange(0, 8, 2)))
    assert asked == [[1, 3]]
    assert merged.rows.column("v").to_pylist() == [1, 3, 5, 7]
    assert merged.changes is not None
    assert merged.changes.column("v").to_pylist() == [0, 1, 3, 7], "key 2 had no row on level 0"
