"""Option values that derive from others."""

from __future__ import annotations

import pytest

from storage.options import TableOptions
from tests.support.cases import Case, case_id, vectors

NAMES = {"target-file-size-bytes": "target-file-size"}


@pytest.mark.parametrize("case", vectors("option_derivation"), ids=case_id)
def test_option_derivation(case: Case) -> None:
    options = TableOptions({NAMES.get(key, key): str(value) for key, value in case["options"].items()})
    assert {
        "num_levels": options.num_levels,
        "stop_trigger": options.stop_trigger,
        "sort_spill_threshold": options.sort_spill_threshold,
        "compaction_file_size": options.compaction_file_size_bytes(has_primary_key=True),
        "lookup_compact_max_interval": options.lookup_compact_max_interval,
        "wait_in_flush_when_runs_exceed": options.stop_trigger,
        "wait_in_prepare_commit_when_runs_exceed": options.stop_trigger + 1,
    } == case["expect"]
