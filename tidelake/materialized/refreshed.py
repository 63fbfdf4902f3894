"""What a refresh did."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RefreshKind(StrEnum):
    NONE = "none"
    INCREMENTAL = "incremental"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Refreshed:
    """reason: why it was full or none at all; of an incremental one, how much changed.

    snapshot_id: with the rows; of `none` the newest, None where there is none.
    """

    table: str
    kind: RefreshKind
    reason: str
    snapshot_id: int | None
