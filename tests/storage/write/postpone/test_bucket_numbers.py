"""How many buckets waiting rows get."""

from __future__ import annotations

from typing import Any

import pytest

from storage.errors import BadInput
from storage.options import TableOptions
from storage.write.postpone.bucket_numbers import PostponeOptions, estimated_bucket_num
from tests.support.cases import case_id, vectors

MEMBERS = {
    "default-bucket-num": "default_bucket_num",
    "target-row-num-per-bucket": "target_rows",
    "target-size-per-bucket": "target_bytes",
    "batch-write-fixed-bucket.max-parallelism": "bucket_num_max",
    "batch-write-fixed-bucket.rescale-load-factor": "rescale_load_factor",
}


@pytest.mark.parametrize("case", vectors("postpone_bucket_num"), ids=case_id)
def test_numbers_are_those_of_java(case: Any) -> None:
    if case["op"] == "compaction_estimate":
        assert estimated_bucket_num(case["value"], case["target"]) == case["expect"]
        return
    given = {key.removeprefix("postpone."): value for key, value in case["options"].items()}
    members = {MEMBERS[key]: value for key, value in given.items()}
    options = PostponeOptions(**members)
    found = options.bucket_num_at_once(case["staged_rows"], case["staged_bytes"], case["existing_bucket_num"])
    assert found == (case["expect"]["target_bucket_num"], case["expect"]["requires_rescale"])


def test_a_partition_keeps_the_number_it_has() -> None:
    assert PostponeOptions(default_bucket_num=3, target_rows=1).bucket_num(100, 100, existing=7) == 7


@pytest.mark.parametrize("key", ["postpone.default-bucket-num", "postpone.target-row-num-per-bucket"])
def test_numbers_below_one_are_refused(key: str) -> None:
    with pytest.raises(BadInput, match=f"option {key} = 0"):
        PostponeOptions.of(TableOptions({key: "0"}))


def test_more_buckets_than_an_int_holds_are_refused() -> None:
    with pytest.raises(BadInput, match="raise it"):
        estimated_bucket_num(2**40, 1)
