"""The errors of this project. Every message names the problem, the reason and the remedy.

There are few types: a new one is added only if a caller would act differently.
"""

from __future__ import annotations

from collections.abc import Sequence


class TidelakeError(Exception):
    """Base class of all errors that this project raises on purpose."""


class BadInput(TidelakeError):
    """The input of the caller is invalid; the table is not changed. Correct the input and call again."""


class UnsupportedFeature(TidelakeError):
    """The table needs a feature that this release lacks, and continuing would give wrong rows or a wrong table.

    feature: the option or type, spelled as in the table
    reason: what would break
    remedy: what the user can do
    """

    def __init__(self, feature: str, reason: str, remedy: str) -> None:
        super().__init__(f"{feature}: {reason}. {remedy}")
        self.feature = feature
        self.reason = reason
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[UnsupportedFeature], tuple[str, str, str]]:
        return type(self), (self.feature, self.reason, self.remedy)


class CorruptFile(TidelakeError):
    """A file does not match its metadata. Files are never skipped silently.

    path: the file
    expected: expected content, in words
    found: actual content, in words
    offset: byte position if known, otherwise None
    """

    def __init__(self, path: str, expected: str, found: str, offset: int | None = None) -> None:
        at = "" if offset is None else f" at byte {offset}"
        super().__init__(f"{path}{at}: expected {expected}, found {found}")
        self.path = path
        self.expected = expected
        self.found = found
        self.offset = offset

    def __reduce__(self) -> tuple[type[CorruptFile], tuple[str, str, str, int | None]]:
        return type(self), (self.path, self.expected, self.found, self.offset)


class AccessDenied(TidelakeError, PermissionError):
    """The operating system or an object store denies access to a file. Nothing was changed there.

    Also an OSError, with `errno` and `filename`. The message names the path, the operation and the remedy.
    """

    def __init__(self, code: int, reason: str, path: str) -> None:
        super().__init__(code, reason, path)

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class SnapshotExpired(TidelakeError):
    """The snapshot no longer exists: it expired or was rolled back, maybe while it was read. Nothing is damaged: start
    again with an existing snapshot. Rows read so far are from a state that the table had.

    there: the table's snapshots now, in words
    """

    def __init__(self, table: str, snapshot_id: int, there: str) -> None:
        super().__init__(
            f"{table}: snapshot {snapshot_id} no longer exists: it expired or was rolled back ({there}). Start again: "
            "scan the table, and read its changes from that snapshot on. To keep the snapshots of slow readers, use "
            "a consumer (follow), a tag, or a longer 'snapshot.time-retained'"
        )
        self.table = table
        self.snapshot_id = snapshot_id
        self.there = there

    def __reduce__(self) -> tuple[type[SnapshotExpired], tuple[str, int, str]]:
        return type(self), (self.table, self.snapshot_id, self.there)


class CommitConflict(TidelakeError):
    """Another commit conflicts with ours. Nothing was published: refresh, plan again, retry."""


class StaleSequenceNumbers(CommitConflict):
    """Another writer committed rows to a bucket after its sequence numbers were read. The same rows can be committed
    with newer numbers.
    """


class CommitOutcomeUnknown(TidelakeError):
    """The commit may have been published. Look for its commit identifier first; delete nothing until you know."""


class WriterFenced(TidelakeError):
    """A newer writer owns this pipeline. Stop writing; do not retry."""


class PositionRefused(TidelakeError):
    """The read position cannot be proven from the table.

    found: the problems
    ways_out: commands or settings to choose from
    """

    def __init__(self, found: str, ways_out: Sequence[str]) -> None:
        super().__init__("\n".join([found, "Options:", *(f"  {way}" for way in ways_out)]))
        self.found = found
        self.ways_out = tuple(ways_out)

    def __reduce__(self) -> tuple[type[PositionRefused], tuple[str, tuple[str, ...]]]:
        return type(self), (self.found, self.ways_out)
