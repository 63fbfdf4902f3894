"""Times, sizes and offsets as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from checkpoint.offsets import TopicPartition


def utc_text(time_ms: int) -> str:
    """Epoch milliseconds: `2026-05-01 12:00:00`, or the number where a calendar has no such year."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def size_text(nbytes: float) -> str:
    """`734 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 100 else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:,.1f} TiB"


def offsets_by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    """Topic to partition to next offset."""
    topics: dict[str, dict[int, int]] = {}
    for partition, offset in sorted(offsets.items()):
        topics.setdefault(partition.topic, {})[partition.partition] = offset
    return topics
