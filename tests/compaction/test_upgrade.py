"""What raising a file means for a changelog."""

from __future__ import annotations

import pytest

from compaction.upgrade import UpgradeStrategy, full_compaction_upgrade, lookup_upgrade
from storage.options import TableOptions
from tests.compaction.files import paper_file
from tests.support.cases import Case, case_id, vectors


@pytest.mark.parametrize("case", vectors("upgrade_strategy"), ids=case_id)
def test_upgrade_strategy(case: Case) -> None:
    if case["rewriter"] == "full-compaction":
        got = full_compaction_upgrade(case["output_level"], case["max_level"])
    else:
        options = {"merge-engine": case["merge_engine"]}
        options |= {"sequence.field": "ts"} if case["has_sequence_field"] else {}
        options |= {"file.format.per.level": "0:avro"} if case["file_format_differs_between_levels"] else {}
        got = lookup_upgrade(
            TableOptions(options),
            paper_file("f", case["file_level"], deletes=case["delete_row_count"]),
            case["output_level"],
            case["max_level"],
            has_deletion_vectors=case["deletion_vectors"],
            has_vector_index=case["pk_vector_index"],
        )
    assert got is UpgradeStrategy[case["expect"]]
    assert got.rewrites is ("WITH_REWRITE" in case["expect"])
    assert got.reads_changes is not case["expect"].startswith("NO_CHANGELOG")
