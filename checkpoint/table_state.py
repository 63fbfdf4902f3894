"""The state of a table when a pipeline starts: its snapshots, and the files that the pipeline keeps with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """The parts of a snapshot that recovery reads.

    path: the snapshot's file, for messages
    manifest_list: the delta manifest list; no two snapshots have the same one
    """

    id: int
    path: str
    commit_user: str
    identifier: int
    manifest_list: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table when a pipeline starts.

    created_ms: when the table was created (`timeMillis` of schema 0); None if the table doesn't exist
    own: snapshots of the pipeline's commit user, newest first. Older ones may be missing; the newest is always included
    others: snapshots of other users that also have a position
    earliest_id: the oldest id of all snapshots; None if the table has none
    latest_id: the newest id of all snapshots; None if the table has none
    consumer_snapshot_id: the own snapshot that the pipeline's consumer file names; None if the file doesn't exist
    newest_of_others: for each other commit user, the newest snapshot with a position, if it is newer than the newest
        own one. Commit users in `tables[].shared_with` are left out
    """

    created_ms: int | None
    own: Sequence[SnapshotSummary] = ()
    others: Sequence[SnapshotSummary] = ()
    earliest_id: int | None = None
    latest_id: int | None = None
    consumer_snapshot_id: int | None = None
    newest_of_others: Sequence[SnapshotSummary] = ()


MISSING_TABLE = TableState(None)
