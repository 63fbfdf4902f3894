"""Where a pipeline goes on after a start: the tables' own snapshots decide, nothing else.

What the source's group offsets say is a hint for monitoring. A position that can't be proven is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from checkpoint.offsets import SourceIdentity, SourcePosition, TopicPartition, identity_changes
from checkpoint.position_text import POSITION_PROPERTY, position_from_text
from storage.errors import PositionRefused


@dataclass(frozen=True, slots=True)
class OwnSnapshot:
    """The newest snapshot that the pipeline's commit user has in a table. path: its file, for messages."""

    path: str
    identifier: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the tables know. last_identifier: the largest of the commit user in any of them, 0 when there is none.

    positions: of the tables that this pipeline has committed to. fresh: the others.
    """

    positions: Mapping[str, SourcePosition]
    fresh: tuple[str, ...]
    last_identifier: int


def recover(newest: Mapping[str, OwnSnapshot | None]) -> Recovered:
    """Read what the tables know.

    newest: for each table of the pipeline its newest own snapshot. Two tables may stand at different checkpoints: the
    process died between two commits, or one of them had no rows for a while. Raises PositionRefused for an own
    snapshot without a position, CorruptFile or UnsupportedFeature for an unreadable one.
    """
    positions = {table: _position(table, snapshot) for table, snapshot in newest.items() if snapshot is not None}
    fresh = tuple(table for table, snapshot in newest.items() if snapshot is None)
    last = max((snapshot.identifier for snapshot in newest.values() if snapshot is not None), default=0)
    return Recovered(positions, fresh, last)


def _position(table: str, snapshot: OwnSnapshot) -> SourcePosition:
    text = snapshot.properties.get(POSITION_PROPERTY)
    if text is None:
        raise PositionRefused(
            f"{table}: {snapshot.path}, the newest snapshot of this commit user, carries no source position: "
            "something else committed under this name",
            [
                "give the pipeline another name (`pipeline: …`); it then starts as its `start` says",
                "roll the table back to the last snapshot that the pipeline itself wrote",
            ],
        )
    return position_from_text(text, snapshot.path)


def check_identity(positions: Mapping[str, SourcePosition], identity: SourceIdentity) -> None:
    """Raises PositionRefused when the source is not the one that the tables were filled from."""
    found = [
        f"{table}: {change}"
        for table, position in positions.items()
        for change in identity_changes(position.identity, identity)
    ]
    if found:
        raise PositionRefused(
            "the source is not the one these tables were filled from; their offsets count other records there.\n"
            + "\n".join(found),
            [
                "point the pipeline to the source it had",
                "give the pipeline another name (`pipeline: …`); it then reads the new source as its `start` says",
            ],
        )


def read_from(positions: Iterable[SourcePosition]) -> dict[TopicPartition, int]:
    """Where the source is read from: for each partition the smallest end among the tables that know it.

    A table that is further on drops the records below its own end.
    """
    smallest: dict[TopicPartition, int] = {}
    for position in positions:
        for partition, end in position.ends.items():
            smallest[partition] = min(end, smallest.get(partition, end))
    return smallest
