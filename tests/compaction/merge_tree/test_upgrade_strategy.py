"""How an upgraded file affects a changelog."""

from __future__ import annotations

import pytest

from tests.compaction.files import paper_file
from tests.support.cases import Case, NotUnderstood, case_id, check_members, vectors
from tidelake.compaction.merge_tree.upgrade_strategy import (
    UpgradeStrategy,
    full_compaction_upgrade_strategy,
    lookup_upgrade_strategy,
)
from tidelake.storage.model.options import TableOptions

MEMBERS = {
    *("rewriter", "file_level", "output_level", "max_level", "merge_engine", "has_sequence_field", "deletion_vectors"),
    *("delete_row_count", "file_format_differs_between_levels", "pk_vector_index", "expect"),
}


@pytest.mark.parametrize("case", vectors("upgrade_strategy"), ids=case_id)
def test_upgrade_strategy(case: Case) -> None:
    check_members(case, MEMBERS)
    if case["rewriter"] == "full-compaction":
        got = full_compaction_upgrade_strategy(case["output_level"], case["max_level"])
    elif case["rewriter"] == "lookup":
        options = {"merge-engine": case["merge_engine"]}
        options |= {"sequence.field": "ts"} if case.get("has_sequence_field") else {}
        options |= {"file.format.per.level": "0:avro"} if case.get("file_format_differs_between_levels") else {}
        got = lookup_upgrade_strategy(
            TableOptions(options),
            paper_file("f", case["file_level"], deletes=case.get("delete_row_count", 0)),
            case["output_level"],
            case["max_level"],
            has_deletion_vectors=case.get("deletion_vectors", False),
            has_vector_index=case.get("pk_vector_index", False),
        )
    else:
        raise NotUnderstood(f"rewriter {case['rewriter']!r} of a case")
    assert got is UpgradeStrategy[case["expect"]]
    assert got.rewrites is ("WITH_REWRITE" in case["expect"])
    assert got.produces_changelog is not case["expect"].startswith("NO_CHANGELOG")
