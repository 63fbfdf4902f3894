"""Liveness of partitions: detects partitions for which no broker answers.

aiokafka retries an unreachable broker forever, and only logs it. For its caller this looks like a topic without new
records.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from tidelake.checkpoint.offsets import TopicPartition

CHECK_INTERVAL_MS: Final = 1_000


class PartitionLiveness:
    """Measures how long each partition has not answered while it was polled.

    limit_ms: the time after which a partition is silent. Time without a poll (while the tables are slower than the
        source) doesn't count.
    """

    def __init__(self, limit_ms: int, now_ms: int) -> None:
        self._limit_ms = limit_ms
        self._checked_ms = now_ms
        self._answers: dict[TopicPartition, Hashable] = {}
        self._unanswered_ms: dict[TopicPartition, int] = {}

    def is_due(self, now_ms: int) -> bool:
        return now_ms - self._checked_ms >= CHECK_INTERVAL_MS

    def check(self, answers: Mapping[TopicPartition, Hashable], now_ms: int) -> list[TopicPartition]:
        """Return the silent partitions.

        answers: for each partition a value that changes with each answer.
        """
        # Before a late check, the partitions were not polled for a while. A part of this time counts, so that a slow
        # table doesn't hide a dead broker forever.
        waited_ms = min(now_ms - self._checked_ms, 2 * CHECK_INTERVAL_MS)
        self._checked_ms = now_ms
        self._unanswered_ms = {
            partition: self._unanswered_ms.get(partition, 0) + waited_ms if self._is_unchanged(partition, answer) else 0
            for partition, answer in answers.items()
        }
        self._answers = dict(answers)
        return [
            partition for partition, unanswered_ms in self._unanswered_ms.items() if unanswered_ms >= self._limit_ms
        ]

    def _is_unchanged(self, partition: TopicPartition, answer: Hashable) -> bool:
        return self._answers.get(partition) == answer
