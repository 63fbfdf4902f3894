"""What a snapshot says of rows on their way from one key to another: a property, and the file that it names.

    {"version": 1, "file": "shop-3f…e1.arrow", "rows": 2, "bytes": 8123, "oldest_ms": 1795196040376, "dropped": 1,
     "read_again": {"shop.public.docs": {"0": 120}}}

A row that left its old key below the snapshot's position, and has not come to its new one, is in the file, as it was
when it left. So rows, position and what it takes to go on from there are published at once or not at all. Each snapshot
of a pipeline names the file that holds all of them; one without the property has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checkpoint.offsets import TopicPartition
from storage.errors import CorruptFile, UnsupportedFeature

MOVED_ROWS_PROPERTY: Final = "tidelake.moved-rows"  # key in Snapshot.properties
MOVED_ROWS_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class MovedRowsState:
    """The moved rows that a snapshot names.

    file: its name in the table's directory of such files; None without any
    rows, nbytes: number and size of the rows that are kept
    oldest_ms: when the oldest of them was read, epoch milliseconds
    dropped: number of rows whose values were dropped: it is only known that they left
    read_again: by partition, the offset below which records are read a second time
    """

    file: str | None = None
    rows: int = 0
    nbytes: int = 0
    oldest_ms: int | None = None
    dropped: int = 0
    read_again: Mapping[TopicPartition, int] = field(default_factory=dict)

    def to_properties(self) -> dict[str, str]:
        """The snapshot's properties; none without moved rows."""
        if self.file is None and not self.read_again:
            return {}
        members: dict[str, Any] = {"version": MOVED_ROWS_VERSION}
        if self.file is not None:
            members |= {"file": self.file, "rows": self.rows, "bytes": self.nbytes, "oldest_ms": self.oldest_ms}
            members["dropped"] = self.dropped
        if self.read_again:
            topics: dict[str, dict[str, int]] = {}
            for (topic, partition), end in sorted(self.read_again.items()):
                topics.setdefault(topic, {})[str(partition)] = end
            members["read_again"] = topics
        return {MOVED_ROWS_PROPERTY: json.dumps(members, ensure_ascii=False, separators=(",", ":"))}


def moved_rows_of(properties: Mapping[str, str], where: str) -> MovedRowsState:
    """An empty one where the snapshot says nothing.

    where: the snapshot, for messages

    Raises CorruptFile, and UnsupportedFeature for a version this release doesn't know: without the rows, those under
    the new keys could not be written.
    """
    text = properties.get(MOVED_ROWS_PROPERTY)
    if text is None:
        return MovedRowsState()
    try:
        members = json.loads(text)
        if (version := members["version"]) != MOVED_ROWS_VERSION:
            raise UnsupportedFeature(
                f"{MOVED_ROWS_PROPERTY} version {version} in {where}",
                f"this release reads version {MOVED_ROWS_VERSION}, and values of rows that moved would be lost",
                "Use the release that wrote it, or a newer one.",
            )
        again = {
            TopicPartition(topic, int(partition)): int(end)
            for topic, partitions in members.get("read_again", {}).items()
            for partition, end in partitions.items()
        }
        if members.get("file") is None:
            return MovedRowsState(read_again=again)
        oldest_ms = None if members["oldest_ms"] is None else int(members["oldest_ms"])
        rows, nbytes, dropped = (int(members[name]) for name in ("rows", "bytes", "dropped"))
        return MovedRowsState(str(members["file"]), rows, nbytes, oldest_ms, dropped, again)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(
            where, f"moved rows as property {MOVED_ROWS_PROPERTY}", f"{text[:200]!r} ({error})"
        ) from error
