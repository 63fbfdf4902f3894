"""The epoch of a process: a growing number in the snapshots that decides which process of a pipeline may commit.

A starting process publishes an empty snapshot in every table, with an epoch above all epochs that it found. From then
on every older process finds that snapshot before its next commit (`tidelake.checkpoint.fence`), even if it was
suspended for a long time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelake.errors import CorruptFile, UnsupportedFeature
from tidelake.storage.base import env

EPOCH_PROPERTY: Final = "tidelake.epoch"  # key in Snapshot.properties
EPOCH_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Epoch:
    """The epoch of a process: the number of take-overs, and its writer.

    number: counted from 1. 0: the snapshot's release didn't write epochs
    writer: the unique name of one process
    """

    number: int
    writer: str

    def __str__(self) -> str:
        return f"epoch {self.number}, {self.writer}" if self.number else "no epoch"

    def supersedes(self, other: Epoch) -> bool:
        """Return whether a process of this epoch owns the pipeline, so that a process of the other epoch must stop.

        If two processes started at the same moment, each regards the other's epoch as newer. The first that commits
        owns the pipeline.
        """
        return self.number > other.number or (self.number == other.number and self.writer != other.writer)

    def to_text(self) -> str:
        """Return the text of the snapshot property."""
        members = {"version": EPOCH_VERSION, "number": self.number, "writer": self.writer}
        return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


NO_EPOCH: Final = Epoch(0, "")


def epoch_of(properties: Mapping[str, str], where: str) -> Epoch:
    """Return the epoch of a snapshot; NO_EPOCH if it has none.

    where: the snapshot's name in messages

    Raises CorruptFile, and UnsupportedFeature for an unknown version: treating it as old would allow two writers.
    """
    text = properties.get(EPOCH_PROPERTY)
    if text is None:
        return NO_EPOCH
    try:
        members = json.loads(text)
        if (version := members["version"]) != EPOCH_VERSION:
            raise UnsupportedFeature(
                f"{EPOCH_PROPERTY} version {version} in {where}",
                f"this release reads only version {EPOCH_VERSION}, so it can't tell which process is newer",
                "Use the release that wrote it, or a newer one.",
            )
        return Epoch(int(members["number"]), str(members["writer"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(where, f"an epoch as property {EPOCH_PROPERTY}", f"{text[:200]!r} ({error})") from error


def new_writer_id() -> str:
    """Return a unique name for this process, which also says where it runs."""
    return f"{env.host_name()}:{env.process_id()}:{env.new_uuid().hex[:8]}"
