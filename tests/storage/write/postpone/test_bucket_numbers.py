"""The number of buckets for postponed rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import case_id, vectors
from tidelake.errors import BadInput
from tidelake.storage.model.options import TableOptions
from tidelake.storage.write.postpone.bucket_numbers import PostponeOptions, estimated_bucket_num


def options_of(**given: object) -> PostponeOptions:
    """Names with `_` for `-`, without `postpone.`."""
    return PostponeOptions.of(TableOptions({f"postpone.{key.replace('_', '-')}": str(v) for key, v in given.items()}))


@pytest.mark.parametrize("case", vectors("postpone_bucket_num"), ids=case_id)
def test_bucket_numbers_equal_javas(case: Any) -> None:
    if case["op"] == "compaction_estimate":
        assert estimated_bucket_num(case["value"], case["target"]) == case["expect"]
        return
    options = PostponeOptions.of(TableOptions({key: str(value) for key, value in case["options"].items()}))
    found = options.fixed_bucket_num(case["staged_rows"], case["staged_bytes"], case["existing_bucket_num"])
    assert found == (case["expect"]["target_bucket_num"], case["expect"]["requires_rescale"])


def test_a_partition_keeps_its_number_of_buckets() -> None:
    assert options_of(default_bucket_num=3, target_row_num_per_bucket=1).bucket_num(100, 100, existing=7) == 7


@pytest.mark.parametrize("key", ["postpone.default-bucket-num", "postpone.target-row-num-per-bucket"])
def test_numbers_below_one_are_refused(key: str) -> None:
    with pytest.raises(BadInput, match=f"option {key} = 0"):
        PostponeOptions.of(TableOptions({key: "0"}))


def test_an_invalid_number_raises_with_the_option_name() -> None:
    with pytest.raises(BadInput, match=r"option postpone\.default-bucket-num = 'many': expected a whole number"):
        options_of(default_bucket_num="many")


def test_an_unset_number_is_computed() -> None:
    assert options_of(target_row_num_per_bucket=10).bucket_num(95, 0, existing=None) == 10


def test_more_buckets_than_an_int_holds_are_refused() -> None:
    with pytest.raises(BadInput, match="raise it"):
        estimated_bucket_num(2**40, 1)
