"""What a compaction tells of each key that it merges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from compaction.merge_tree.changelog_merge import CompactionMerge, FullCompactionMerge, Merged, compared_columns
from storage.merge.key_groups import Groups
from storage.options import TableOptions
from storage.types import BIGINT, DataType
from storage.types.row_kinds import is_retract, row_kinds
from tests.support.cases import Case, case_id, check_members, options_of, vectors
from tests.support.column_merge import KEY, batch_of_records, merge_function, records_of, table_schema
from tests.support.row_merge import Record

DEDUPLICATE = "changelog-producer.row-deduplicate"
ROW_DEDUPLICATE = {
    None: {},
    "all fields": {DEDUPLICATE: "true"},
    "ignore second field": {DEDUPLICATE: "true", f"{DEDUPLICATE}-ignore-fields": "w"},
}


def columns_of(case: Case) -> dict[str, DataType]:
    return {KEY: BIGINT, **dict.fromkeys(["v", "w"][: len(case["records"][0]["v"])], BIGINT)}


def options_for(case: Case) -> dict[str, str]:
    return {"merge-engine": case["engine"], **options_of(case), **ROW_DEDUPLICATE[case["row_deduplicate"]]}


def rows_of(columns: dict[str, DataType], records: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Records of one key, in merge order."""
    drawn = [Record(r["kind"], r["seq"], dict(zip(columns, [1, *r["v"]], strict=True))) for r in records]
    return batch_of_records(columns, drawn, [r["level"] for r in records])


def told(rows: pa.RecordBatch | None) -> list[dict[str, Any]]:
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
def test_what_full_compaction_tells_of_a_key(case: Case) -> None:
    check_members(
        case,
        {"engine", "options", "max_level", "row_deduplicate", "records", "expect_changelog", "expect_result"},
    )
    columns, options = columns_of(case), options_for(case)
    merge = FullCompactionMerge(merge_function(columns, options), case["max_level"], compare_by(columns, options))
    merged = merge_one_key(merge, rows_of(columns, case["records"]))
    assert told(merged.changes) == case["expect_changelog"]
    written = merged.rows.filter(pa.array(~is_retract(row_kinds(merged.rows))))
    assert told(written) == [case["expect_result"]] * (case["expect_result"] is not None)
