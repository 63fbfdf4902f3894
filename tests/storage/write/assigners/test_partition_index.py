"""The index from keys to buckets: every vector of Java's assigners, and a comparison with a naive dict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import Case, case_id, check_members, vectors
from tidelake.errors import BadInput
from tidelake.storage.model.binary_row import hash_rows
from tidelake.storage.model.bucketing import bucket_ids
from tidelake.storage.model.types import BIGINT, INT
from tidelake.storage.write.assigners.hash_index_file import decode_hashes, encode_hashes
from tidelake.storage.write.assigners.partition_index import BUCKETS_MAX, AssignmentRule, PartitionIndex, assigners_of

DYNAMIC = vectors("dynamic_bucket")


def of_op(*ops: str) -> list[Case]:
    return [case for case in DYNAMIC if case["op"] in ops]


def test_every_operation_of_the_vectors_is_tested() -> None:
    known = {"hash_index_file", "compute_assigner", "binary_row_hash", "mod_bucket", "partition_index"}
    assert {case["op"] for case in DYNAMIC} <= known


def int32(values: list[int]) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(values, np.int32)


def rule_of(case: Case) -> AssignmentRule:
    most = case["max_buckets"]
    return AssignmentRule(case["target_row_num"], None if most == -1 else most, case["num_assigners"])


@pytest.mark.parametrize("case", of_op("hash_index_file"), ids=case_id)
def test_an_index_file_contains_its_hashes(case: Case) -> None:
    check_members(case, {"op", "hashes", "hex", "row_count", "file_size"})
    data = encode_hashes(int32(case["hashes"]))
    assert (data.hex(), len(data)) == (case["hex"], case["file_size"])
    assert decode_hashes(data, "index-1").tolist() == case["hashes"]


@pytest.mark.parametrize("case", of_op("compute_assigner"), ids=case_id)
def test_a_key_belongs_to_one_assigner(case: Case) -> None:
    check_members(case, {"op", "partition_hash", "key_hash", "num_channels", "num_assigners", "expect"})
    found = assigners_of(case["partition_hash"], int32([case["key_hash"]]), case["num_channels"], case["num_assigners"])
    assert found.tolist() == [case["expect"]]


@pytest.mark.parametrize("case", of_op("binary_row_hash"), ids=case_id)
def test_the_hash_of_a_key_is_that_of_its_row(case: Case) -> None:
    check_members(case, {"op", "field_type", "values", "row_hex", "expect_hash", "expect_default_bucket"})
    data_type, arrow = {"INT": (INT, pa.int32()), "BIGINT": (BIGINT, pa.int64())}[case["field_type"]]
    columns = [pa.array([value], arrow) for value in case["values"]]
    types = [data_type] * len(columns)
    assert hash_rows(columns, types).tolist() == [case["expect_hash"]]
    for buckets, bucket in case["expect_default_bucket"].items():
        assert bucket_ids(columns, types, int(buckets)).tolist() == [bucket]


@pytest.mark.parametrize("case", of_op("mod_bucket"), ids=case_id)
def test_mod_uses_floored_division(case: Case) -> None:
    check_members(case, {"op", "value", "num_buckets", "expect"})
    assert bucket_ids([pa.array([case["value"]])], [BIGINT], case["num_buckets"], "mod").tolist() == [case["expect"]]


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "as one batch"])
@pytest.mark.parametrize("case", of_op("partition_index"), ids=case_id)
def test_keys_are_assigned_to_the_same_buckets_as_in_java(case: Case, together: bool) -> None:
    check_members(
        case,
        {
            "op", "target_row_num", "max_buckets", "num_assigners", "assign_id", "restored_hashes_by_bucket", "steps",
        },
    )  # fmt: skip
    restored = {int(bucket): int32(hashes) for bucket, hashes in case["restored_hashes_by_bucket"].items()}
    index, owner = PartitionIndex(rule_of(case), restored), case["assign_id"] % case["num_assigners"]
    hashes = [step["hash"] for step in case["steps"]]
    parts = [hashes] if together else [[one] for one in hashes]
    found = [bucket for part in parts for bucket in index.assign(int32(part), owner).tolist()]
    for step, bucket in zip(case["steps"], found, strict=True):
        assert bucket in step.get("expect_one_of", [step.get("expect")])
    assert index.assign(int32(hashes), owner).tolist() == found, "a key stays where it is"


@pytest.mark.parametrize("case", vectors("simple_bucket_assigner"), ids=case_id)
def test_an_overwrite_fills_one_bucket_after_the_other(case: Case) -> None:
    check_members(case, {"target_row_num", "max_buckets", "num_assigners", "assign_id", "runs"})
    index, start = PartitionIndex(rule_of(case)), 0
    for run in case["runs"]:
        hashes = np.arange(start, start + run["new_hashes"], dtype=np.int32)
        found = index.assign(hashes, case["assign_id"] % case["num_assigners"])
        assert set(found.tolist()) <= set(run.get("expect_one_of", [run.get("expect")]))
        start += run["new_hashes"]


@given(st.lists(st.lists(st.integers(-40, 40).map(lambda n: n * 53_687_091), max_size=30), max_size=12))
def test_batches_are_assigned_like_single_keys(batches: list[list[int]]) -> None:
    index, naive = PartitionIndex(AssignmentRule(3)), dict[int, int]()
    for batch in batches:
        expected = [naive.setdefault(one, len(naive) // 3) for one in batch]
        assert index.assign(int32(batch)).tolist() == expected
    for bucket in set(naive.values()):
        assert sorted(index.hashes_of(bucket).tolist()) == sorted(one for one, b in naive.items() if b == bucket)
    again = PartitionIndex(AssignmentRule(3), {b: index.hashes_of(b) for b in set(naive.values())})
    assert again.buckets_of(int32(list(naive))).tolist() == list(naive.values())


def test_a_partition_without_a_free_bucket_id_raises_with_the_option() -> None:
    index = PartitionIndex(AssignmentRule(1))
    index.assign(np.arange(BUCKETS_MAX, dtype=np.int32))
    with pytest.raises(BadInput, match=r"all are full.*Set dynamic-bucket\.target-row-num, now 1, to a larger"):
        index.assign(int32([BUCKETS_MAX]))
