"""Every merge engine merges the rows of one key like Java's: the suite `merge_functions`."""

from __future__ import annotations

import pytest

from tests.support.case_errors import refused_as
from tests.support.cases import Case, case_id, own_vectors, vectors
from tests.support.merge_cases import MergeCase, expected, reported
from tests.support.row_merge import merge_row_by_row, merge_without_shortcut


@pytest.mark.parametrize("case", vectors("merge_functions"), ids=case_id)
def test_rows_of_a_key_merge_as_in_java(case: Case) -> None:
    read = MergeCase.of(case)
    if "expect_error" in case:
        with refused_as(case["expect_error"]):
            read.create_and_write()
            read.merged()
    else:
        assert reported(case, read.merged()) == expected(case, read.types)


MODELLED = [
    case for case in own_vectors("merge_functions") if case["engine"] != "aggregation" and "expect_error" not in case
]


@pytest.mark.parametrize("case", MODELLED, ids=case_id)
def test_the_row_by_row_model_merges_as_java(case: Case) -> None:
    """The model that other tests trust, held to our own cases whatever the hook says: it need not know all."""
    read = MergeCase.of(case)
    merge = merge_row_by_row if read.shortcut else merge_without_shortcut
    merged = merge(case["engine"], read.options, list(read.types), read.key, read.records)
    assert reported(case, [] if merged is None else [merged]) == expected(case, read.types)
