"""Formatting of values, times, sizes and offsets for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from tidelake.checkpoint.offsets import TopicPartition


def printable(text: str, *, may_break: bool = False) -> str:
    """Return the text with escapes (`\\n`, `\\x1b`) for control characters.

    Control characters could move the cursor or change colours.

    may_break: whether it may have several lines
    """
    return "".join(
        c if c.isprintable() or (may_break and c == "\n") else c.encode("unicode_escape").decode() for c in text
    )


def value_text(value: object) -> str:
    """Return a value of `tidelake.storage.model.types.json_values` as one printable line."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict() | list():
            import msgspec

            return printable(msgspec.json.encode(value).decode())
    return printable(str(value))


def partition_text(partition: Mapping[str, object]) -> str:
    """Return `dt=2026-05-01 hour=7`; "" for an unpartitioned table."""
    return " ".join(f"{printable(name)}={value_text(value)}" for name, value in partition.items())


def utc_text(time_ms: int) -> str:
    """Return epoch milliseconds as `2026-05-01 12:00:00`, or the number if no calendar has that year."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def size_text(nbytes: float) -> str:
    """Return a size such as `734 B` or `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 100 else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:,.1f} TiB"


def age_text(age_ms: float) -> str:
    """Return an age such as `3 s`, `12 min`, `5 h` or `40 d`.

    The unit is the largest one with a value of at least 2, otherwise seconds.
    """
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if age_ms >= 2 * unit_ms:
            return f"{age_ms // unit_ms:,.0f} {unit}"
    return f"{age_ms // 1000:.0f} s"


def cut_text(text: str, width: int) -> str:
    """Return the text, cut with an ellipsis if it does not fit.

    width: cells of the terminal; a Chinese character takes two
    """
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def offsets_by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    """Return topic -> partition -> next offset."""
    topics: dict[str, dict[int, int]] = {}
    for partition, offset in sorted(offsets.items()):
        topics.setdefault(partition.topic, {})[partition.partition] = offset
    return topics
