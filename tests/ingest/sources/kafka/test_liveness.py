"""Partitions without answers are detected, and only time with open requests counts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.sources.kafka.liveness import PartitionLiveness

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass(frozen=True)
class Case:
    """checks: (at ms, mark of A, mark of B). A mark that differs is an answer."""

    id: str
    checks: list[tuple[int, object, object]]
    silent: list[TopicPartition]


CASES = [
    Case("answers all the time", [(1_000, 1, 1), (2_000, 2, 2), (3_000, 3, 3), (4_000, 4, 4)], []),
    Case("one of two is silent", [(1_000, 1, 1), (2_000, 2, 1), (3_000, 3, 1), (4_000, 4, 1)], [B]),
    Case("never answered", [(1_000, None, 1), (2_000, None, 2), (3_000, None, 3)], [A]),
    Case("answered again in time", [(1_000, 1, 1), (2_000, 1, 2), (3_000, 2, 3), (5_000, 2, 4)], []),
    Case("nobody asked for an hour", [(1_000, 1, 1), (3_600_000, 1, 1)], []),
    Case("nobody asked, then asks in vain", [(1_000, 1, 1), (3_600_000, 1, 2), (3_601_000, 1, 3)], [A]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_silent_partitions(case: Case) -> None:
    liveness = PartitionLiveness(limit_ms=3_000, now_ms=0)
    found: list[TopicPartition] = []
    for now_ms, a, b in case.checks:
        assert liveness.is_due(now_ms)
        found = liveness.check({A: a, B: b}, now_ms)
    assert found == case.silent


def test_checks_are_due_once_a_second() -> None:
    liveness = PartitionLiveness(limit_ms=3_000, now_ms=5_000)
    assert not liveness.is_due(5_999)
    assert liveness.is_due(6_000)
