"""Liveness of partitions: notices those that no broker answers for.

aiokafka retries an unreachable broker forever, and only logs it: to its caller that looks like a
topic without new records.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from checkpoint.offsets import TopicPartition

CHECK_INTERVAL_MS: Final = 1_000


class PartitionLiveness:
    """How long each partition has given no answer while we were asking.

    limit_ms: from then on a partition is silent. Time without a poll (the tables were slower than the source)
    doesn't count.
    """

    def __init__(self, limit_ms: int, now_ms: int) -> None:
        self._limit_ms = limit_ms
        self._checked_ms = now_ms
        self._answers: dict[TopicPartition, Hashable] = {}
        self._unanswered_ms: dict[TopicPartition, int] = {}

    def is_due(self, now_ms: int) -> bool:
        return now_ms - self._checked_ms >= CHECK_INTERVAL_MS

    def check(self, answers: Mapping[TopicPartition, Hashable], now_ms: int) -> list[TopicPartition]:
        """The partitions that are silent.

        answers: for each partition a mark that is another one after each answer.
        """
        # A check that comes late follows a time without asking. A little of it counts, so that a slow table doesn't
        # hide a dead broker forever.
        waited_ms = min(now_ms - self._checked_ms, 2 * CHECK_INTERVAL_MS)
        self._checked_ms = now_ms
        self._unanswered_ms = {
            partition: self._unanswered_ms.get(partition, 0) + waited_ms if self._same(partition, answer) else 0
            for partition, answer in answers.items()
        }
        self._answers = dict(answers)
        return [
            partition for partition, unanswered_ms in self._unanswered_ms.items() if unanswered_ms >= self._limit_ms
        ]

    def _same(self, partition: TopicPartition, answer: Hashable) -> bool:
        return self._answers.get(partition) == answer
