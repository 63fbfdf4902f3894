"""What one checkpoint publishes in one table: its files together with the position they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from checkpoint.epoch import EPOCH_PROPERTY, Epoch
from checkpoint.offsets import SourcePosition
from checkpoint.position_text import POSITION_PROPERTY, position_to_text
from storage.commit.commit_message import CommitMessage, Committable


@dataclass(frozen=True, slots=True)
class TableCommittable:
    """A snapshot to publish. Publishing it twice makes one snapshot: (commit user, identifier) names it forever.

    table: as the pipeline names it.
    identifier: the checkpoint's number, the same for all tables.
    messages: may be none; the snapshot then only pins the position.
    epoch: of the process that publishes it.
    extra_properties: what else the snapshot says of the pipeline (routing, moved rows).
    """

    table: str
    identifier: int
    messages: Sequence[CommitMessage]
    position: SourcePosition
    epoch: Epoch
    extra_properties: Mapping[str, str] = field(default_factory=dict)

    def to_storage(self) -> Committable:
        """The storage committable, with position and epoch as snapshot properties."""
        properties = {POSITION_PROPERTY: position_to_text(self.position), EPOCH_PROPERTY: self.epoch.to_text()}
        return Committable(self.identifier, self.messages, properties={**properties, **self.extra_properties})
