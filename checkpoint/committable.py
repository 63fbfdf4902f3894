"""What one checkpoint publishes in one table: its files together with the position they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from checkpoint.offsets import SourcePosition
from checkpoint.position_text import POSITION_PROPERTY, position_to_text
from storage.commit.commit_message import CommitMessage, Committable


@dataclass(frozen=True, slots=True)
class TableCommittable:
    """One snapshot to be. Publishing it twice makes one snapshot: (commit user, identifier) is its name for ever.

    table: as the pipeline names it. identifier: the checkpoint's number, the same for all tables.
    messages: may be none; the snapshot then only pins the position. extra_properties: what else the snapshot says of
    the pipeline (epoch, routing), as properties.
    """

    table: str
    identifier: int
    messages: Sequence[CommitMessage]
    position: SourcePosition
    extra_properties: Mapping[str, str] = field(default_factory=dict)

    def to_storage(self) -> Committable:
        """With the position among the snapshot's properties."""
        properties = {POSITION_PROPERTY: position_to_text(self.position), **self.extra_properties}
        return Committable(self.identifier, self.messages, properties=properties)
