"""`errors.tolerance` counts each record that was set aside once, when it becomes a dead letter."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.ingest.pipeline.fakes import raw_batch
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.formats.base import DecodeFailure, FailureKind
from tidelake.ingest.pipeline.error_policy import ErrorPolicy

T0 = TopicPartition("t", 0)
BAD = [DecodeFailure(offset, offset, FailureKind.BAD_RECORD, "no JSON") for offset in range(4)]


def first_fatal(policy: ErrorPolicy, failures: list[DecodeFailure]) -> DecodeFailure | None:
    return policy.first_fatal(failures, lambda failure: False, T0)


def test_staging_a_batch_again_after_a_table_failed_leaves_the_tolerance_as_it_was() -> None:
    policy = ErrorPolicy(3)
    assert [first_fatal(policy, BAD[:2]) for _ in range(3)] == [None] * 3
    policy.count(BAD[:2], T0)
    assert first_fatal(policy, BAD[2:]) == BAD[3]


def test_records_that_an_operator_skips_are_not_counted() -> None:
    policy = ErrorPolicy(1, skip=[(T0, 0)])
    assert first_fatal(policy, BAD[:2]) is None
    policy.count(BAD[:2], T0)
    assert first_fatal(policy, BAD[2:]) == BAD[2]
    assert first_fatal(policy, BAD[:1]) is None


@pytest.mark.parametrize("tolerance", ["none", 1])
@pytest.mark.parametrize("kind", FailureKind)
def test_each_refusal_names_the_flag_that_skips_its_record(kind: FailureKind, tolerance: Literal["none"] | int) -> None:
    refused = ErrorPolicy(tolerance).refusal(DecodeFailure(0, 7, kind, "no"), raw_batch([7]))
    assert str(refused).endswith("`--skip-record log:0:7` keeps only this record as a dead letter")
