"""The moved rows of a snapshot: a property of the snapshot, and the file that the property names.

    {"version": 1, "file": "shop-3f…e1.arrow", "rows": 2, "bytes": 8123, "oldest_ms": 1795196040376, "dropped": 1,
     "read_again": {"shop.public.docs": {"0": 120}}}

The file holds each row that was deleted under its old key below the snapshot's position and is not inserted under its
new key yet. The row has the values that it had when it was deleted. So rows, position and the data that is needed to
continue are published atomically. Each snapshot of a pipeline names the file with all moved rows. A snapshot without
the property has no moved rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import CorruptFile, UnsupportedFeature

MOVED_ROWS_PROPERTY: Final = "tidelake.moved-rows"  # key in Snapshot.properties
MOVED_ROWS_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class MovedRowsState:
    """The moved rows that a snapshot names.

    file: name in the table's directory of such files; None if no file exists
    rows: number of rows that are kept
    nbytes: size of the rows that are kept
    oldest_ms: when the oldest of them was read, epoch milliseconds
    dropped: number of rows whose values were dropped. It is only known that they were deleted under their old key
    read_again: for each partition, the offset below which records are read a second time
    """

    file: str | None = None
    rows: int = 0
    nbytes: int = 0
    oldest_ms: int | None = None
    dropped: int = 0
    read_again: Mapping[TopicPartition, int] = field(default_factory=dict)

    def to_properties(self) -> dict[str, str]:
        """Return the snapshot's properties; an empty mapping without moved rows."""
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
    """Return the moved rows of a snapshot; an empty state if the snapshot lacks the property.

    where: the snapshot's name in messages

    Raises CorruptFile, and UnsupportedFeature for a version that this release doesn't know: without the moved rows, the
    rows under the new keys could not be written.
    """
    text = properties.get(MOVED_ROWS_PROPERTY)
    if text is None:
        return MovedRowsState()
    try:
        members = json.loads(text)
        if (version := members["version"]) != MOVED_ROWS_VERSION:
            raise UnsupportedFeature(
                f"{MOVED_ROWS_PROPERTY} version {version} in {where}",
                f"this release reads only version {MOVED_ROWS_VERSION}, so values of moved rows would be lost",
                "Use the release that wrote it, or a newer one.",
            )
        reread = {
            TopicPartition(topic, int(partition)): int(end)
            for topic, partitions in members.get("read_again", {}).items()
            for partition, end in partitions.items()
        }
        if members.get("file") is None:
            return MovedRowsState(read_again=reread)
        oldest_ms = None if members["oldest_ms"] is None else int(members["oldest_ms"])
        rows, nbytes, dropped = (int(members[name]) for name in ("rows", "bytes", "dropped"))
        return MovedRowsState(str(members["file"]), rows, nbytes, oldest_ms, dropped, reread)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(
            where, f"moved rows as property {MOVED_ROWS_PROPERTY}", f"{text[:200]!r} ({error})"
        ) from error
