"""The errors that storage raises; `tidelake.errors` defines them."""

from __future__ import annotations

from tidelake.errors import (
    AccessDenied,
    BadInput,
    CommitConflict,
    CommitOutcomeUnknown,
    CorruptFile,
    PositionRefused,
    SnapshotExpired,
    StaleSequenceNumbers,
    TidelakeError,
    UnsupportedFeature,
    WriterFenced,
)

__all__ = [
    "AccessDenied",
    "BadInput",
    "CommitConflict",
    "CommitOutcomeUnknown",
    "CorruptFile",
    "PositionRefused",
    "SnapshotExpired",
    "StaleSequenceNumbers",
    "TidelakeError",
    "UnsupportedFeature",
    "WriterFenced",
]
