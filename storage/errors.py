"""The errors of this project. A message says what happened and what to do next.

Few types: a new one only where a caller would act differently. Every message names the thing, the reason and the
remedy.
"""

from __future__ import annotations

from collections.abc import Sequence


class TidelakeError(Exception):
    """Base of every error this project raises on purpose."""


class BadInput(TidelakeError):
    """What the caller gave cannot be used; the table is untouched. Correct the input and call again."""


class UnsupportedFeature(TidelakeError):
    """The table asks for something this release lacks, and going on would give wrong rows or a wrong table.

    feature: the option or type, spelled as in the table.
    reason: what would break.
    remedy: what the user can do.
    """

    def __init__(self, feature: str, reason: str, remedy: str) -> None:
        super().__init__(f"{feature}: {reason}. {remedy}")
        self.feature = feature
        self.reason = reason
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[UnsupportedFeature], tuple[str, str, str]]:
        return type(self), (self.feature, self.reason, self.remedy)


class CorruptFile(TidelakeError):
    """A file is not what its table says it is. Stop; a file is never skipped in silence.

    path: the file.
    expected, found: in words.
    offset: byte position where that is known, else None.
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
    """The operating system, or an object store, doesn't let this process at a file. Nothing was changed there.

    An OSError as well, with `errno` and `filename`. The message names the path, what was tried, and the remedy.
    """

    def __init__(self, code: int, reason: str, path: str) -> None:
        super().__init__(code, reason, path)

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class SnapshotExpired(TidelakeError):
    """The snapshot is no longer in the table: it expired, or was rolled back, maybe while it was read. Nothing is
    damaged: begin again, with a snapshot that is there. What was read so far is of a state that the table had.

    there: in words, what the table has now.
    """

    def __init__(self, table: str, snapshot_id: int, there: str) -> None:
        super().__init__(
            f"{table}: snapshot {snapshot_id} is gone, expired or rolled back ({there}). Begin again: scan the table "
            "again; who reads its changes goes on from there. A consumer (follow), a tag, or a longer "
            "'snapshot.time-retained' keeps what slow readers need"
        )
        self.table = table
        self.snapshot_id = snapshot_id
        self.there = there

    def __reduce__(self) -> tuple[type[SnapshotExpired], tuple[str, int, str]]:
        return type(self), (self.table, self.snapshot_id, self.there)


class CommitConflict(TidelakeError):
    """Someone else's commit makes ours wrong. Nothing was published: refresh, plan again, retry."""


class StaleSequenceNumbers(CommitConflict):
    """Another writer's rows came into a bucket after its sequence numbers were read. With newer numbers the same rows
    can be committed.
    """


class CommitOutcomeUnknown(TidelakeError):
    """The commit may have landed. Look for our commit identifier before anything else; delete nothing until you
    know.
    """


class WriterFenced(TidelakeError):
    """A newer writer owns this pipeline. Stop writing; do not retry."""


class PositionRefused(TidelakeError):
    """Where to go on reading the source cannot be proven from the table.

    found: what was seen.
    ways_out: commands or settings a person can choose from.
    """

    def __init__(self, found: str, ways_out: Sequence[str]) -> None:
        super().__init__("\n".join([found, "Options:", *(f"  {way}" for way in ways_out)]))
        self.found = found
        self.ways_out = tuple(ways_out)

    def __reduce__(self) -> tuple[type[PositionRefused], tuple[str, tuple[str, ...]]]:
        return type(self), (self.found, self.ways_out)
