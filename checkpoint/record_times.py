"""The times of the records that a snapshot committed, as one of its properties.

With the snapshot's own time they show how long records took from their source into the table: the table's metadata is
enough, whatever became of the process (`tidelake table latency`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tidelake.errors import CorruptFile
from tidelake.storage.model.snapshots.snapshot import Snapshot

RECORD_TIMES_PROPERTY: Final = "tidelake.record-times"  # key in Snapshot.properties


@dataclass(frozen=True, slots=True)
class RecordTimes:
    """The oldest and the newest time of some records, in epoch milliseconds."""

    oldest_ms: int
    newest_ms: int

    def joined(self, other: RecordTimes | None) -> RecordTimes:
        if other is None:
            return self
        return RecordTimes(min(self.oldest_ms, other.oldest_ms), max(self.newest_ms, other.newest_ms))

    def to_text(self) -> str:
        """Return the text of the snapshot property."""
        return json.dumps({"oldest_ms": self.oldest_ms, "newest_ms": self.newest_ms}, separators=(",", ":"))

    @classmethod
    def of(cls, snapshot: Snapshot) -> RecordTimes | None:
        """Return the times in a snapshot; None if it has none. Raises CorruptFile."""
        text = snapshot.properties.get(RECORD_TIMES_PROPERTY)
        if text is None:
            return None
        try:
            members = json.loads(text)
            return cls(int(members["oldest_ms"]), int(members["newest_ms"]))
        except (ValueError, KeyError, TypeError) as error:
            what = f"times of records as property {RECORD_TIMES_PROPERTY}"
            raise CorruptFile(f"snapshot {snapshot.id}", what, f"{text[:200]!r} ({error})") from error


@dataclass(frozen=True, slots=True)
class CommitLatency:
    """How long the records of one commit took until readers could see them.

    snapshot_id: the first snapshot of the commit
    committed_at_ms: its time (epoch)
    oldest_ms, newest_ms: from the oldest and the newest record to the commit. Never negative, although clocks differ
    """

    snapshot_id: int
    committed_at_ms: int
    oldest_ms: int
    newest_ms: int


def commit_latencies(snapshots: Iterable[Snapshot]) -> Iterator[CommitLatency]:
    """Yield the latency of each commit that says the times of its records.

    A commit may have a second snapshot, with the files of a compaction. It doesn't count again.

    snapshots: oldest first

    Raises CorruptFile.
    """
    seen: tuple[str, int] | None = None
    for snapshot in snapshots:
        times, commit = RecordTimes.of(snapshot), (snapshot.commit_user, snapshot.commit_identifier)
        if times is not None and commit != seen:
            waits = (max(0, snapshot.time_ms - at_ms) for at_ms in (times.oldest_ms, times.newest_ms))
            yield CommitLatency(snapshot.id, snapshot.time_ms, *waits)
            seen = commit
