"""Offsets of partitions in the form of Spark's connector, `{"topic": {"0": 23}}`: in options, and in Spark's own log.

A query that was started with the connector can continue with this source, and vice versa.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput

LATEST: Final = -1
EARLIEST: Final = -2

Offsets: TypeAlias = Mapping[TopicPartition, int]


def to_members(offsets: Offsets) -> dict[str, Any]:
    """Return sorted members: Spark compares offsets as texts."""
    members: dict[str, Any] = {}
    for partition, offset in sorted(offsets.items()):
        members.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return members


def from_members(members: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, partitions in members.items()
        for number, offset in partitions.items()
    }


def of_text(option: str, text: str) -> dict[TopicPartition, int]:
    """Parse the offsets of an option. Raises BadInput."""
    try:
        members = json.loads(text)
        found = from_members(members)
    except (ValueError, AttributeError, TypeError):
        raise BadInput(f'option {option} = {text!r}: expected JSON such as {{"topic": {{"0": 23, "1": -2}}}}') from None
    return found


def partitions_of_text(option: str, text: str) -> frozenset[TopicPartition]:
    """Parse partitions, `{"topic": [0, 1]}`. Raises BadInput."""
    try:
        members = json.loads(text)
        return frozenset(TopicPartition(topic, int(number)) for topic, numbers in members.items() for number in numbers)
    except (ValueError, AttributeError, TypeError):
        raise BadInput(f'option {option} = {text!r}: expected JSON such as {{"topic": [0, 1]}}') from None
