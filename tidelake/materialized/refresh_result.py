"""The result of a refresh. Opening a catalog needs it, but not the parser of queries, which is slow to import."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RefreshKind(StrEnum):
    NONE = "none"
    INCREMENTAL = "incremental"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The result of a refresh.

    reason: why the refresh was full, or none; for an incremental one, how many rows changed.
    snapshot_id: the snapshot with the rows; for `none` the newest, None if there is none.
    """

    table: str
    kind: RefreshKind
    reason: str
    snapshot_id: int | None
