"""The state of a table when a pipeline starts: its snapshots, and the files that the pipeline keeps with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """The parts of a snapshot that recovery reads.

    path: its file, for messages
    manifest_list: of its delta; two snapshots never have the same one
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

    created_ms: when the table was made (`timeMillis` of schema 0), None when there is no such table
    own: snapshots of the pipeline's commit user, newest first, as far back as was looked; the newest is always there
    others: snapshots of other users that carry a position, too
    earliest_id, latest_id: of all snapshots, None without any
    newest_of_others: of each other commit user the newest snapshot with a position that came after the newest own one;
        those of `tables[].shared_with` are left out
    consumer_snapshot_id: the own snapshot that the pipeline's consumer file names, None where there is no file
    """

    created_ms: int | None
    own: Sequence[SnapshotSummary] = ()
    others: Sequence[SnapshotSummary] = ()
    earliest_id: int | None = None
    latest_id: int | None = None
    consumer_snapshot_id: int | None = None
    newest_of_others: Sequence[SnapshotSummary] = ()


MISSING_TABLE = TableState(None)
