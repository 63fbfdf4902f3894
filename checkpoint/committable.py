"""What one checkpoint publishes in one table: its files, and the source position up to which they hold the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelake.checkpoint.epoch import EPOCH_PROPERTY, Epoch
from tidelake.checkpoint.offsets import POSITION_PROPERTY, SourcePosition
from tidelake.storage.commit.commit_message import CommitMessage, Committable


@dataclass(frozen=True, slots=True)
class TableCommittable:
    """A snapshot to publish. Publishing it twice makes one snapshot: (commit user, identifier) identifies it forever.

    table: the table's name in the pipeline.
    identifier: the checkpoint's number, the same for all tables.
    messages: the commit messages. If they are empty, the snapshot only records the position.
    position: the source position that the snapshot records.
    epoch: the epoch of the process that publishes the snapshot.
    extra_properties: other properties of the pipeline in the snapshot (routing, moved rows).
    """

    table: str
    identifier: int
    messages: Sequence[CommitMessage]
    position: SourcePosition
    epoch: Epoch
    extra_properties: Mapping[str, str] = field(default_factory=dict)

    def to_storage(self) -> Committable:
        """Return the storage committable, with position and epoch as snapshot properties."""
        properties = {POSITION_PROPERTY: self.position.text, EPOCH_PROPERTY: self.epoch.to_text()}
        return Committable(self.identifier, self.messages, properties={**properties, **self.extra_properties})
